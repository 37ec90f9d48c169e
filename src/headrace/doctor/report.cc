#include "headrace/doctor/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/check.h"
#include "headrace/doctor/svg_plot.h"

namespace headrace::doctor {
namespace {

constexpr const char* kStyle = R"(<style>
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#5b6570;--line:#d9dee3;--card:#f6f8fa;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#56b4e9;--c5:#e69f00;--c6:#7a7f85;--c7:#8c6d1f}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6e9ec;--soft:#9aa4ae;--line:#333b44;
--card:#1c222a;--c0:#4aa3df;--c1:#f08040;--c2:#35c797;--c3:#e39cc4;--c4:#8fd0f5;--c5:#f2b94a;--c6:#a0a6ad;--c7:#c9a24a}}
*{box-sizing:border-box}body{margin:0 auto;max-width:60rem;padding:1.5rem;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .6rem}p,td,li{overflow-wrap:anywhere}.soft{color:var(--soft)}
.tiles{display:flex;flex-wrap:wrap;gap:.8rem;padding:0;list-style:none}.tiles li{flex:1 1 8rem;background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:.6rem .8rem}.tiles b{display:block;font-size:1.35rem}
article{border:1px solid var(--line);border-left:5px solid var(--c5);border-radius:8px;padding:.6rem 1rem;margin:.8rem 0;background:var(--card)}
article.problem{border-left-color:var(--c1)}article h3{margin:.2rem 0;font-size:1rem}code{background:var(--paper);
border:1px solid var(--line);border-radius:4px;padding:.05rem .3rem;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{text-align:right;padding:.25rem .5rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}.wide{overflow-x:auto}figure{margin:1rem 0}figcaption{font-weight:600}
svg{width:100%;height:auto}.grid{stroke:var(--line);stroke-width:1}.tick{fill:var(--soft);font-size:11px}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1rem;list-style:none;padding:0;margin:.2rem 0;font-size:.85rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.35rem}
@media print{body{max-width:none}}
</style>)";

std::string Percent(double share) { return fmt::format("{:.1f} %", share * 100); }

// Windows of one rank gathered into so many stretches of equal length.
struct Timeline {
  double from_s = 0, to_s = 0;
  std::vector<Window> points;
};

Timeline Gather(const RankRun& rank, double from_s, double to_s, size_t points) {
  Timeline line{from_s, to_s, std::vector<Window>(points)};
  const double length = std::max(to_s - from_s, 1e-9);
  for (const Window& window : rank.windows) {
    const double middle = window.start_s + window.seconds / 2;
    const auto at = static_cast<int64_t>((middle - from_s) / length * static_cast<double>(points));
    if (at < 0) continue;
    line.points[std::min(static_cast<size_t>(at), points - 1)].Add(window);
  }
  return line;
}

template <typename Value>
Series SeriesOf(std::string name, const Timeline& line, const Value& value) {
  Series series{std::move(name), {}};
  for (const Window& point : line.points)
    series.values.push_back(point.seconds > 0 ? value(point)
                                              : std::numeric_limits<double>::quiet_NaN());
  return series;
}

std::string Tile(std::string_view name, const std::string& value) {
  return fmt::format("<li>{}<b>{}</b></li>", HtmlText(name), HtmlText(value));
}

std::string Tiles(const Diagnosis& d) {
  std::string html = "<ul class='tiles'>";
  html += Tile("samples a second, each rank", fmt::format("{:.0f}", d.samples_per_s));
  html += Tile("input stall", Percent(d.input_stall));
  html += Tile("save stall", Percent(d.save_stall));
  html += Tile("accelerator use (AU)", Percent(d.accelerator_use));
  if (!d.limit.empty()) html += Tile("limited by", d.limit);
  return html + "</ul>\n";
}

std::string FindingHtml(const Finding& finding) {
  std::string html = fmt::format("<article class='{}'><h3>{}: {}</h3><p>{}</p><ul>",
                                 SeverityName(finding.severity), HtmlText(finding.check),
                                 HtmlText(finding.symptom), HtmlText(finding.cause));
  for (const Evidence& one : finding.evidence)
    html += "<li>" + HtmlText(EvidenceText(one)) + "</li>";
  html += "</ul><p><b>Cure:</b> " + HtmlText(finding.cure) + ".";
  if (!finding.command.empty()) html += " <code>" + HtmlText(finding.command) + "</code>";
  return html + fmt::format(
                    "</p><p class='soft'>Predicted gain: {}. Confidence {:.0f} %. What would "
                    "disprove it: {}.</p></article>\n",
                    HtmlText(GainText(finding)), finding.confidence * 100,
                    HtmlText(finding.disproof));
}

std::string Findings(const Diagnosis& diagnosis) {
  std::string html = "<h2>What holds it back</h2>\n";
  if (!diagnosis.has_samples)
    return html + "<p>The record has no stretch in which batches were delivered.</p>\n";
  if (diagnosis.findings.empty()) return html + "<p>Nothing was found.</p>\n";
  for (const Finding& finding : diagnosis.findings) html += FindingHtml(finding);
  return html;
}

std::string Plots(const JobRun& run) {
  constexpr size_t kMostPoints = 240;
  double from = HUGE_VAL, to = 0;
  size_t points = 1;
  for (const RankRun& rank : run.ranks) {
    for (const Window& window : rank.windows) {
      from = std::min(from, window.start_s);
      to = std::max(to, window.start_s + window.seconds);
    }
    points = std::max(points, std::min(rank.windows.size(), kMostPoints));
  }
  if (!(to > from)) return "";
  std::vector<Series> speed, stall;
  std::vector<Timeline> lines;
  for (const RankRun& rank : run.ranks) {
    lines.push_back(Gather(rank, from, to, points));
    const std::string name = fmt::format("rank {}", rank.rank);
    speed.push_back(
        SeriesOf(name, lines.back(), [](const Window& w) { return w.samples_per_s(); }));
    stall.push_back(SeriesOf(name, lines.back(), [](const Window& w) { return w.input_stall(); }));
  }
  std::string html = "<h2>Over time</h2>\n";
  html += LinePlot({"Samples delivered", "samples a second", from, to}, speed);
  auto share = [&](const char* name, double Window::* field) {
    return SeriesOf(name, lines.front(), [field](const Window& w) { return w.*field / w.seconds; });
  };
  const std::string first = fmt::format("rank {}", run.ranks.front().rank);
  html += StackPlot(
      {"Where the training loop's time went, " + first, "%", from, to},
      {share("computing", &Window::step_s), share("waiting for input", &Window::input_wait_s),
       share("Python transforms", &Window::python_s), share("saving", &Window::save_stall_s)});
  std::vector<Series> stages;
  for (Stage stage : {Stage::kMeta, Stage::kFetch, Stage::kCache, Stage::kRead, Stage::kChecksum,
                      Stage::kDecode, Stage::kTransform, Stage::kCollate}) {
    Series series =
        SeriesOf(std::string(StageName(stage)), lines.front(), [stage](const Window& w) {
          return w.threads > 0 ? w.busy_s(stage) / (w.seconds * w.threads) : 0;
        });
    const bool used = std::any_of(series.values.begin(), series.values.end(),
                                  [](double value) { return value > 0; });
    if (used) stages.push_back(std::move(series));
  }
  html += StackPlot({"Where the workers' time went, " + first, "%", from, to}, stages);
  if (run.ranks.size() > 1)
    html += HeatMap({"Input stall of each rank (darker is more)", "%", from, to}, stall);
  return html;
}

std::string Stages(const RankView& view) {
  std::string html =
      "<h2>Stages</h2>\n<div class='wide'><table><tr><th>stage</th><th>items</th><th>busy</th>"
      "<th>mean</th><th>99 % below</th><th>bytes</th></tr>";
  for (size_t i = 0; i < kNumStages; ++i) {
    const StageTotals& stage = view.whole.stages[i];
    if (stage.count == 0) continue;
    auto duration = [](double ns) {
      constexpr double kMost = 9e18;
      return FormatDuration(std::chrono::nanoseconds(static_cast<int64_t>(std::min(ns, kMost))));
    };
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                    StageName(static_cast<Stage>(i)), FormatCount(stage.count),
                    duration(static_cast<double>(stage.busy_ns)),
                    duration(static_cast<double>(stage.busy_ns) / static_cast<double>(stage.count)),
                    duration(static_cast<double>(stage.Percentile(0.99))), FormatSize(stage.bytes));
  }
  return html + "</table></div>\n";
}

