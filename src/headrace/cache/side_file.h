// What processes of a node learn about a dataset together, kept beside the blocks of its cache: a
// table of slots, each of which may hold a record of bytes. A record is written once, is checked at
// every read, and may be gone at any time. docs/formats/side-files.md is the format,
// docs/decisions/0050-learned-seek-points.md says why.
//
// A SideFile is for one thread at a time; any number of them, in any processes, share one file. In
// a forked child a copy may be used too. Nothing is allocated by Find and Add in steady state.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/bytes.h"
#include "headrace/cache/cache_directory.h"
#include "headrace/cache/node_cache.h"
#include "headrace/env/file.h"

namespace headrace::cache {

// The name of the side file for what these texts say together.
ObjectId IdentifySideFile(std::initializer_list<std::string_view> texts);

// A record as it lies in the file: 24 bytes, the record, zeros up to a multiple of 8.
inline constexpr uint32_t kMaxSideRecordBytes = 4 << 20;
uint64_t SideEntryBytes(uint64_t record_bytes);
// Writes the SideEntryBytes(record.size()) bytes of an entry to `out`.
void EncodeSideEntry(uint64_t owner, uint64_t slot, Bytes record, std::byte* out);
// The record of an entry; empty when `entry` is not, whole and sound, that of this slot.
std::optional<Bytes> ParseSideEntry(Bytes entry, uint64_t owner, uint64_t slot);

// The words of a file's table.
struct SideTable {
  static constexpr size_t kOwner = 0, kEnd = 1, kCounted = 2, kFirstSlot = 8;
  static constexpr uint64_t kGivenUp = 1;  // as owner: the file is gone
  // The limit of the cache is taken in such steps for the records.
  static constexpr uint64_t kStepBytes = 256 << 10;
  // Ties the table and each entry to the file's name and size. Never 0 or kGivenUp.
  static uint64_t OwnerOf(const ObjectId& id, uint64_t num_slots);
  // Where an entry lies, as one word; both are multiples of 8.
  static uint64_t EncodePlace(uint64_t offset, uint64_t bytes) {
    return offset / 8 << 24 | bytes / 8;
  }
  static uint64_t OffsetOf(uint64_t word) { return word >> 24 << 3; }
  static uint64_t BytesOf(uint64_t word) { return (word & 0xffffff) << 3; }
};

// The cache's directory that a side file lies in, in this process: null while there is none. It is
// asked again and again.
using SidePlace = std::function<NodeCache*(const ObjectId&)>;

class SideFile {
 public:
  // Opens the file, and makes it when it is missing. A file may have up to a quarter of the cache's
  // limit.
  //   kResourceExhausted  there is no room for its table.
  //   kUnavailable        the cache's disk does not work at the moment.
  static Result<std::unique_ptr<SideFile>> Open(SidePlace place, const ObjectId& id,
                                                uint64_t num_slots);

  // The record of a slot < num_slots, valid until the next call; none when nothing that is whole
  // and sound is there. What is damaged is forgotten.
  std::optional<Bytes> Find(uint64_t slot);
  // Keeps a record for a slot, in place of the one before. Others see it at once. False when it is
  // not kept: too large, no room, or the disk does not work. `record` is none that Find gave.
  bool Add(uint64_t slot, Bytes record);
  // Whether the file may be used; once it may not it never may again: it was given up for the sake
  // of others, or its disk failed. Open another one later.
  bool usable() const;

  uint64_t memory_bytes() const { return buffer_.capacity(); }

 private:
  SideFile(SidePlace place, const ObjectId& id, uint64_t num_slots);
  Status OpenFiles(NodeCache* node);
  Status OpenTable(NodeCache* node);
  Status MakeTable(NodeCache* node);
  bool TakeSpace(NodeCache* node, uint64_t bytes, uint64_t* offset);
  void Fail(NodeCache* node, bool reading, const Status& why);

  const SidePlace place_;
  const ObjectId id_;
  const uint64_t num_slots_, owner_;
  std::unique_ptr<SharedWords> table_;
  std::unique_ptr<SharedFile> records_;
  AlignedBuffer buffer_;
  bool failed_ = false;
  uint32_t finds_ = 0;
};

}  // namespace headrace::cache
