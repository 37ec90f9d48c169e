#include "headrace/object/byte_rate.h"

#include <algorithm>
#include <chrono>

namespace headrace::object {

namespace {

constexpr std::chrono::milliseconds kCredit{250};
// So that a huge request at a tiny rate stays a time that can be computed with.
constexpr double kLongestSeconds = 1e8;

}  // namespace

ByteRate::ByteRate(uint64_t bytes_per_s)
    : bytes_per_s_(static_cast<double>(std::max<uint64_t>(bytes_per_s, 1))) {}

Context::Clock::duration ByteRate::Needed(uint64_t bytes) const {
  const std::chrono::duration<double> needed(
      std::min(static_cast<double>(bytes) / bytes_per_s_, kLongestSeconds));
  return std::chrono::duration_cast<Context::Clock::duration>(needed);
}

ByteRate::TimePoint ByteRate::Take(uint64_t bytes, TimePoint now) {
  MutexLock lock(&mu_);
  const TimePoint turn = std::max(free_at_, now - kCredit);
  free_at_ = std::min(turn, now + std::chrono::hours(24 * 365)) + Needed(bytes);
  return turn;
}

void ByteRate::GiveBack(uint64_t bytes) {
  MutexLock lock(&mu_);
  if (free_at_ != TimePoint::min()) free_at_ -= Needed(bytes);
}

}  // namespace headrace::object
