// How many bytes may go through in a second: pure arithmetic on given times. Thread-safe.
#pragma once

#include <cstdint>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"

namespace headrace::object {

class ByteRate {
 public:
  using TimePoint = Context::Clock::time_point;

  // At least one byte a second.
  explicit ByteRate(uint64_t bytes_per_s);

  // When `bytes` that are asked for at `now` may begin to go: when what was asked for before has
  // had its time, in that order. What is not used is kept for a quarter of a second and no longer.
  TimePoint Take(uint64_t bytes, TimePoint now) HR_EXCLUDES(mu_);
  // Of what was taken, `bytes` will not go: who asks from now on comes sooner.
  void GiveBack(uint64_t bytes) HR_EXCLUDES(mu_);

 private:
  Context::Clock::duration Needed(uint64_t bytes) const;

  const double bytes_per_s_;
  Mutex mu_;                                                 // leaf
  TimePoint free_at_ HR_GUARDED_BY(mu_) = TimePoint::min();  // what was taken has gone by then
};

}  // namespace headrace::object
