// Ranges of objects that were asked for before their readers come, in memory: of what the disk will
// not keep, and so is read from the origin a bit at a time. At most so many bytes. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/cache/block_format.h"

namespace headrace::cache {

class RangesAhead {
 public:
  // OK; kNotFound when the bytes did not come: ask the origin; or the context's failure.
  using ReadDone = std::function<void(Status)>;

  explicit RangesAhead(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // A range that is on its way, or here.
  class Range {
   public:
    MutableBytes bytes() { return {buffer_.data(), length_}; }

   private:
    friend class RangesAhead;
    struct Waiter {
      uint64_t offset;  // in the range
      MutableBytes out;
      Context ctx;
      ReadDone done;
    };
    ObjectId object_;
    uint64_t offset_ = 0, length_ = 0;
    AlignedBuffer buffer_;
    // The rest is guarded by mu_.
    bool is_here_ = false;
    uint64_t served_bytes_ = 0, since_ns_ = 0;
    std::vector<Waiter> waiters_;
    std::list<std::shared_ptr<Range>>::iterator place_;
  };
  using RangePtr = std::shared_ptr<Range>;

  // Makes room for a range, whose bytes the caller is to bring. Null: a range that covers it is
  // here already, or there is no room. What nobody came for within 10 s gives its room.
  RangePtr Begin(const ObjectId& object, uint64_t offset, uint64_t length);
  // The bytes are there, or will not be: those who wait are told.
  void End(const RangePtr& range, bool ok);
  // Fills `out` from a range that covers it. kNone when there is none; `done` is kept untouched
  // then. Else it is called once, under no lock: on this thread before this returns, or by End or
  // EndExpired.
  enum class Found : uint8_t { kNone, kHere, kComing };
  Found Read(const ObjectId& object, uint64_t offset, MutableBytes out, const Context& ctx,
             ReadDone& done);
  // Sends those away who wait and whose time is up.
  void EndExpired();

  uint64_t bytes() const { return bytes_; }  // held now
  uint64_t num_waiters() const { return num_waiters_; }

 private:
  using Place = std::pair<ObjectId, uint64_t>;
  void DropStale(uint64_t wanted) HR_REQUIRES(mu_);
  void Remove(const RangePtr& range) HR_REQUIRES(mu_);
  RangePtr Find(const ObjectId& object, uint64_t offset, uint64_t length) HR_REQUIRES(mu_);

  const uint64_t limit_bytes_;
  std::atomic<uint64_t> bytes_{0}, num_waiters_{0};
  Mutex mu_;  // order: none is taken under it
  std::map<Place, RangePtr> ranges_ HR_GUARDED_BY(mu_);
  std::list<RangePtr> order_ HR_GUARDED_BY(mu_);  // begun first first
};

}  // namespace headrace::cache
