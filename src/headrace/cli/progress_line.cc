#include "headrace/cli/progress_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "headrace/base/bytes.h"
#include "headrace/base/text.h"
#include "headrace/env/console.h"

namespace headrace::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr std::chrono::seconds kPlainPeriod{10};
constexpr const char* kClearLine = "\r\x1b[K";

// What was done in a second: "25 MiB", or of what has no bytes "1,200 samples".
std::string RateText(const ProgressFigures& figures, double elapsed_seconds) {
  const bool by_bytes = figures.bytes != 0 || figures.total_bytes != 0;
  const auto done = static_cast<double>(by_bytes ? figures.bytes : figures.done);
  const auto rate = static_cast<uint64_t>(elapsed_seconds > 0 ? done / elapsed_seconds : 0);
  return by_bytes ? FormatSize(rate) : fmt::format("{} {}", FormatCount(rate), figures.unit);
}

}  // namespace

std::string ProgressText(const std::string& verb, const ProgressFigures& figures,
                         double elapsed_seconds) {
  const bool by_bytes = figures.total_bytes != 0;
  const uint64_t done = by_bytes ? figures.bytes : figures.done;
  const uint64_t total = by_bytes ? figures.total_bytes : figures.total;
  if (total == 0) return fmt::format("{}: looking at the source", verb);
  std::string amounts = figures.total == 0
                            ? fmt::format("{} of {}", FormatSize(done), FormatSize(total))
                            : fmt::format("{} of {} {}", FormatCount(figures.done),
                                          FormatCount(figures.total), figures.unit);
  std::string text = fmt::format("{} {:3} %  {}  {}/s", verb, std::min(done, total) * 100 / total,
                                 amounts, RateText(figures, elapsed_seconds));
  if (elapsed_seconds > 0 && done != 0 && done < total) {
    double left = elapsed_seconds * static_cast<double>(total - done) / static_cast<double>(done);
    auto seconds = std::max<int64_t>(1, std::llround(left));
    text += fmt::format("  {} left", FormatDuration(std::chrono::seconds(seconds)));
  }
  return text;
}

ProgressLine::ProgressLine(std::string verb, const Session& session,
                           std::function<ProgressFigures()> read)
    : verb_(std::move(verb)), read_(std::move(read)), terminal_(StderrIsTerminal()) {
  if (session.quiet || session.json) return;
  auto started = Thread::Start("hr-progress", [this] { Draw(); });
  if (started.ok()) thread_ = std::move(started).value();  // without a thread: no progress shown
}

ProgressLine::~ProgressLine() {
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  ended_changed_.NotifyAll();
}

void ProgressLine::Draw() {
  Clock::time_point start = Clock::now();
  MutexLock lock(&mu_);
  while (true) {
    Clock::time_point next = Clock::now() + (terminal_ ? Clock::duration(kTerminalPeriod)
                                                       : Clock::duration(kPlainPeriod));
    while (!ended_ && Clock::now() < next) ended_changed_.WaitFor(&mu_, next - Clock::now());
    if (ended_) break;
    double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    std::string text = ProgressText(verb_, read_(), elapsed);
    if (terminal_) {
      text = kClearLine + text.substr(0, static_cast<size_t>(StderrColumns() - 1));
    } else {
      text += "\n";
    }
    WriteStderr(AsBytes(text));
  }
  if (terminal_) WriteStderr(AsBytes(kClearLine));
}

}  // namespace headrace::cli
