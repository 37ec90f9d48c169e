// The node's cache as the rest of this module sees it: one directory, or one on each of several
// disks. A block belongs to one of them, chosen by its hash in proportion to their limits, the same
// in all processes that name the same directories, in any order. A directory that does not work
// degrades alone: its blocks are read from the origin meanwhile.
//
// Thread-safe. Not for use in a child forked after it was made.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/cache/node_cache.h"

namespace headrace::cache {

// "/nvme0/c:/nvme1/c" -> both, without empty parts and those named twice.
std::vector<std::string> SplitDirectories(std::string_view directories);

class DiskTier {
 public:
  // `options.directory` names one directory or several with ':' between. `options.limit_bytes` is
  // divided among them evenly; with 0 each keeps its own. Failures are those of NodeCache::Open.
  static Result<std::unique_ptr<DiskTier>> Open(FileSystem* fs, const NodeCacheOptions& options,
                                                const Context& ctx);

  // The one that a block belongs to.
  NodeCache* Of(const BlockId& id) const { return disks_[PlaceOf(id)].get(); }
  // All, in the order they were named in; at least one.
  const std::vector<std::unique_ptr<NodeCache>>& disks() const { return disks_; }

  // As those of NodeCache, on the one that the block belongs to.
  Status StartRead(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx,
                   NodeCache::ReadDone done) {
    return Of(id)->StartRead(id, offset, out, ctx, std::move(done));
  }
  Status Read(const BlockId& id, uint32_t offset, MutableBytes out, const Context& ctx) {
    return Of(id)->Read(id, offset, out, ctx);
  }
  bool Contains(const BlockId& id) { return Of(id)->Contains(id); }
  Result<std::unique_ptr<NodeCache::Claim>> ClaimBlock(const BlockId& id) {
    return Of(id)->ClaimBlock(id);
  }
  void Touch(const BlockId& id) { Of(id)->Touch(id); }
  // Of a use without a plan only that it is now counts: each directory has a clock of its own.
  void SetUse(const BlockId& id, const ExpectedUse& use);
  bool Drop(const BlockId& id) { return Of(id)->Drop(id); }
  // As those of NodeCache, for one block beside others of `others` bytes, which come to all disks.
  bool HasRoom(const BlockId& id, uint64_t others) {
    return Of(id)->HasRoom(others / disks_.size() + BlockCost(id.length));
  }
  bool MakeRoomFor(const BlockId& id, uint64_t others, const ExpectedUse& use, Displace displace) {
    return Of(id)->MakeRoomFor(others / disks_.size() + BlockCost(id.length), use, displace);
  }

  // The clock of the first.
  Tick Now() { return disks_.front()->Now(); }
  // A number that is free in all that work.
  Result<NodeCache::PlanSlot> JoinPlans();
  void SetProgress(const NodeCache::PlanSlot& slot, uint64_t position, uint64_t ns_per_position);

  // Of those that work.
  uint64_t used_bytes() const;
  uint64_t limit_bytes() const;
  // Whether any works.
  bool healthy() const;
  NodeCacheCounters counters() const;  // of all

 private:
  struct Share {
    uint64_t seed = 0;  // of the directory's name
    double weight = 1;  // its limit
  };
  DiskTier() = default;
  size_t PlaceOf(const BlockId& id) const;
  void Weigh(uint64_t limit_bytes);
  bool JoinOthers(size_t first, NodeCache::PlanSlot* slot);

  std::vector<std::unique_ptr<NodeCache>> disks_;
  std::vector<Share> shares_;
};

}  // namespace headrace::cache
