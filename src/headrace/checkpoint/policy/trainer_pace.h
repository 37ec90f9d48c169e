// What a drain needs to know of the training it runs beside: the input stall lately, and when the
// next save comes. From times that are given, as they grow. Pure logic. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

namespace headrace::checkpoint {

// The training loop's time since it began: it only grows.
struct LoopTime {
  uint64_t input_wait_ns = 0;       // waiting for batches
  uint64_t between_batches_ns = 0;  // all else
};

class TrainerPace {
 public:
  explicit TrainerPace(const LoopTime& begin) : seen_(begin) {}

  // Share of the loop's time since the last answer that it waited for input, 0 to 1. None while
  // that is too little time to tell, as when nothing trains; it then counts with what comes.
  std::optional<double> InputStall(const LoopTime& now);

  // A save was made: the next one is expected as long after it as it came after the one before.
  void Saved(uint64_t now_ns);
  // The next save is expected then, whatever came before.
  void ExpectSave(uint64_t at_ns) { next_save_ns_ = at_ns; }
  // Until the next save. None: it is not known, or it is late.
  std::optional<uint64_t> UntilSaveNs(uint64_t now_ns) const;

 private:
  LoopTime seen_;
  std::optional<uint64_t> last_save_ns_, next_save_ns_;
};

}  // namespace headrace::checkpoint
