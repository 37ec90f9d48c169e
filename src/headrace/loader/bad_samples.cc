#include "headrace/loader/bad_samples.h"

#include "headrace/base/json.h"

namespace headrace::loader {

Result<OnError> ParseOnError(std::string_view name) {
  if (name == "raise") return OnError::kRaise;
  if (name == "skip") return OnError::kSkip;
  if (name == "replace") return OnError::kReplace;
  return Error(Code::kInvalidArgument, "on_error: expected raise, skip or replace, found '{}'",
               name);
}

bool IsSampleFault(const Status& status) {
  switch (status.code()) {
    case Code::kDataLoss:
    case Code::kNotFound:
    case Code::kPermissionDenied:
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
    case Code::kUnimplemented:
    case Code::kIoError:
      return true;
    default:
      return false;
  }
}

std::string BadSample::ToJsonLine(OnError policy) const {
  const Location& at = reason.location();
  Json line;
  line.Set("epoch", epoch).Set("position", position).Set("sample", sample_id);
  line.Set("shard", at.file);
  line.Set("offset", at.offset ? Json(*at.offset) : Json());
  line.Set("key", at.key).Set("field", at.field);
  line.Set("code", CodeName(reason.code())).Set("reason", reason.message());
  bool replaced = policy == OnError::kReplace && substitute_id.has_value();
  line.Set("action", replaced ? "replaced" : policy == OnError::kSkip ? "skipped" : "raised");
  line.Set("substitute", substitute_id ? Json(*substitute_id) : Json());
  return line.Dump();
}

Status BadSampleBudget::Book(uint64_t num_samples, uint64_t num_bad, const Status* last_reason) {
  constexpr uint64_t kRateFrom = 1000;
  num_samples_ += num_samples;
  num_bad_ += num_bad;
  if (num_bad == 0) return OkStatus();
  double rate = static_cast<double>(num_bad_) / static_cast<double>(num_samples_);
  bool over_count = num_bad_ > max_count_;
  bool over_rate = num_samples_ >= kRateFrom && rate > max_rate_;
  if (!over_count && !over_rate) return OkStatus();
  return Error(Code::kResourceExhausted,
               "too many bad samples: {} of {} (limits: max_bad_samples={}, max_bad_rate={}); "
               "see the quarantine list, or raise the limit; the last one was: {}",
               num_bad_, num_samples_, max_count_, max_rate_,
               last_reason ? last_reason->ToString() : "unknown");
}

}  // namespace headrace::loader
