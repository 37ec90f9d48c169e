// What `headrace doctor --fix` may do about findings: change settings of the running loader, inside
// the budgets that the job was given, and say afterwards what that gained. Pure functions, safe
// from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/process_snapshot.h"
#include "headrace/doctor/finding.h"
#include "headrace/doctor/run.h"
#include "headrace/doctor/speed.h"

namespace headrace::doctor {

// One setting to change, for one finding.
struct Cure {
  std::string check;
  std::string setting;
  uint64_t from = 0, to = 0;
  std::optional<double> gain;  // as the finding predicts it
  bool gain_at_most = false;
  std::string note;  // why it is not what the finding advised; empty where it is
};
struct CurePlan {
  std::vector<Cure> cures;  // at most one for each setting: that of the weightiest finding
  // Findings about which nothing is done here, "few-shards: the cure is no setting ...".
  std::vector<std::string> left;
};
// `settings` are those of the process, with their bounds.
CurePlan PlanCures(const std::vector<Finding>& findings, const std::vector<SettingValue>& settings);

enum class Verdict : uint8_t {
  kFaster,
  kSame,  // by less than can be told from chance
  kSlower,
  kUnknown,  // too few batches before or after: nothing shows that it does no harm
};
std::string_view VerdictName(Verdict verdict);

struct Outcome {
  Speed before, after;
  double gain = 0;
  Verdict verdict = Verdict::kUnknown;
  // A cure that does no good does no harm, and stays: it may be one of several that are needed.
  bool keeps() const { return verdict == Verdict::kFaster || verdict == Verdict::kSame; }
};
Outcome JudgeCures(const JobRun& before, const JobRun& after);

}  // namespace headrace::doctor