std::string WhatIf(const RankView& view) {
  if (!view.model.usable()) return "";
  std::string html =
      "<h2>What if</h2>\n<p class='soft'>Samples a second that the stage model predicts with a "
      "part "
      "taken away.</p><div class='wide'><table><tr><th>without</th><th>samples a second</th>"
      "<th>change</th></tr>";
  const double now = view.model.observed();
  html += fmt::format("<tr><td>nothing (as it ran)</td><td>{:.0f}</td><td></td></tr>", now);
  for (const char* name : {"decode", "network", "disk", "meta", "python", "saves"}) {
    auto part = ParsePart(name);
    if (!part.ok() || view.model.part_s(*part) <= 0) continue;
    const double without = view.model.Without(*part);
    html += fmt::format("<tr><td>{}</td><td>{:.0f}</td><td>{:+.0f} %</td></tr>", name, without,
                        (without / std::max(now, 1e-9) - 1) * 100);
  }
  return html + "</table></div>\n";
}

std::string Facts(const JobRun& run) {
  const RankRun& rank = run.ranks.front();
  std::string html = "<h2>Job and machine</h2>\n<div class='wide'><table>";
  auto row = [&html](const char* name, const std::string& value) {
    if (!value.empty())
      html += fmt::format("<tr><td>{}</td><td>{}</td></tr>", name, HtmlText(value));
  };
  auto size = [](uint64_t bytes) { return bytes > 0 ? FormatSize(bytes) : std::string(); };
  row("data set", run.dataset.name);
  row("samples", run.dataset.num_samples > 0 ? FormatCount(run.dataset.num_samples) : "");
  row("shards", run.dataset.num_shards > 0 ? FormatCount(run.dataset.num_shards) : "");
  row("bytes", size(run.dataset.bytes));
  row("ranks in the record", FormatCount(run.ranks.size()));
  row("world size", FormatCount(rank.job.world_size));
  row("threads", rank.windows.empty() ? "" : FormatCount(rank.windows.back().threads));
  row("processors", rank.machine.cpus > 0 ? fmt::format("{:.3g}", rank.machine.cpus) : "");
  row("memory", size(rank.machine.memory_bytes));
  row("cache limit", size(rank.job.cache_limit_bytes));
  return html + "</table></div>\n";
}

