// Reads of block files. What the system holds in memory is taken at once, on the caller's thread;
// the rest is read from the disk, many pieces under way at once, around the page cache on request.
// Either way each page is checked against the block's header, in the same pass that copies it where
// a copy is made at all.
//
// A block's header is read and checked when its file is opened and then remembered, with the open
// file where that costs little. Whether the file is still the one in the directory is looked up at
// every read. Thread-safe. Internal to NodeCache.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/cache/block_format.h"
#include "headrace/cache/cache_directory.h"
#include "headrace/cache/lru_table.h"
#include "headrace/env/async_read.h"

namespace headrace::cache {

class BlockReader {
 public:
  using Done = std::function<void(Status)>;
  using Post = std::function<void(std::function<void()>)>;

  // Memory for pieces that are being read: so many of kPieceBytes.
  static constexpr uint32_t kPieceBytes = 8 * kPageBytes;
  static constexpr size_t kMaxPieces = 64;

  struct Options {
    Post post = {};  // where what was read is checked; null: on the thread that read it
    AsyncReader::Options io = {};
    size_t max_open_files = 64, max_headers = 4096;  // kept
  };
  // Failures are those of AsyncReader::Create.
  static Result<std::unique_ptr<BlockReader>> Create(FileSystem* fs, const CachePaths* paths,
                                                     const Options& options);
  // Waits for all reads.
  ~BlockReader();

  struct Wanted {
    BlockId id;
    uint32_t offset = 0;
    MutableBytes out;             // filled from `offset` on; unspecified after a failure
    bool direct = false;          // around the page cache, but for what is in it
    uint64_t max_open_bytes = 0;  // blocks that files kept open may have together
  };
  // Returns a failure at once, and forgets `done`; or OK, and calls `done` once, on this thread
  // before it returns or on another one.
  //   kNotFound  not here.
  //   kDataLoss  the file is damaged, or it is another block's.
  //   kInternal  the range is outside the block.
  //   others     the disk's, or the Context's.
  Status Start(const Wanted& wanted, const Context& ctx, Done done);
  // The block's file goes: it is not kept open any more.
  void Forget(const BlockId& id);

  AsyncReader::Driver driver() const { return io_->driver(); }

 private:
  using Checksums = std::shared_ptr<const std::vector<uint32_t>>;
  struct Header {
    FileInfo file;
    Checksums pages;
  };
  struct OpenBlock {
    std::unique_ptr<RandomAccessFile> file;
    Checksums pages;
  };
  using OpenBlockPtr = std::shared_ptr<const OpenBlock>;
  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte, FreeMemory>;
  struct Slice;
  struct Read;
  struct Piece;
  using PiecePtr = std::shared_ptr<Piece>;

  BlockReader(FileSystem* fs, const CachePaths* paths, const Options& options);

  Result<OpenBlockPtr> Open(const Wanted& wanted, const Context& ctx) HR_EXCLUDES(mu_);
  Result<Checksums> ReadHeader(const RandomAccessFile& file, const BlockId& id,
                               const Context& ctx) const;
  static Slice Cut(const Wanted& wanted, uint32_t begin, uint32_t end);
  static Result<uint32_t> TakeResident(const OpenBlock& block, const Wanted& wanted, uint32_t begin,
                                       uint32_t end, const Context& ctx);
  void Pump() HR_EXCLUDES(mu_);
  Memory TakeMemory() HR_REQUIRES(mu_);
  AsyncRead Ask(const PiecePtr& piece);
  void EndPiece(const PiecePtr& piece, Status status) HR_EXCLUDES(mu_);

  FileSystem* const fs_;           // not owned
  const CachePaths* const paths_;  // not owned
  const Options options_;

  Mutex mu_;  // order: none is taken under it; no I/O, no call-back
  CondVar idle_cv_;
  LruTable<OpenBlockPtr> open_ HR_GUARDED_BY(mu_);
  LruTable<Header> headers_ HR_GUARDED_BY(mu_);
  std::deque<PiecePtr> waiting_ HR_GUARDED_BY(mu_);  // for memory
  std::vector<Memory> idle_ HR_GUARDED_BY(mu_);
  size_t num_memories_ HR_GUARDED_BY(mu_) = 0;  // idle or in use
  uint64_t num_pieces_ HR_GUARDED_BY(mu_) = 0;  // that have not ended

  std::unique_ptr<AsyncReader> io_;  // last: ended first
};

}  // namespace headrace::cache
