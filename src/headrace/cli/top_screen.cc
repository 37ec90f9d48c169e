#include "headrace/cli/top_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::cli {

namespace {

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string Percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string Rate(double count, double seconds) {
  if (seconds <= 0) return "-";
  const double rate = count / seconds;
  return rate < 100 ? fmt::format("{:.1f}", rate)
                    : FormatCount(static_cast<uint64_t>(std::llround(rate)));
}

// 1.2 us, 35 ms, 2.1 s.
std::string Time(uint64_t ns) {
  if (ns == 0) return "-";
  constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  auto value = static_cast<double>(ns);
  size_t unit = 0;
  while (value >= 1000 && unit < 3) {
    value /= 1000;
    ++unit;
  }
  return value < 10 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                    : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

// In characters, not bytes: a letter of more than one byte is one.
std::string Cut(const std::string& line, int columns) {
  if (columns <= 0) return line;
  int seen = 0;
  size_t at = 0;
  for (; at < line.size(); ++at) {
    if ((static_cast<unsigned char>(line[at]) & 0xc0) == 0x80) continue;
    if (seen++ == columns) break;
  }
  return line.substr(0, at);
}

std::string ProcessLine(const TopProcess& process, bool selected) {
  const ProcessSnapshot& now = process.recent;
  const double seconds = Seconds(now.window_ns);
  const std::optional<double> mfu = now.Mfu();
  const PoolSnapshot* workers = now.FindPool("loader");
  return fmt::format("{} {:<16} {:>5} {:>8} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6} {}",
                     selected ? ">" : " ",
                     EscapeText(now.job.empty() ? "-" : now.job).substr(0, 16),
                     fmt::format("{}/{}", now.rank, now.world_size), now.pid,
                     Rate(static_cast<double>(now.batches), seconds),
                     Rate(now.Value(Metric::kLoaderSamples), seconds), Percent(now.InputStall()),
                     Percent(now.SaveStall()), Percent(now.Au()), mfu ? Percent(*mfu) : "-",
                     workers ? workers->threads : 0,
                     Percent(seconds > 0 ? now.Value(Metric::kProcessCpuSeconds) / seconds : 0),
                     BusiestStage(now));
}

std::string StageLine(const ProcessSnapshot& now, const StageSnapshot& stage) {
  const PoolSnapshot* pool = now.FindPool(stage.pool);
  const double seconds = Seconds(now.window_ns);
  const uint64_t life = pool ? pool->thread_ns : 0;
  auto share = [&](uint64_t ns) {
    return life == 0 ? std::string("-")
                     : Percent(static_cast<double>(ns) / static_cast<double>(life));
  };
  // Of requests: how many ran at once.
  const std::string busy = life == 0 && seconds > 0
                               ? fmt::format("x {:.1f}", Seconds(stage.busy_ns) / seconds)
                               : share(stage.busy_ns);
  return fmt::format(
      "  {:<10} {:<10} {:>8} {:>8} {:>8} {:>9} {:>10} {:>8} {:>8} {:>8}", EscapeText(stage.pool),
      EscapeText(stage.name), busy, share(stage.wait_ns), share(now.IdleNs(stage)),
      Rate(static_cast<double>(stage.count), seconds),
      seconds > 0 ? FormatSize(static_cast<uint64_t>(static_cast<double>(stage.bytes) / seconds))
                  : "-",
      Time(stage.durations.Percentile(0.5)), Time(stage.durations.Percentile(0.99)),
      Time(stage.waits.Percentile(0.99)));
}

// "threads 4 (1 to 8)   prefetch_bytes 1.0 GiB (0 B to 1.0 GiB)".
std::string SettingsLine(const ProcessSnapshot& now) {
  std::string line;
  for (const SettingValue& setting : now.settings) {
    auto text = [&](uint64_t value) {
      return setting.unit == "bytes" ? FormatSize(value) : std::to_string(value);
    };
    line += fmt::format("   {} {} ({} to {})", EscapeText(setting.name), text(setting.value),
                        text(setting.min), text(setting.max));
  }
  return line;
}

// What was changed last, newest first: a few lines of it.
std::vector<std::string> ChangeLines(const ProcessSnapshot& total) {
  constexpr size_t kMost = 3;
  std::vector<std::string> lines;
  for (auto one = total.changes.rbegin(); one != total.changes.rend(); ++one) {
    if (lines.size() == kMost) break;
    const int64_t ago_s = std::max<int64_t>(total.end_unix_ns - one->unix_ns, 0) / 1'000'000'000;
    lines.push_back(fmt::format("  changed {} ago: {}", FormatDuration(std::chrono::seconds(ago_s)),
                                ChangeText(*one)));
  }
  return lines;
}

}  // namespace

std::string BusiestStage(const ProcessSnapshot& snapshot) {
  const StageSnapshot* busiest = snapshot.BusiestStage("loader");
  return busiest ? EscapeText(busiest->name) : "";
}

std::vector<std::string> TopLines(const std::vector<TopProcess>& processes, size_t selected,
                                  int columns, int rows) {
  std::vector<std::string> lines;
  const std::string host = processes.empty() ? "" : "  " + EscapeText(processes[0].total.host);
  lines.push_back(fmt::format("headrace top{}  {} process{}   q quit, up and down select", host,
                              processes.size(), processes.size() == 1 ? "" : "es"));
  lines.push_back(
      fmt::format("  {:<16} {:>5} {:>8} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>7} {:>6} {}", "job",
                  "rank", "pid", "batches/s", "samples/s", "input st", "save st", "AU", "MFU",
                  "threads", "CPU", "busiest"));
  for (size_t i = 0; i < processes.size(); ++i)
    lines.push_back(ProcessLine(processes[i], i == selected));
  if (selected < processes.size()) {
    const ProcessSnapshot& now = processes[selected].recent;
    lines.emplace_back();
    lines.push_back(fmt::format("process {}, {}", now.pid, EscapeText(now.dataset)));
    lines.push_back(fmt::format("  {:<10} {:<10} {:>8} {:>8} {:>8} {:>9} {:>10} {:>8} {:>8} {:>8}",
                                "pool", "stage", "busy", "wait", "idle", "items/s", "bytes/s",
                                "p50", "p99", "wait p99"));
    for (const StageSnapshot& stage : now.stages) lines.push_back(StageLine(now, stage));
    if (!now.settings.empty()) lines.push_back("  settings" + SettingsLine(now));
    for (std::string& line : ChangeLines(processes[selected].total))
      lines.push_back(std::move(line));
  }
  if (rows > 0 && lines.size() > static_cast<size_t>(rows)) lines.resize(static_cast<size_t>(rows));
  for (std::string& line : lines) line = Cut(line, columns);
  return lines;
}

}  // namespace headrace::cli
