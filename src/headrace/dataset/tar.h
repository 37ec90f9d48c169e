// Reading and writing of tar: every dialect in use is read (USTAR with prefix, GNU long names, PAX
// per member and global, base-256 numbers); what we write is plain USTAR wherever it can hold the
// name and size, and a PAX header only where it cannot. docs/formats/tar.md. Functions without
// state: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// kSparse: a file stored without its holes, whose bytes are not one range; callers refuse it.
enum class TarMemberKind : uint8_t { kFile, kDirectory, kLink, kSparse, kOther };

struct TarMember {
  TarMemberKind kind = TarMemberKind::kFile;
  std::string path;            // bytes, as stored; never trusted as a path of this machine
  uint64_t header_offset = 0;  // of the first header block that belongs to the member
  uint64_t data_offset = 0;
  uint64_t size_bytes = 0;  // bytes stored at data_offset; 0 for directories and links
};

// A damaged stretch: what was wrong, where, and where reading went on.
struct TarDamage {
  uint64_t offset = 0;
  uint64_t resumed_at = 0;  // file size when nothing more was found
  std::string reason;
};

struct TarScanResult {
  uint64_t num_members = 0;
  bool has_end_blocks = true;
  uint64_t end_offset = 0;  // where the last member's data (padded) ended
  uint64_t num_damaged = 0;
  std::vector<TarDamage> damage;  // the first 1,000 of num_damaged
};

// Longest path of a member, and largest PAX header, that are read; more is damage.
inline constexpr uint64_t kMaxTarPathBytes = 65535;
inline constexpr uint64_t kMaxPaxBytes = 1 << 20;

// Walks the headers of `file`, in order, and calls `visit` for each member; the member's strings
// are reused after the call. Member data is not read, but for what shares a read with headers.
// Damage does not end the walk: it goes on at the next block with a valid header. A member whose
// name may have been lost with a damaged extension header counts as damaged too. Memory is bounded
// whatever the input. Fails on I/O faults, on a compressed file (says which compression and what to
// do), on a file without any tar header (kDataLoss), and with what `visit` returns.
Result<TarScanResult> ScanTar(const RandomAccessFile& file, const Context& ctx,
                              const std::function<Status(const TarMember&)>& visit);

// Appends the header blocks of a regular file to `out`: one USTAR block, or a PAX block pair before
// it when the name is too long or the size is 8 GiB or more. mtime is stored as 0 and the mode as
// 0644, so that the same input gives the same bytes.
void AppendTarHeader(std::string_view path, uint64_t size_bytes, std::string* out);
// Bytes that AppendTarHeader would add, and the bytes of a member's data with its padding.
uint64_t TarHeaderBytes(std::string_view path, uint64_t size_bytes);
inline uint64_t TarPaddedBytes(uint64_t size_bytes) { return (size_bytes + 511) / 512 * 512; }
// The two zero blocks that end an archive.
inline constexpr uint64_t kTarEndBytes = 1024;

// Splits a member path by WebDataset's rule: the key is everything up to the first dot of the last
// path part, the field is the rest ("a/b.c/d.seg.png" -> "a/b.c/d", "seg.png"). Returns false for
// paths that are not samples: an empty key or field, or a hidden last part (".x"). Bytes are kept
// as they are: "x.JPEG" is the field "JPEG".
bool SplitMemberPath(std::string_view path, std::string_view* key, std::string_view* field);

}  // namespace headrace::dataset
