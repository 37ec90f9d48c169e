#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "headrace/base/text.h"
#include "headrace/doctor/check.h"
#include "headrace/doctor/report.h"

namespace headrace::doctor {
namespace {

// Figures of a run's typical rank; all 0 without samples.
struct Figures {
  Diagnosis diagnosis;
  Window whole;
  MachineFacts machine;
  JobFacts job;
};

Figures FiguresOf(const RunRecord& record) {
  Figures figures;
  figures.diagnosis = Diagnose(record.run);
  const Case c(record.run);
  if (c.ranks().empty()) return figures;
  figures.whole = c.typical().whole;
  figures.machine = c.typical().run->machine;
  figures.job = c.typical().run->job;
  return figures;
}

double EachSample(const Window& window, double sum) {
  return window.samples > 0 ? sum / static_cast<double>(window.samples) : 0;
}

void AddFigures(const Figures& a, const Figures& b, std::vector<Difference>* to) {
  auto add = [&](std::string name, const char* unit, double x, double y, bool more_is_better) {
    if (x != 0 || y != 0) to->push_back({std::move(name), unit, x, y, more_is_better});
  };
  add("samples a second", "", a.diagnosis.samples_per_s, b.diagnosis.samples_per_s, true);
  add("input stall", "%", a.diagnosis.input_stall, b.diagnosis.input_stall, false);
  add("save stall", "%", a.diagnosis.save_stall, b.diagnosis.save_stall, false);
  add("accelerator use", "%", a.diagnosis.accelerator_use, b.diagnosis.accelerator_use, true);
  for (size_t i = 0; i < kNumStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    add(fmt::format("{} of a sample", StageName(stage)), "s",
        EachSample(a.whole, a.whole.busy_s(stage)), EachSample(b.whole, b.whole.busy_s(stage)),
        false);
  }
  add("processor time of a sample", "s", EachSample(a.whole, a.whole.cpu_s),
      EachSample(b.whole, b.whole.cpu_s), false);
  add("bytes from the origin of a sample", "B",
      EachSample(a.whole, static_cast<double>(a.whole.origin_bytes)),
      EachSample(b.whole, static_cast<double>(b.whole.origin_bytes)), false);
}

void AddFacts(const RunRecord& a, const RunRecord& b, const Figures& x, const Figures& y,
              std::vector<Comparison::Fact>* to) {
  auto add = [&](const char* name, const std::string& of_a, const std::string& of_b) {
    if (of_a != of_b) to->push_back({name, of_a, of_b});
  };
  add("data set", a.run.dataset.name, b.run.dataset.name);
  add("samples", FormatCount(a.run.dataset.num_samples), FormatCount(b.run.dataset.num_samples));
  add("shards", FormatCount(a.run.dataset.num_shards), FormatCount(b.run.dataset.num_shards));
  add("world size", FormatCount(x.job.world_size), FormatCount(y.job.world_size));
  add("threads", FormatCount(x.whole.threads), FormatCount(y.whole.threads));
  add("processors", fmt::format("{:.3g}", x.machine.cpus), fmt::format("{:.3g}", y.machine.cpus));
  add("cache", x.job.has_cache ? "yes" : "no", y.job.has_cache ? "yes" : "no");
  add("cache limit", FormatSize(x.job.cache_limit_bytes), FormatSize(y.job.cache_limit_bytes));
}

std::set<std::string> Names(const Diagnosis& diagnosis) {
  std::set<std::string> names;
  for (const Finding& finding : diagnosis.findings) names.insert(finding.check);
  return names;
}

std::string FigureText(double value, const std::string& unit) {
  if (unit == "%") return fmt::format("{:.1f} %", value * 100);
  constexpr double kMost = 9e18;
  if (unit == "s")
    return FormatDuration(
        std::chrono::nanoseconds(static_cast<int64_t>(std::min(value * 1e9, kMost))));
  if (unit == "B") return FormatSize(static_cast<uint64_t>(std::clamp(value, 0.0, kMost)));
  return fmt::format("{:.1f}", value);
}

}  // namespace

Comparison CompareRuns(const RunRecord& a, const RunRecord& b) {
  Comparison comparison;
  const Figures of_a = FiguresOf(a), of_b = FiguresOf(b);
  AddFigures(of_a, of_b, &comparison.figures);
  AddFacts(a, b, of_a, of_b, &comparison.facts);
  const std::set<std::string> before = Names(of_a.diagnosis), after = Names(of_b.diagnosis);
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(comparison.findings_gone));
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(comparison.findings_new));
  return comparison;
}

Json ComparisonJson(const Comparison& comparison) {
  Json figures = Json::MakeArray();
  for (const Difference& one : comparison.figures) {
    Json json = Json::MakeObject().Set("name", one.name);
    json.Set("unit", one.unit == "%" ? std::string("share") : one.unit);
    json.Set("a", one.a).Set("b", one.b);
    if (auto change = one.change())
      json.Set("change", *change).Set("better", (*change > 0) == one.more_is_better);
    figures.Append(std::move(json));
  }
  Json facts = Json::MakeArray();
  for (const Comparison::Fact& fact : comparison.facts)
    facts.Append(Json::MakeObject().Set("name", fact.name).Set("a", fact.a).Set("b", fact.b));
  Json gone = Json::MakeArray(), fresh = Json::MakeArray();
  for (const std::string& name : comparison.findings_gone) gone.Append(name);
  for (const std::string& name : comparison.findings_new) fresh.Append(name);
  return Json::MakeObject()
      .Set("figures", std::move(figures))
      .Set("facts", std::move(facts))
      .Set("findings_gone", std::move(gone))
      .Set("findings_new", std::move(fresh));
}

std::string ComparisonText(const Comparison& comparison) {
  constexpr double kNoted = 0.02;
  constexpr size_t kAlways = 3;
  std::string text = fmt::format("{:<36}{:>14}{:>14}{:>10}\n", "", "A", "B", "change");
  for (size_t i = 0; i < comparison.figures.size(); ++i) {
    const Difference& one = comparison.figures[i];
    const auto change = one.change();
    if (i >= kAlways && change && std::abs(*change) < kNoted) continue;
    text += fmt::format("{:<36}{:>14}{:>14}{:>10}{}\n", one.name, FigureText(one.a, one.unit),
                        FigureText(one.b, one.unit),
                        change ? fmt::format("{:+.0f} %", *change * 100) : "new",
                        !change || std::abs(*change) < kNoted ? ""
                        : (*change > 0) == one.more_is_better ? "  better"
                                                              : "  worse");
  }
  for (const Comparison::Fact& fact : comparison.facts)
    text += fmt::format("{:<36}{:>14}{:>14}\n", fact.name, EscapeText(fact.a), EscapeText(fact.b));
  for (const std::string& name : comparison.findings_gone) text += "gone: " + name + "\n";
  for (const std::string& name : comparison.findings_new) text += "new: " + name + "\n";
  return text;
}

}  // namespace headrace::doctor
