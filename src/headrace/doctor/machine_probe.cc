#include "headrace/doctor/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>

#include "headrace/base/bytes.h"
#include "headrace/base/keyed_random.h"
#include "headrace/base/mutex.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/text.h"
#include "headrace/env/process.h"

namespace headrace::doctor {
namespace {

// The text of a file of the kernel, without the line end; empty when it cannot be read.
std::string KernelText(FileSystem* fs, const std::string& path) {
  constexpr uint64_t kMost = 1 << 20;
  auto text = fs->ReadWhole(path, kMost);
  return text.ok() ? std::string(
                         Trim(std::string_view(*text).substr(0, text->find_last_not_of('\n') + 1)))
                   : "";
}

template <typename T>
std::optional<T> Number(std::string_view text) {
  text = Trim(text);
  T value{};
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<uint64_t> KernelNumber(FileSystem* fs, const std::string& path) {
  return Number<uint64_t>(KernelText(fs, path));
}

// What stands behind "name" at the beginning of a line, up to the line's end.
std::string_view LineAfter(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name)) return Trim(line.substr(name.size()));
    at = end + 1;
  }
  return {};
}

// "0-3,8" is five processors.
std::optional<double> CountList(std::string_view list) {
  double count = 0;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const size_t dash = part.find('-');
    auto first = Number<uint32_t>(part.substr(0, dash));
    auto last = dash == std::string_view::npos ? first : Number<uint32_t>(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    count += *last - *first + 1;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

// As a container sees its own group, in versions 2 and 1.
std::optional<double> QuotaCpus(FileSystem* fs) {
  const std::string both = KernelText(fs, "/sys/fs/cgroup/cpu.max");
  const size_t space = both.find(' ');
  std::optional<double> quota, period;
  if (space != std::string::npos) {
    quota = Number<double>(both.substr(0, space));  // "max": none
    period = Number<double>(both.substr(space + 1));
  } else {
    quota = Number<double>(KernelText(fs, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
    period = Number<double>(KernelText(fs, "/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

uint64_t MemoryBytes(FileSystem* fs) {
  const std::string memory = KernelText(fs, "/proc/meminfo");
  uint64_t bytes = Number<uint64_t>(LineAfter(memory, "MemTotal:")).value_or(0) << 10;
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (auto limit = KernelNumber(fs, path); limit && *limit > 0)
      bytes = bytes == 0 ? *limit : std::min(bytes, *limit);
  return bytes;
}

// The quickest link that is up, in bytes per second; 0 when none tells.
double NetworkRate(FileSystem* fs) {
  constexpr double kBytesOfMegabit = 1e6 / 8;
  double most = 0;
  auto entries = fs->List("/sys/class/net");
  if (!entries.ok()) return 0;
  for (const DirectoryEntry& entry : *entries) {
    const std::string folder = JoinPath("/sys/class/net", entry.name);
    if (KernelText(fs, JoinPath(folder, "operstate")) != "up") continue;
    // -1 where the driver does not know, as of virtual ones.
    auto megabits = Number<int64_t>(KernelText(fs, JoinPath(folder, "speed")));
    if (megabits && *megabits > 0)
      most = std::max(most, static_cast<double>(*megabits) * kBytesOfMegabit);
  }
  return most;
}

// A virtual machine does not know whose threads its processors are.
bool SharesCores(FileSystem* fs) {
  if (KernelText(fs, "/sys/devices/system/cpu/smt/active") == "1") return true;
  const std::string flags(LineAfter(KernelText(fs, "/proc/cpuinfo"), "flags"));
  return (flags + " ").find(" hypervisor ") != std::string::npos;
}

void ReadFrequency(FileSystem* fs, MachineState* state) {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cpufreq/";
  constexpr double kKilohertz = 1e-3;
  if (auto now = KernelNumber(fs, folder + "scaling_cur_freq"))
    state->facts.mhz = static_cast<double>(*now) * kKilohertz;
  if (auto most = KernelNumber(fs, folder + "cpuinfo_max_freq"))
    state->facts.max_mhz = static_cast<double>(*most) * kKilohertz;
  state->governor = KernelText(fs, folder + "scaling_governor");
}

// One thread's part of a measurement.
class DiskReader {
 public:
  static constexpr size_t kPiece = 1 << 20;

  DiskReader(std::vector<std::unique_ptr<RandomAccessFile>>* files, uint64_t key)
      : files_(files), draws_(key), buffer_(kPiece + kDirectAlignment) {}

  // Reads a piece at a drawn place. Returns its bytes.
  Result<uint64_t> ReadOne(size_t bytes, const Context& ctx) {
    const RandomAccessFile& file = *(*files_)[draws_.NextBelow(files_->size())];
    const uint64_t places = std::max<uint64_t>(file.size() / kDirectAlignment, 1);
    const uint64_t offset = draws_.NextBelow(places) * kDirectAlignment;
    if (buffer_.data() == nullptr)
      return Status(Code::kResourceExhausted, "no memory for 1 MiB to read into");
    // Aligned for reads around the page cache.
    HR_ASSIGN_OR_RETURN(size_t read, file.ReadSome(offset, {Aligned(), bytes}, ctx));
    return read;
  }

 private:
  std::byte* Aligned() {
    auto address = reinterpret_cast<uintptr_t>(buffer_.data());
    return buffer_.data() + (kDirectAlignment - address % kDirectAlignment) % kDirectAlignment;
  }

  std::vector<std::unique_ptr<RandomAccessFile>>* const files_;  // not owned
  KeyedRandom draws_;
  AlignedBuffer buffer_;
};

}  // namespace

MachineState ReadMachine(FileSystem* fs) {
  MachineState state;
  const std::string status = KernelText(fs, "/proc/self/status");
  state.affinity_cpus = CountList(LineAfter(status, "Cpus_allowed_list:"));
  state.quota_cpus = QuotaCpus(fs);
  state.facts.cpus = state.affinity_cpus.value_or(0);
  if (state.quota_cpus && (state.facts.cpus == 0 || *state.quota_cpus < state.facts.cpus))
    state.facts.cpus = *state.quota_cpus;
  state.facts.memory_bytes = MemoryBytes(fs);
  state.facts.network_bytes_per_s = NetworkRate(fs);
  state.facts.clock_source =
      KernelText(fs, "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  ReadFrequency(fs, &state);
  state.facts.shares_cores = SharesCores(fs);
  if (fs->Exists("/dev/shm"))
    if (auto free = fs->FreeBytes("/dev/shm"); free.ok()) state.shm_bytes = *free;
  const std::string limits = KernelText(fs, "/proc/self/limits");
  state.open_files = Number<uint64_t>(LineAfter(limits, "Max open files"));
  state.map_count = KernelNumber(fs, "/proc/sys/vm/max_map_count");
  state.io_uring_disabled = KernelNumber(fs, "/proc/sys/kernel/io_uring_disabled");
  // "4096 131072 6291456": least, at first, most.
  const std::string buffers = KernelText(fs, "/proc/sys/net/ipv4/tcp_rmem");
  const size_t last = buffers.find_last_of(" \t");
  if (last != std::string::npos)
    state.receive_buffer_bytes = Number<uint64_t>(buffers.substr(last + 1));
  return state;
}

Result<DiskSpeed> MeasureDisk(FileSystem* fs, const std::vector<std::string>& files, double seconds,
                              const Context& ctx) {
  constexpr int kThreads = 4;        // a disk gives its best to several readers at once
  constexpr size_t kMostFiles = 64;  // held open
  constexpr uint64_t kLeastBytes = 64 << 10;
  constexpr double kSmallPart = 0.2;  // of the time
  std::vector<std::unique_ptr<RandomAccessFile>> open;
  for (const std::string& path : files) {
    if (open.size() == kMostFiles) break;
    HR_ASSIGN_OR_RETURN(auto file, fs->OpenDirect(path));
    if (file->size() >= kLeastBytes) open.push_back(std::move(file));
  }
  if (open.empty())
    return Error(Code::kNotFound, "there is no file of at least {} to measure reads with",
                 FormatSize(kLeastBytes));
  DiskSpeed speed;
  const uint64_t begin = NowNanos();
  auto elapsed = [begin] { return static_cast<double>(NowNanos() - begin) * 1e-9; };
  uint64_t small = 0;
  for (DiskReader reader(&open, 1); elapsed() < seconds * kSmallPart || small == 0; ++small) {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(reader.ReadOne(kDirectAlignment, ctx).status());
  }
  speed.small_read_s = elapsed() / static_cast<double>(small);
  const double from = elapsed();
  std::atomic<uint64_t> bytes{0};
  Mutex mu;
  Status failed;
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < kThreads; ++i) {
      HR_ASSIGN_OR_RETURN(auto thread, Thread::Start("hr-probe", [&, i] {
                            DiskReader reader(&open, static_cast<uint64_t>(i) + 2);
                            do {
                              auto read = reader.ReadOne(DiskReader::kPiece, ctx);
                              if (!read.ok()) {
                                MutexLock lock(&mu);
                                failed = read.status();
                                return;
                              }
                              bytes += *read;
                            } while (elapsed() < seconds && ctx.Check().ok());
                          }));
      threads.push_back(std::move(thread));
    }
  }
  HR_RETURN_IF_ERROR(failed);
  HR_RETURN_IF_ERROR(ctx.Check());
  speed.bytes = bytes;
  speed.bytes_per_s = static_cast<double>(speed.bytes) / std::max(elapsed() - from, 1e-6);
  return speed;
}

}  // namespace headrace::doctor
