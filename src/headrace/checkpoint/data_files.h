// Where the data files of a store lie: a folder, whose files are written around the page cache, or
// a prefix in a bucket, to which large files go in parts. Files never change once they are there.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/manifest_tables.h"
#include "headrace/env/file.h"
#include "headrace/object/object_store.h"

namespace headrace::checkpoint {

// Tells the key of a file whose bytes are written already.
using LateKey = std::function<Result<std::string>()>;
// Gives the next `bytes` bytes of a file that is written; they are valid until the next call.
using NextPiece = std::function<Result<Bytes>(uint64_t bytes)>;

// An open data file.
class DataFile {
 public:
  virtual ~DataFile() = default;
  // Fills `out` from `offset`. kDataLoss when the file ends before; else as the store.
  virtual Status Read(uint64_t offset, MutableBytes out, const Context& ctx) = 0;
  // The same file, to be read around the page cache with many reads under way (env/async_read.h),
  // as long as this one is there; null where that is not possible, or not worth it.
  virtual const RandomAccessFile* direct() const { return nullptr; }
  // Whether the system holds all of a range in memory, so that Read does not wait for a disk.
  virtual bool IsResident(uint64_t /*offset*/, uint64_t /*bytes*/) const { return false; }
};

class DataFiles {
 public:
  virtual ~DataFiles() = default;
  // The place, for messages.
  virtual const std::string& name() const = 0;

  // kResourceExhausted when there is surely no room for `bytes` more: says how much there is.
  virtual Status CheckRoom(uint64_t bytes, const Context& ctx) = 0;
  // Makes the file of that key from `parts`, one behind the other. Nobody sees it before it is
  // whole. It is durable after the next Sync. Where a file of that key and size is there already
  // nothing is written, since names come from contents; returns whether something was.
  virtual Result<bool> Write(const std::string& key, std::span<const Bytes> parts,
                             const Context& ctx) = 0;
  // The same of a file below data/ whose key may still be worked out while its bytes are written.
  // `key` is asked once they are, or before, once or more.
  virtual Result<bool> WriteThenName(std::span<const Bytes> parts, const LateKey& key,
                                     const Context& ctx) {
    HR_ASSIGN_OR_RETURN(const std::string name, key());
    return Write(name, parts, ctx);
  }
  // The same of a file of `bytes` bytes that come piece by piece: `next` is asked for them from the
  // start on, for a multiple of kSumChunkBytes each time but the last, and for all of them unless
  // it fails: then nothing is made.
  virtual Result<bool> WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                                 const Context& ctx) = 0;
  // Makes all that was written durable.
  virtual Status Sync(const Context& ctx) = 0;
  // kNotFound.
  virtual Result<std::unique_ptr<DataFile>> Open(const std::string& key, uint64_t bytes,
                                                 const Context& ctx) = 0;
};

// `fs` must outlive it. The folder is made when something is written.
std::unique_ptr<DataFiles> FilesInFolder(FileSystem* fs, const std::string& folder);
// Keys are put behind `prefix` ("" or "a/b/").
std::unique_ptr<DataFiles> FilesInBucket(std::shared_ptr<object::ObjectStore> store,
                                         const std::string& prefix);

// The checksums of a data file, checked against what the manifest says of the file as a whole.
// kNotFound, kDataLoss, kFailedPrecondition (a newer program's).
Result<ChunkSums> ReadSums(DataFiles* files, const FileEntry& entry, const Context& ctx);

}  // namespace headrace::checkpoint
