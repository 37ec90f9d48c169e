// What happens to a sample that cannot be read or decoded: the policy, its budgets, and the record
// of each case. Values and pure logic; BadSampleBudget is for one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace::loader {

enum class OnError : uint8_t {
  kRaise,    // the batch that holds the sample is an error
  kSkip,     // the batch comes out shorter by the row
  kReplace,  // another sample takes the row, drawn by a function of seed, epoch and position
};
Result<OnError> ParseOnError(std::string_view name);  // "raise", "skip", "replace"

// Substitutes tried before a row is given up.
inline constexpr uint32_t kMaxSubstitutes = 16;

// One bad sample, as it stands in the quarantine list.
struct BadSample {
  uint64_t epoch = 0;
  uint64_t position = 0;
  uint64_t sample_id = 0;
  std::optional<uint64_t> substitute_id;  // the sample that took its place
  Status reason;                          // with the whole Location

  // One line of JSON without the line feed: epoch, position, sample, shard, offset, key, field,
  // code, reason, action ("raised", "skipped", "replaced"), substitute.
  std::string ToJsonLine(OnError policy) const;
};

// True for a fault of the sample itself; false for one of the machine or the caller (cancelled, out
// of descriptors, wrong index), which is raised whatever the policy.
bool IsSampleFault(const Status& status);

// Ends a run that meets too many bad samples. Counts in the order of delivery, so that a replay
// ends at the same place.
class BadSampleBudget {
 public:
  // `max_count` and `max_rate` (bad / delivered samples) of one run; the rate is looked at from
  // 1,000 samples on.
  BadSampleBudget(uint64_t max_count, double max_rate)
      : max_count_(max_count), max_rate_(max_rate) {}
  // Books a delivered batch. kResourceExhausted, with the counts and the last reason, when a limit
  // is passed.
  Status Book(uint64_t num_samples, uint64_t num_bad, const Status* last_reason);
  uint64_t num_bad() const { return num_bad_; }

 private:
  uint64_t max_count_;
  double max_rate_;
  uint64_t num_bad_ = 0, num_samples_ = 0;
};

}  // namespace headrace::loader
