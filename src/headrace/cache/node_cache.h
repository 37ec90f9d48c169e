// The blocks that a node keeps on a local disk: one directory, shared by all processes and jobs
// (DiskTier puts several together). It cannot hurt: whatever happens to the directory, the caller
// is told to read from the origin instead. docs/formats/cache.md says how it looks on the disk,
// docs/decisions/0035-node-cache.md why.
//
// Thread-safe; any number of processes may open the same directory. Calls block for the time of the
// disk. Not for use in a child forked after it was made: make another one there (ProcessCache).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/counter.h"
#include "headrace/base/mutex.h"
#include "headrace/cache/block_format.h"
#include "headrace/cache/block_reader.h"
#include "headrace/cache/cache_directory.h"
#include "headrace/cache/cache_state.h"
#include "headrace/cache/policy/suspension.h"
#include "headrace/env/file.h"

namespace headrace::cache {

// Which reads go around the page cache; what is in it is taken from there in any case.
enum class DirectReads : uint8_t {
  kAuto,  // while the blocks that are cached are more than half of the memory this process may use
  kAlways,
  kNever,
};

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
  DirectReads direct_reads = DirectReads::kAuto;
  // Runs a task on another thread, soon: where what was read from the disk is checked. Null: on the
  // thread that read it.
  BlockReader::Post post = {};
  AsyncReader::Options io = {};
};

// Counts since this object was made.
struct NodeCacheCounters {
  Counter admitted_blocks, admitted_bytes;
  Counter refused_blocks;  // not admitted: no room, or the disk is suspended
  Counter dropped_blocks;  // were found damaged
  Counter evicted_blocks, evicted_bytes;
  Counter reads, read_bytes, read_ns;     // that succeeded; from call to end, summed over them
  Counter read_failures, write_failures;  // of the disk
  Counter degraded;                       // how often a healthy cache stopped to work

