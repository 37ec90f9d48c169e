// Reading and writing of tar: every dialect in use is read (USTAR with prefix, GNU long names, PAX
// per member and global, base-256 numbers); what we write is plain USTAR wherever it can hold the
// name and size, and a PAX header only where it cannot. docs/formats/tar.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

enum class TarMemberKind : uint8_t { kFile, kDirectory, kLink, kSparse, kOther };

struct TarMember {
  TarMemberKind kind = TarMemberKind::kFile;
  std::string path;            // bytes, as stored; never trusted as a path of this machine
  uint64_t header_offset = 0;  // of the first header block that belongs to the member
  uint64_t data_offset = 0;
  uint64_t size_bytes = 0;
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
  std::vector<TarDamage> damage;
};

// Walks the headers of `file`, in order, without reading member data, and calls `visit` for each
// member. Damage does not end the walk: it goes on at the next block with a valid header. Memory is
// bounded whatever the input. Fails on I/O faults, on a compressed file (says which compression and
// what to do), on a file without any tar header, and with what `visit` returns.
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
// paths that are not samples: an empty key or field, or a hidden last part (".x").
bool SplitMemberPath(std::string_view path, std::string_view* key, std::string_view* field);

}  // namespace headrace::dataset
