#include "headrace/checkpoint/policy/trainer_pace.h"

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kLeastNs = 100'000'000;  // of the loop's time, to say anything about it

}  // namespace

std::optional<double> TrainerPace::InputStall(const LoopTime& now) {
  // Who reads the clock of a loop that runs may see a wait just as it is booked, and then less than
  // before.
  if (now.input_wait_ns < seen_.input_wait_ns || now.between_batches_ns < seen_.between_batches_ns)
    return std::nullopt;
  const uint64_t waited = now.input_wait_ns - seen_.input_wait_ns;
  const uint64_t all = waited + now.between_batches_ns - seen_.between_batches_ns;
  if (all < kLeastNs) return std::nullopt;
  seen_ = now;
  return static_cast<double>(waited) / static_cast<double>(all);
}

void TrainerPace::Saved(uint64_t now_ns) {
  next_save_ns_.reset();
  if (last_save_ns_ && now_ns > *last_save_ns_) next_save_ns_ = now_ns + (now_ns - *last_save_ns_);
  last_save_ns_ = now_ns;
}

std::optional<uint64_t> TrainerPace::UntilSaveNs(uint64_t now_ns) const {
  if (!next_save_ns_ || *next_save_ns_ <= now_ns) return std::nullopt;
  return *next_save_ns_ - now_ns;
}

}  // namespace headrace::checkpoint