  NodeCacheCounters& operator+=(const NodeCacheCounters& other);
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
  //   others               AsyncReader::Create's.
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
  // The same without waiting for the disk. Returns a failure at once, and forgets `done`; or OK,
  // and calls `done` once, on this thread before it returns or later where `post` puts it. `out` is
  // not touched after that.
  using ReadDone = BlockReader::Done;
  Status StartRead(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx,
                   ReadDone done);
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
                 const ExpectedUse& use, Displace displace = Displace::kFarther);
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
  // Takes a number for a plan, for as long as the locks are held. kUnavailable: none is free, or
  // the cache does not work; go on with kNoPlan.
  struct PlanSlot {
    uint32_t plan = kNoPlan;
    std::vector<std::unique_ptr<FileLock>> locks;
  };
  Result<PlanSlot> JoinPlans();
  // Takes that number and no other. kAlreadyExists: another plan has it.
  Result<PlanSlot> JoinPlansAs(uint32_t plan);
  void SetProgress(const PlanSlot& slot, uint64_t position, uint64_t ns_per_position);

  // Removes the block if it is here. Returns true when it was.
  bool Drop(const BlockId& id);
  // Evicts what is farthest from use until `bytes` are free below the limit; returns how many bytes
  // became free. kUnavailable when another process is at it for long.
  Result<uint64_t> MakeRoom(uint64_t bytes);
  // True when blocks that cost so many bytes fit, and none has to go for them.
  bool HasRoom(uint64_t bytes);
  // The same after giving up what may go for blocks used like `use`. False: the cache would refuse
  // them.
  bool MakeRoomFor(uint64_t bytes, const ExpectedUse& use, Displace displace);

  // For side files (side_file.h). Counts bytes before they are written, making room for them.
  // kResourceExhausted: there is none; kUnavailable: the disk does not work.
  Status CountSide(uint64_t bytes) HR_EXCLUDES(reserve_mu_);
  void UncountSide(uint64_t bytes);
  // Notes a use of the side file for the choice of what to evict.
  void TouchSide(const ObjectId& id);
  // A read or write of a side file has failed: as for blocks.
  void FailSide(bool reading, const Status& why) HR_EXCLUDES(mu_);

  // 0 while the directory cannot be used.
  uint64_t used_bytes();
  uint64_t limit_bytes();
  bool healthy();
  NodeCacheCounters counters() const { return counts_; }
  AsyncReader::Driver read_driver() const { return reader_->driver(); }
  const CachePaths& paths() const { return paths_; }
  FileSystem* files() const { return fs_; }

 private:
  NodeCache(FileSystem* fs, NodeCacheOptions options);
  enum class Side : uint8_t { kRead, kWrite };
  // What room is made for. By default anything may go for it.
  struct Newcomer {
    ExpectedUse use;
    Displace displace = Displace::kFarther;
  };

  uint64_t SteadyMs() const;
  Suspension& SuspensionOf(Side side) HR_REQUIRES(mu_);
  Use Begin(Side side, const Context& ctx) HR_EXCLUDES(mu_);
  // For hints: never a probe.
  Use Peek() HR_EXCLUDES(mu_);
  Use UnlessLost(Use use) HR_EXCLUDES(mu_);
  Status Mount(const Context& ctx) HR_EXCLUDES(mu_, mount_mu_);
  Result<std::unique_ptr<MountedCache>> OpenDirectory(bool create, const Context& ctx);
  void Fail(Side side, const Status& why) HR_EXCLUDES(mu_);
  void End(const Use& use, Side side) HR_EXCLUDES(mu_);
  void Warn(const std::string& line) const;
  void TellDegraded(std::string_view what, const Status& why);
  void TellRecovered() const;

  bool ReadsDirectly(const CacheState& state) const;
  void CountRead(uint64_t bytes, uint64_t ns);
  Status FinishRead(const Use& use, const BlockId& id, Status status);
  bool DropFrom(CacheState* state, const BlockId& id);

  Result<std::unique_ptr<FileLock>> LockBlock(const BlockId& id);
  Status Admit(const Use& use, const BlockId& id, const ObjectVersion& object, uint32_t block_bytes,
               Bytes data, const Newcomer& newcomer);
  Status WriteBlock(const BlockId& id, Bytes data);
  Status Refuse(const Status& why, uint64_t cost, bool tell = true) HR_EXCLUDES(mu_);
  void NoteAdmitted(uint64_t cost) HR_EXCLUDES(mu_);
  bool IsHealthy() const HR_REQUIRES(mu_);
  Result<uint64_t> FreeBytes() HR_EXCLUDES(mu_);
  void Describe(CacheState* state, const BlockId& id, const ObjectDescriptor& object)
      HR_EXCLUDES(mu_);
  bool WasDescribed(const ObjectId& id) HR_EXCLUDES(mu_);

  // In node_cache_evict.cc.
  Status Reserve(CacheState* state, uint64_t cost, const Newcomer& newcomer)
      HR_EXCLUDES(reserve_mu_);
  uint64_t MissingBytes(CacheState* state, uint64_t cost);
  Result<uint64_t> Evict(CacheState* state, uint64_t bytes, const Newcomer& newcomer);
  Result<uint64_t> EvictLocked(CacheState* state, uint64_t bytes, const Newcomer& newcomer);
  uint64_t CorrectCount(CacheState* state, const CacheContents& contents, uint64_t before,
                        uint64_t bytes);
  uint64_t EvictFarthest(CacheState* state, CacheContents* contents, uint64_t bytes,
                         const Newcomer& newcomer);
  bool DropSideFile(CacheState* state, const SideFileEntry& side);
  void RemoveOrphans(CacheState* state, const CacheContents& contents);

  FileSystem* const fs_;  // not owned
  const NodeCacheOptions options_;
  const CachePaths paths_;

  Mutex
      reserve_mu_;  // order: before mu_. Held while room is made, with I/O: one at a time suffices
  Mutex mount_mu_;  // order: before mu_. Held while the directory is opened, with I/O
  Mutex mu_;        // order: none is taken under it; no I/O
  std::shared_ptr<MountedCache> mounted_ HR_GUARDED_BY(mu_);
  bool was_mounted_ HR_GUARDED_BY(mu_) = false;
  Suspension reads_ HR_GUARDED_BY(mu_), writes_ HR_GUARDED_BY(mu_);
  bool read_only_ HR_GUARDED_BY(mu_) = false;           // the disk is mounted so
  bool full_ HR_GUARDED_BY(mu_) = false;                // told that nothing fits
  uint64_t refused_cost_ HR_GUARDED_BY(mu_) = 0;        // the most that did not fit since then
  uint64_t refused_ms_ HR_GUARDED_BY(mu_) = 0;          // when that was last
  std::vector<ObjectId> described_ HR_GUARDED_BY(mu_);  // a ring of those written lately
  size_t next_described_ HR_GUARDED_BY(mu_) = 0;

  const uint64_t memory_limit_bytes_;  // 0: unknown
  NodeCacheCounters counts_;
  std::unique_ptr<BlockReader> reader_;  // last: waits for reads, which use the above
};

}  // namespace headrace::cache
