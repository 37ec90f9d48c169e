// The blocks that a node keeps on a local disk: one directory, shared by all processes and jobs. It
// cannot hurt: whatever happens to the directory, the caller is told to read from the origin
// instead. docs/formats/cache.md says how it looks on the disk, docs/decisions/0035-node-cache.md
// why.
//
// Thread-safe; any number of processes may open the same directory. Calls block for the time of the
// disk. Not for use in a child forked after it was made: make another one there (ProcessCache).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/cache/block_format.h"
#include "headrace/cache/cache_directory.h"
#include "headrace/cache/cache_state.h"
#include "headrace/cache/policy/suspension.h"
#include "headrace/env/file.h"

namespace headrace::cache {

struct NodeCacheOptions {
  std::string directory = {};
  // 0: what the directory was last given; a new one gets half of the free space. Passed by 4 KiB
  // for an object whose first block has just come, until the next block does.
  uint64_t limit_bytes = 0;
  // Space on the disk that the cache leaves free. 0: as above, 1 GiB.
  uint64_t free_floor_bytes = 0;
  bool create = true;  // makes a cache of a missing or empty directory
  // Told once each time the cache stops or begins to work again: one line without a line end.
  // Called on any thread under no lock.
  std::function<void(const std::string&)> warn = {};
  // A clock that is the same in all processes; for tests. Null: the machine's steady clock.
  std::function<uint64_t()> steady_ms = {};
  Suspension::Options suspension = {};
};

// Counts since this object was made.
struct NodeCacheCounters {
  uint64_t admitted_blocks = 0, admitted_bytes = 0;
  uint64_t refused_blocks = 0;  // not admitted: no room, or the disk is suspended
  uint64_t dropped_blocks = 0;  // were found damaged
  uint64_t evicted_blocks = 0, evicted_bytes = 0;
  uint64_t read_failures = 0, write_failures = 0;  // of the disk
  uint64_t degraded = 0;                           // how often a healthy cache stopped to work
};

class NodeCache {
  // The mounted cache for one call; null while it must not be tried.
  struct Use {
    std::shared_ptr<MountedCache> mounted;
    bool probing = false;  // the disk was suspended: tell how it went
    explicit operator bool() const { return mounted != nullptr; }
    CacheState* state() const { return mounted->state.get(); }
  };

 public:
  // Never fails for the sake of the disk: a directory that cannot be used now is tried again later.
  //   kInvalidArgument     no directory is named.
  //   kFailedPrecondition  the directory holds something else.
  //   kNotFound            no cache is there, and `create` is false.
  static Result<std::unique_ptr<NodeCache>> Open(FileSystem* fs, NodeCacheOptions options,
                                                 const Context& ctx);
  ~NodeCache();

  // Fills `out` from `offset` of the block's data and checks every page it touches.
  //   kNotFound     not here.
  //   kDataLoss     was here and damaged; it is dropped: fetch it anew.
  //   kUnavailable  the disk does not work: fetch it, and do not wait for the cache.
  //   kDeadlineExceeded, kCancelled
  // `out` is then unspecified.
  Status Read(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx);
  // True when the block's file is there. One look at the directory; nothing is checked.
  bool Contains(const BlockId& id);

  // The right to fetch a block: nobody else on this node has it until this is destroyed or its
  // process dies.
  class Claim {
   public:
    ~Claim();
    // Makes the block readable by all. kResourceExhausted: no room for it; kUnavailable: the disk
    // does not work. Nothing of the block is then here.
    Status Admit(const ObjectVersion& object, uint32_t block_bytes, Bytes data,
                 const ExpectedUse& use);
    const BlockId& id() const { return id_; }

   private:
    friend class NodeCache;
    Claim(NodeCache* cache, const BlockId& id, std::unique_ptr<FileLock> lock, Use use)
        : cache_(cache), id_(id), lock_(std::move(lock)), use_(std::move(use)) {}
    NodeCache* const cache_;  // not owned; outlives this
    const BlockId id_;
    const std::unique_ptr<FileLock> lock_;
    const Use use_;  // of the claim: where the disk was on probation, admitting is the probe
  };
  //   kAlreadyExists       the block is here by now.
  //   kFailedPrecondition  another claim is held, in this process or another: ask again soon.
  //   kUnavailable         the cache takes nothing now: fetch without it.
  Result<std::unique_ptr<Claim>> ClaimBlock(const BlockId& id);

