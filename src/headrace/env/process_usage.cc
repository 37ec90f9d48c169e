#include "headrace/env/process_usage.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include "headrace/env/file.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {

std::string ReadText(const std::string& path) {
  auto text = PosixFileSystem()->ReadWhole(path, 16 << 10);
  return text.ok() ? *std::move(text) : std::string();
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return std::nullopt;
  uint64_t number = 0;
  auto parsed = std::from_chars(text.data() + first, text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

// The number behind a name at the start of a line.
std::optional<uint64_t> NumberOf(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(name)) return ParseNumber(line.substr(name.size()));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return std::nullopt;
}

// The second number of each thread's schedstat is its time on a run queue.
std::optional<double> RunDelaySeconds() {
  DIR* tasks = ::opendir("/proc/self/task");
  if (!tasks) return std::nullopt;
  uint64_t sum = 0;
  bool found = false;
  while (const dirent* task = ::readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::string text =
        ReadText(std::string("/proc/self/task/") + task->d_name + "/schedstat");
    const size_t space = text.find(' ');
    if (space == std::string::npos) continue;
    if (auto delay = ParseNumber(std::string_view(text).substr(space))) {
      sum += *delay;
      found = true;
    }
  }
  ::closedir(tasks);
  if (!found) return std::nullopt;
  return static_cast<double>(sum) * 1e-9;
}

// Control groups of version 2, then of version 1, as a container sees its own.
std::optional<double> ThrottledSeconds() {
  if (auto us = NumberOf(ReadText("/sys/fs/cgroup/cpu.stat"), "throttled_usec "))
    return static_cast<double>(*us) * 1e-6;
  if (auto ns = NumberOf(ReadText("/sys/fs/cgroup/cpu/cpu.stat"), "throttled_time "))
    return static_cast<double>(*ns) * 1e-9;
  return std::nullopt;
}

uint64_t ResidentBytes() {
  const std::string text = ReadText("/proc/self/statm");
  const size_t space = text.find(' ');
  if (space == std::string::npos) return 0;
  return ParseNumber(std::string_view(text).substr(space)).value_or(0) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  usage.cpu_seconds = ProcessCpuSeconds();
  usage.major_faults = static_cast<uint64_t>(used.ru_majflt);
  usage.preemptions = static_cast<uint64_t>(used.ru_nivcsw);
  usage.resident_bytes = ResidentBytes();
  usage.device_read_bytes = NumberOf(ReadText("/proc/self/io"), "read_bytes: ");
  usage.run_delay_seconds = RunDelaySeconds();
  usage.throttled_seconds = ThrottledSeconds();
  return usage;
}

}  // namespace headrace
