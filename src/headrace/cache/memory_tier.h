// Blocks kept in memory: at most so many bytes. Those that no plan needs go first, the least
// recently used before the others; then those that are needed last. Thread-safe.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "headrace/base/bytes.h"
#include "headrace/base/mutex.h"
#include "headrace/cache/block_format.h"

namespace headrace::cache {

// The bytes of one block, and whatever owns them. Valid for as long as it is held, also after the
// tier has given it up.
struct BlockBytes {
  BlockId id;
  Bytes data;
  std::shared_ptr<const void> owner;
  uint64_t owner_bytes = 0;  // what the owner holds, other blocks' bytes too; 0: data.size()
};

class MemoryTier {
 public:
  explicit MemoryTier(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Counts as a use.
  std::shared_ptr<const BlockBytes> Find(const BlockId& id);
  // Keeps the block, giving up others. One whose owner is larger than the limit is not kept.
  // Where it is needed until a place of a plan, only what is needed later, or by no plan, goes for
  // it.
  void Insert(std::shared_ptr<const BlockBytes> block, std::optional<uint64_t> needed_until = {});
  // A block that is here is needed until then; by no plan any more.
  void Need(const BlockId& id, uint64_t needed_until) { Change(id, needed_until); }
  void Release(const BlockId& id) { Change(id, std::nullopt); }
  void Remove(const BlockId& id);
  // Gives up all that no plan needs.
  void DropUnneeded();

  uint64_t limit_bytes() const { return limit_bytes_; }
  // Of all owners whose blocks are here.
  uint64_t bytes();

 private:
  struct Kept {
    std::shared_ptr<const BlockBytes> block;
    std::optional<uint64_t> needed_until;
    std::list<BlockId>::iterator place;  // in order_, unless it is needed
  };
  struct Owner {
    uint64_t blocks = 0, bytes = 0;
  };
  using Blocks = std::unordered_map<BlockId, Kept, BlockIdHash>;

  void Change(const BlockId& id, std::optional<uint64_t> needed_until) HR_EXCLUDES(mu_);
  void File(const BlockId& id, Kept* kept) HR_REQUIRES(mu_);
  void Unfile(const BlockId& id, const Kept& kept) HR_REQUIRES(mu_);
  std::shared_ptr<const BlockBytes> Drop(Blocks::iterator found) HR_REQUIRES(mu_);

  const uint64_t limit_bytes_;
  Mutex mu_;  // order: none is taken under it; blocks are freed outside
  Blocks blocks_ HR_GUARDED_BY(mu_);
  std::list<BlockId> order_ HR_GUARDED_BY(mu_);  // used last first
  std::set<std::pair<uint64_t, BlockId>> needed_ HR_GUARDED_BY(mu_);
  std::unordered_map<const void*, Owner> owners_ HR_GUARDED_BY(mu_);
  uint64_t bytes_ HR_GUARDED_BY(mu_) = 0;
};

}  // namespace headrace::cache
