// What every check of a run is made of: the case it looks at, and how it says what it found. A
// check is a pure function of the case; its file (checks/) states its thresholds and their reasons.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/doctor/finding.h"
#include "headrace/doctor/run.h"
#include "headrace/doctor/stage_model.h"

namespace headrace::doctor {

// A border between quiet and finding.
struct Threshold {
  std::string_view what;
  double value = 0;
  std::string_view unit;  // as in Evidence
  std::string_view reason;
};

// One rank's run, added up.
struct RankView {
  const RankRun* run = nullptr;  // not owned
  // The steady windows in which nothing was being saved, so that what a save does to the input is
  // not taken for the input's own trouble; all of them where fewer than 4 are left.
  Window total;
  Window whole;      // all steady windows
  StageModel model;  // of `total`
  double stall() const { return total.input_stall(); }
};

// A run, prepared once for all checks.
class Case {
 public:
  // `run` must outlive this.
  explicit Case(const JobRun& run);

  const JobRun& run() const { return *run_; }
  // Those that delivered samples in the steady part; may be empty, then no check is asked.
  const std::vector<RankView>& ranks() const { return ranks_; }
  // The rank whose input stall is the median (of two the lesser): what holds all ranks back shows
  // there. What holds one back shows in `worst`, which every step of a job waits for.
  const RankView& typical() const { return ranks_[typical_]; }
  const RankView& worst() const { return ranks_[worst_]; }

 private:
  const JobRun* run_;  // not owned
  std::vector<RankView> ranks_;
  size_t typical_ = 0, worst_ = 0;
};

// Below this share of stall nothing is reported as a bottleneck.
inline constexpr Threshold kInputStall{
    "input stall", 0.05, "%",
    "no cure of the input can gain more than the stall, and 5 % is what a job is allowed to lose"};

// How sure a check is, from 0.5 (all evidence just at its border) to 0.95 (all of it twice as far):
// the weakest piece of evidence counts, and fewer than 10 windows take something away.
// `low` are those where less is worse. Evidence without a threshold does not count.
double Confidence(const std::vector<Evidence>& evidence, size_t windows,
                  const std::vector<std::string_view>& low = {});

// Evidence with its border.
Evidence Measured(const Threshold& threshold, double value);

// The share by which `predicted` samples a second are more than those observed.
double GainOver(const RankView& view, double predicted);

using Check = std::optional<Finding> (*)(const Case&);
struct CheckEntry {
  std::string_view name;
  std::string_view title;
  std::span<const Threshold> thresholds;
  Check check;
};
// In the order in which findings of equal gain are told.
std::span<const CheckEntry> AllChecks();

}  // namespace headrace::doctor
