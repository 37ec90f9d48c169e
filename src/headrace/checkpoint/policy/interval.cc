#include "headrace/checkpoint/policy/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "headrace/base/text.h"

namespace headrace::checkpoint {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// A failure of the class that will ever come.
bool Counts(const FailureClass& failure) { return failure.mtbf > 0 && std::isfinite(failure.mtbf); }

double EveryNth(const FailureClass& failure) { return std::max(failure.every_nth_save, 1.0); }

// Failures a second, each weighted with how many intervals it throws back.
double WeightedRate(const IntervalInputs& inputs) {
  double rate = 0;
  for (const FailureClass& failure : inputs.failures)
    if (Counts(failure)) rate += EveryNth(failure) / failure.mtbf;
  return rate;
}

double ShortestInterval(const IntervalInputs& inputs) {
  double shortest = 0;
  for (const FailureClass& failure : inputs.failures)
    shortest = std::max(shortest, failure.drain / EveryNth(failure));
  return shortest;
}

double Daly(double stall, double mtbf) {
  if (stall >= 2 * mtbf) return mtbf;
  const double ratio = std::sqrt(stall / (2 * mtbf));
  return std::sqrt(2 * stall * mtbf) * (1 + ratio / 3 + ratio * ratio / 9) - stall;
}

// The whole number of steps, at least 1 and not shorter than allowed, that wastes the least.
double WholeSteps(const IntervalInputs& inputs, double interval, double shortest) {
  const double least = std::max(1.0, std::ceil(shortest / inputs.step));
  const double below = std::max(least, std::floor(interval / inputs.step));
  const double above = std::max(least, std::ceil(interval / inputs.step));
  const bool below_is_better =
      ExpectedWaste(inputs, below * inputs.step) <= ExpectedWaste(inputs, above * inputs.step);
  return below_is_better ? below : above;
}

std::string TimeText(double seconds) {
  if (seconds > 1e9) return "more than 30 years";
  return FormatDuration(
      std::chrono::nanoseconds(static_cast<int64_t>(std::max(seconds, 0.0) * 1e9)));
}

}  // namespace

double ExpectedWaste(const IntervalInputs& inputs, double interval) {
  double waste = 0;
  if (inputs.stall > 0) waste = interval > 0 ? inputs.stall / interval : kInfinite;
  for (const FailureClass& failure : inputs.failures) {
    if (!Counts(failure)) continue;
    const double lost = EveryNth(failure) * interval / 2 + failure.drain + failure.restart;
    waste += lost / failure.mtbf;
  }
  return std::min(waste, 1.0);
}

IntervalAdvice AdviseInterval(const IntervalInputs& inputs) {
  IntervalAdvice advice;
  const double rate = WeightedRate(inputs);
  advice.shortest = ShortestInterval(inputs);
  if (rate == 0) {
    advice.interval = advice.young = advice.daly = kInfinite;
    advice.expected_goodput = 1;
    return advice;
  }
  advice.young = std::sqrt(2 * inputs.stall / rate);
  advice.daly = Daly(inputs.stall, 1 / rate);
  advice.bound_by_drain = advice.young < advice.shortest;
  advice.interval = std::max(advice.young, advice.shortest);
  if (inputs.step > 0) {
    advice.steps = WholeSteps(inputs, advice.interval, advice.shortest);
    advice.interval = advice.steps * inputs.step;
  }
  advice.expected_waste = ExpectedWaste(inputs, advice.interval);
  advice.expected_goodput = 1 - advice.expected_waste;
  return advice;
}

std::string IntervalAdvice::Explain(const IntervalInputs& inputs) const {
  if (!std::isfinite(interval))
    return "No failures are expected: no checkpoint is needed against them.";
  std::string text = fmt::format("Save every {}", TimeText(interval));
  if (steps > 0) text += fmt::format(" ({:.0f} steps)", steps);
  text += fmt::format(
      ": expected goodput {:.2f} %. Waste = stall / T + sum of (k T / 2 + drain + restart) / MTBF; "
      "least at T = sqrt(2 stall / sum of k / MTBF) = {} (Daly: {}). Stall {}.",
      100 * expected_goodput, TimeText(young), TimeText(daly), TimeText(inputs.stall));
  for (const FailureClass& failure : inputs.failures) {
    if (!Counts(failure)) continue;
    text += fmt::format(" {}: one in {}, drain {}, restart {}", failure.name,
                        TimeText(failure.mtbf), TimeText(failure.drain), TimeText(failure.restart));
    if (EveryNth(failure) > 1) text += fmt::format(", every {:.0f} saves", EveryNth(failure));
    text += '.';
  }
  if (bound_by_drain)
    text += fmt::format(
        " The drain takes {} and must end before the next save: a faster drain helps most.",
        TimeText(shortest));
  return text;
}

std::string WarnOfInterval(const IntervalInputs& inputs, double interval) {
  const double shortest = ShortestInterval(inputs);
  if (interval >= shortest) return "";
  return fmt::format(
      "the interval of {} is shorter than the drain, which takes {}: saves will wait for it. Save "
      "every {} or less often, or drain faster",
      TimeText(interval), TimeText(shortest), TimeText(shortest));
}

}  // namespace headrace::checkpoint
