#include "headrace/checkpoint/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "headrace/base/text.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kLookedAt = 20;  // checkpoints

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string TimeText(double seconds) {
  return FormatDuration(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)));
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Status CheckQuestion(const AdviceQuestion& question) {
  auto bad = [](double value) { return !std::isfinite(value) || value < 0; };
  if (!std::isfinite(question.mtbf) || question.mtbf <= 0)
    return Error(Code::kInvalidArgument,
                 "the mean time between failures must be above 0: how often does the job fail?");
  if (bad(question.restart) || bad(question.step) || bad(question.interval))
    return Error(Code::kInvalidArgument, "times must not be negative");
  return OkStatus();
}

}  // namespace

MeasuredTimes TimesIn(const Catalog& catalog) {
  MeasuredTimes times;
  std::vector<double> stalls, durables, restores;
  for (size_t i = catalog.entries.size(); i-- > 0 && times.saves < kLookedAt;) {
    const CatalogEntry& entry = catalog.entries[i];
    if (entry.kind == "light" || entry.stall_ns == 0) continue;
    ++times.saves;
    stalls.push_back(Seconds(entry.stall_ns));
    if (entry.save_ns > 0) durables.push_back(Seconds(entry.save_ns));
    if (entry.restore_ns > 0) restores.push_back(Seconds(entry.restore_ns));
  }
  times.stall = Median(std::move(stalls));
  times.durable = Median(std::move(durables));
  times.restore = Median(std::move(restores));
  const size_t count = catalog.entries.size();
  if (count >= 2 && catalog.entries[count - 1].id.epoch == catalog.entries[count - 2].id.epoch) {
    const int64_t apart =
        catalog.entries[count - 1].published_ns - catalog.entries[count - 2].published_ns;
    times.interval = static_cast<double>(std::max<int64_t>(apart, 0)) * 1e-9;
  }
  return times;
}

Result<SaveAdvice> AdviseSaves(const Catalog& catalog, const AdviceQuestion& question) {
  HR_RETURN_IF_ERROR(CheckQuestion(question));
  SaveAdvice advice;
  advice.measured = TimesIn(catalog);
  if (advice.measured.saves == 0)
    return Error(Code::kFailedPrecondition,
                 "no full checkpoint here has measured times: save at least one by this version");
  FailureClass failure;
  failure.name = "failure";
  failure.mtbf = question.mtbf;
  failure.drain = advice.measured.durable;
  failure.restart = question.restart + advice.measured.restore;
  advice.inputs.stall = advice.measured.stall;
  advice.inputs.failures.push_back(failure);
  advice.inputs.step = question.step;
  advice.advice = AdviseInterval(advice.inputs);
  advice.interval = question.interval > 0 ? question.interval : advice.measured.interval;
  if (advice.interval > 0) {
    advice.present_goodput = 1 - ExpectedWaste(advice.inputs, advice.interval);
    advice.warning = WarnOfInterval(advice.inputs, advice.interval);
  }
  return advice;
}

std::string SaveAdvice::Text() const {
  std::string text = fmt::format(
      "measured in {} checkpoints: stall {}, durable after {}, restore {}\n", measured.saves,
      TimeText(measured.stall), TimeText(measured.durable),
      measured.restore > 0 ? TimeText(measured.restore) : "not measured (counted as 0)");
  text += advice.Explain(inputs) + "\n";
  if (interval > 0)
    text += fmt::format("Now: every {}, expected goodput {:.2f} %.\n", TimeText(interval),
                        100 * present_goodput);
  if (!warning.empty()) text += "Warning: " + warning + ".\n";
  return text;
}

}  // namespace headrace::checkpoint
