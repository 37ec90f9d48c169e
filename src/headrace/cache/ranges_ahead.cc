#include "headrace/cache/ranges_ahead.h"

#include <cstring>

#include "headrace/base/stage_timer.h"

namespace headrace::cache {

RangesAhead::RangePtr RangesAhead::Begin(const ObjectId& object, uint64_t offset, uint64_t length) {
  if (length == 0 || length > limit_bytes_) return nullptr;
  auto range = std::make_shared<Range>();
  {
    MutexLock lock(&mu_);
    if (Find(object, offset, length)) return nullptr;
    DropStale(length);
    if (bytes_ + length > limit_bytes_ || ranges_.contains({object, offset})) return nullptr;
    range->object_ = object;
    range->offset_ = offset;
    range->length_ = length;
    range->since_ns_ = NowNanos();
    range->place_ = order_.insert(order_.end(), range);
    ranges_.emplace(Place{object, offset}, range);
    bytes_ += length;
  }
  if (range->buffer_.Reserve(length, true)) return range;
  End(range, false);
  return nullptr;
}

void RangesAhead::End(const RangePtr& range, bool ok) {
  std::vector<Range::Waiter> waiters;
  {
    MutexLock lock(&mu_);
    waiters.swap(range->waiters_);
    num_waiters_ -= waiters.size();
    range->is_here_ = ok;
    for (const Range::Waiter& waiter : waiters) range->served_bytes_ += waiter.out.size();
    if (!ok || range->served_bytes_ >= range->length_) Remove(range);
  }
  for (Range::Waiter& waiter : waiters) {
    if (ok)
      std::memcpy(waiter.out.data(), range->buffer_.data() + waiter.offset, waiter.out.size());
    waiter.done(ok ? OkStatus() : Status(Code::kNotFound, "the bytes did not come"));
  }
}

RangesAhead::Found RangesAhead::Read(const ObjectId& object, uint64_t offset, MutableBytes out,
                                     const Context& ctx, ReadDone& done) {
  if (bytes_ == 0) return Found::kNone;
  RangePtr range;
  uint64_t at = 0;
  {
    MutexLock lock(&mu_);
    range = Find(object, offset, out.size());
    if (!range) return Found::kNone;
    at = offset - range->offset_;
    if (!range->is_here_) {
      range->waiters_.push_back({at, out, ctx, std::move(done)});
      num_waiters_ += 1;
      return Found::kComing;
    }
    range->served_bytes_ += out.size();
    if (range->served_bytes_ >= range->length_) Remove(range);
  }
  std::memcpy(out.data(), range->buffer_.data() + at, out.size());
  done(OkStatus());
  return Found::kHere;
}

void RangesAhead::EndExpired() {
  if (num_waiters_ == 0) return;
  std::vector<std::pair<ReadDone, Status>> expired;
  {
    MutexLock lock(&mu_);
    for (auto& [place, range] : ranges_) {
      num_waiters_ -= std::erase_if(range->waiters_, [&](Range::Waiter& waiter) {
        Status status = waiter.ctx.Check();
        if (status.ok()) return false;
        expired.emplace_back(std::move(waiter.done), std::move(status));
        return true;
      });
    }
  }
  for (auto& [done, status] : expired) done(std::move(status));
}

RangesAhead::RangePtr RangesAhead::Find(const ObjectId& object, uint64_t offset, uint64_t length) {
  auto after = ranges_.upper_bound({object, offset});
  if (after == ranges_.begin()) return nullptr;
  const RangePtr& range = std::prev(after)->second;
  bool covers = range->object_ == object && offset - range->offset_ <= range->length_ &&
                length <= range->length_ - (offset - range->offset_);
  return covers ? range : nullptr;
}

// First what was read in part, whose rest is likely gaps, then what nobody came for.
void RangesAhead::DropStale(uint64_t wanted) {
  constexpr uint64_t kStaleNs = 10'000'000'000;
  uint64_t now = NowNanos();
  for (auto at = order_.begin(); at != order_.end() && bytes_ + wanted > limit_bytes_;) {
    RangePtr range = *at++;
    if (range->is_here_ && (range->served_bytes_ > 0 || now - range->since_ns_ > kStaleNs))
      Remove(range);
  }
}

void RangesAhead::Remove(const RangePtr& range) {
  auto found = ranges_.find({range->object_, range->offset_});
  if (found == ranges_.end() || found->second != range) return;
  order_.erase(range->place_);
  ranges_.erase(found);
  bytes_ -= range->length_;
}

}  // namespace headrace::cache
