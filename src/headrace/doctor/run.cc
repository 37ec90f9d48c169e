#include "headrace/doctor/run.h"

#include <algorithm>

namespace headrace::doctor {

void Window::Add(const Window& other) {
  start_s = seconds == 0 ? other.start_s : std::min(start_s, other.start_s);
  seconds += other.seconds;
  threads = std::max(threads, other.threads);
  samples += other.samples;
  batches += other.batches;
  for (size_t i = 0; i < kNumStages; ++i) stages[i].Add(other.stages[i]);
  input_wait_s += other.input_wait_s;
  step_s += other.step_s;
  python_s += other.python_s;
  save_stall_s += other.save_stall_s;
  saving_s += other.saving_s;
  cpu_s += other.cpu_s;
  run_delay_s += other.run_delay_s;
  throttled_s += other.throttled_s;
  origin_bytes += other.origin_bytes;
  cache_hit_bytes += other.cache_hit_bytes;
  device_bytes += other.device_bytes;
  knows_device = knows_device || other.knows_device;
  requests += other.requests;
  refused_requests += other.refused_requests;
  back_off_s += other.back_off_s;
  wall_clock_ns = std::max(wall_clock_ns, other.wall_clock_ns);
  for (const SourceTotals& source : other.sources) {
    auto same = std::find_if(sources.begin(), sources.end(),
                             [&](const SourceTotals& s) { return s.name == source.name; });
    if (same == sources.end()) {
      sources.push_back(source);
      continue;
    }
    same->reads += source.reads;
    same->bytes += source.bytes;
    same->seconds += source.seconds;
  }
}

std::vector<Window> SteadyWindows(const std::vector<Window>& windows) {
  constexpr size_t kTooFew = 4;
  auto first = std::find_if(windows.begin(), windows.end(),
                            [](const Window& window) { return window.batches > 0; });
  if (windows.size() < kTooFew || windows.end() - first < 2) return windows;
  return {first + 1, windows.end()};
}

Window SteadyTotal(const std::vector<Window>& windows) {
  Window total;
  for (const Window& window : SteadyWindows(windows)) total.Add(window);
  return total;
}

}  // namespace headrace::doctor