std::string Log(const RunRecord& record) {
  constexpr size_t kMostLines = 500;
  if (record.log.empty() && record.faults.empty()) return "";
  std::string html = "<h2>Log</h2>\n<ul>";
  const size_t first = record.log.size() > kMostLines ? record.log.size() - kMostLines : 0;
  for (size_t i = first; i < record.log.size(); ++i) {
    const LogLine& line = record.log[i];
    const double at =
        (static_cast<double>(line.unix_ns) - static_cast<double>(record.begin_unix_ns)) * 1e-9;
    html += fmt::format("<li>{:.1f} s, rank {}, {}: {}</li>", at, line.rank, HtmlText(line.level),
                        HtmlText(line.text));
  }
  for (const std::string& fault : record.faults)
    html += "<li class='soft'>A line of the record could not be read: " + HtmlText(fault) + "</li>";
  return html + "</ul>\n";
}

}  // namespace

std::string ReportHtml(const RunRecord& record, const Diagnosis& diagnosis) {
  const JobRun& run = record.run;
  const std::string name = HtmlText(run.name.empty() ? "run" : run.name);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width,initial-scale=1'><meta http-equiv='Content-Security-Policy' "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>{} - Headrace run</title>\n"
      "{}\n</head><body>\n<p class='soft'>Headrace run report</p><h1>{}</h1>\n",
      name, kStyle, name);
  html += Tiles(diagnosis);
  html += Findings(diagnosis);
  if (!run.ranks.empty()) html += Plots(run);
  const Case c(run);
  if (!c.ranks().empty()) html += Stages(c.typical()) + WhatIf(c.typical());
  if (!run.ranks.empty()) html += Facts(run);
  return html + Log(record) + "</body></html>\n";
}

}  // namespace headrace::doctor