  // Notes a use for the choice of what to evict. Touch is for what no plan has a claim on.
  void Touch(const BlockId& id);
  void SetUse(const BlockId& id, const ExpectedUse& use);
  Tick Now();
  // Takes a number for a plan, for as long as the lock is held. kUnavailable: none is free, or the
  // cache does not work; go on with kNoPlan.
  struct PlanSlot {
    uint32_t plan = kNoPlan;
    std::unique_ptr<FileLock> lock;
  };
  Result<PlanSlot> JoinPlans();
  void SetProgress(const PlanSlot& slot, uint64_t position, uint64_t ns_per_position);

  // Removes the block if it is here. Returns true when it was.
  bool Drop(const BlockId& id);
  // Evicts what is farthest from use until `bytes` are free below the limit; returns how many bytes
  // became free. kUnavailable when another process is at it for long.
  Result<uint64_t> MakeRoom(uint64_t bytes);

  // 0 while the directory cannot be used.
  uint64_t used_bytes();
  uint64_t limit_bytes();
  bool healthy();
  NodeCacheCounters counters() const;
  const CachePaths& paths() const { return paths_; }
  FileSystem* files() const { return fs_; }

 private:
  NodeCache(FileSystem* fs, NodeCacheOptions options);
  enum class Side : uint8_t { kRead, kWrite };

  uint64_t SteadyMs() const;
  Suspension& SuspensionOf(Side side) HR_REQUIRES(mu_);
  Use Begin(Side side, const Context& ctx) HR_EXCLUDES(mu_);
  // For hints: never a probe.
  Use Peek() HR_EXCLUDES(mu_);
  Status Mount(const Context& ctx) HR_EXCLUDES(mu_, mount_mu_);
  Result<std::unique_ptr<MountedCache>> OpenDirectory(bool create, const Context& ctx);
  void Fail(Side side, const Status& why) HR_EXCLUDES(mu_);
  void End(const Use& use, Side side) HR_EXCLUDES(mu_);
  void Warn(const std::string& line) const;

  Status ReadBlock(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx);
  Status ReadPages(const RandomAccessFile& file, const BlockId& id, uint32_t offset,
                   MutableBytes out, const Context& ctx);
  bool DropFrom(CacheState* state, const BlockId& id);

  Result<std::unique_ptr<FileLock>> LockBlock(const BlockId& id);
  Status Admit(const Use& use, const BlockId& id, const ObjectVersion& object, uint32_t block_bytes,
               Bytes data, const ExpectedUse& expected);
  Status WriteBlock(const BlockId& id, Bytes data);
  Status Refuse(const Status& why) HR_EXCLUDES(mu_);
  void Describe(CacheState* state, const BlockId& id, const ObjectDescriptor& object)
      HR_EXCLUDES(mu_);
  bool WasDescribed(const ObjectId& id) HR_EXCLUDES(mu_);

  // In node_cache_evict.cc.
  Status Reserve(CacheState* state, uint64_t cost) HR_EXCLUDES(reserve_mu_);
  uint64_t MissingBytes(CacheState* state, uint64_t cost);
  Result<uint64_t> Evict(CacheState* state, uint64_t bytes);
  Result<uint64_t> EvictLocked(CacheState* state, uint64_t bytes);
  uint64_t CorrectCount(CacheState* state, const CacheContents& contents, uint64_t before,
                        uint64_t bytes);
  uint64_t EvictFarthest(CacheState* state, CacheContents* contents, uint64_t bytes);
  void RemoveOrphans(CacheState* state, const CacheContents& contents);

  FileSystem* const fs_;  // not owned
  const NodeCacheOptions options_;
  const CachePaths paths_;

  Mutex
      reserve_mu_;  // order: before mu_. Held while room is made, with I/O: one at a time suffices
  Mutex mount_mu_;  // order: before mu_. Held while the directory is opened, with I/O
  Mutex mu_;        // order: none is taken under it; no I/O
  std::shared_ptr<MountedCache> mounted_ HR_GUARDED_BY(mu_);
  Suspension reads_ HR_GUARDED_BY(mu_), writes_ HR_GUARDED_BY(mu_);
  bool full_ HR_GUARDED_BY(mu_) = false;                // told that nothing fits
  std::vector<ObjectId> described_ HR_GUARDED_BY(mu_);  // a ring of those written lately
  size_t next_described_ HR_GUARDED_BY(mu_) = 0;

  struct AtomicCounters {
    std::atomic<uint64_t> admitted_blocks{0}, admitted_bytes{0}, refused_blocks{0},
        dropped_blocks{0}, evicted_blocks{0}, evicted_bytes{0}, read_failures{0}, write_failures{0},
        degraded{0};
  };
  AtomicCounters counts_;
};

}  // namespace headrace::cache
