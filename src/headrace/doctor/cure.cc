#include "headrace/doctor/cure.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

namespace headrace::doctor {
namespace {

// Below it nobody would notice, and jobs vary by as much from one minute to the next.
constexpr double kNoticed = 0.02;

std::string WhyNot(const Finding& finding, const std::vector<SettingValue>& settings,
                   const SettingValue* setting) {
  if (!finding.setting) return "the cure is no setting of a running loader";
  if (setting != nullptr)
    return fmt::format("{} is {} already, and the job was given {} to {}", setting->name,
                       setting->value, setting->min, setting->max);
  std::string names;
  for (const SettingValue& one : settings) names += (names.empty() ? "" : ", ") + one.name;
  return fmt::format("the process has no setting {}; it has: {}", finding.setting->name,
                     names.empty() ? "none" : names);
}

}  // namespace

CurePlan PlanCures(const std::vector<Finding>& findings,
                   const std::vector<SettingValue>& settings) {
  CurePlan plan;
  for (const Finding& finding : findings) {
    const auto setting = std::find_if(settings.begin(), settings.end(), [&](const auto& one) {
      return finding.setting && one.name == finding.setting->name;
    });
    const uint64_t wanted = finding.setting ? finding.setting->value : 0;
    const bool there = setting != settings.end();
    const uint64_t to = there ? std::max(std::min(wanted, setting->max), setting->min) : wanted;
    if (!there || to == setting->value) {
      plan.left.push_back(finding.check + ": " +
                          WhyNot(finding, settings, there ? &*setting : nullptr));
      continue;
    }
    const bool taken = std::any_of(plan.cures.begin(), plan.cures.end(),
                                   [&](const Cure& cure) { return cure.setting == setting->name; });
    if (taken) {
      plan.left.push_back(finding.check + ": " + setting->name + " is changed for another finding");
      continue;
    }
    Cure cure{
        finding.check, setting->name, setting->value, to, finding.gain, finding.gain_at_most, ""};
    if (to != wanted) {
      cure.gain_at_most = true;
      cure.note = fmt::format("{} would be more of the cure, but the job was given {} to {}",
                              wanted, setting->min, setting->max);
    }
    plan.cures.push_back(std::move(cure));
  }
  return plan;
}

std::string_view VerdictName(Verdict verdict) {
  constexpr std::array<std::string_view, 4> kNames = {"faster", "same", "slower", "unknown"};
  return kNames[static_cast<size_t>(verdict)];
}

Outcome JudgeCures(const JobRun& before, const JobRun& after) {
  // Shorter than those of the auto-tune: somebody waits for the answer.
  const SpeedGauge::Options gauge{.stretch_s = 1, .stretch_batches = 4};
  Outcome outcome;
  outcome.before = SpeedOfRun(before, gauge);
  outcome.after = SpeedOfRun(after, gauge);
  outcome.gain = GainOf(outcome.before, outcome.after);
  constexpr double kNothingKnown = 1;
  if (outcome.before.error >= kNothingKnown || outcome.after.error >= kNothingKnown) return outcome;
  const double border = std::max(kNoticed, NoiseOf(outcome.before, outcome.after));
  outcome.verdict = outcome.gain > border    ? Verdict::kFaster
                    : outcome.gain < -border ? Verdict::kSlower
                                             : Verdict::kSame;
  return outcome;
}

}  // namespace headrace::doctor
