#include "headrace/loader/live_settings.h"

#include <algorithm>
#include <array>
#include <string>

#include "headrace/base/text.h"
#include "headrace/loader/loader.h"

namespace headrace::loader {

namespace {

using S = LiveSetting;

constexpr std::array<LiveSettingInfo, kNumLiveSettings> kSettings = {{
    // Worker threads that may work.
    {S::kThreads, "threads", "threads", false, 1,
     [](const LoaderOptions& o) { return static_cast<uint64_t>(o.max_threads); }},
    // What is fetched before it is needed, and of fetches that are under way at once.
    {S::kPrefetchBytes, "prefetch_bytes", "bytes", true, 0,
     [](const LoaderOptions& o) { return o.cache.prefetch.ahead_bytes; }},
    {S::kPrefetchInFlight, "prefetch_in_flight", "bytes", true, 1,
     [](const LoaderOptions& o) { return o.cache.prefetch.in_flight_bytes; }},
    {S::kPrefetchRequests, "prefetch_requests", "requests", true, 1,
     [](const LoaderOptions& o) { return uint64_t{o.cache.prefetch.max_requests}; }},
}};

constexpr bool InOrder() {
  for (size_t i = 0; i < kSettings.size(); ++i)
    if (static_cast<size_t>(kSettings[i].setting) != i) return false;
  return true;
}
static_assert(InOrder(), "the table is in the order of the enumeration");

std::string Names(bool has_cache) {
  std::string names;
  for (const LiveSettingInfo& info : kSettings)
    if (has_cache || !info.of_cache) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

}  // namespace

std::span<const LiveSettingInfo> AllLiveSettings() { return kSettings; }

SettingValue BoundsOf(const LiveSettingInfo& info, const LoaderOptions& options, uint64_t value) {
  const uint64_t max = info.budget(options);
  return {std::string(info.name), value, std::min(info.min, max), max, std::string(info.unit)};
}

Result<LiveSetting> CheckLiveSetting(std::string_view name, uint64_t value,
                                     const LoaderOptions& options, bool has_cache) {
  const auto info = std::find_if(kSettings.begin(), kSettings.end(), [&](const auto& one) {
    return one.name == name && (has_cache || !one.of_cache);
  });
  if (info == kSettings.end())
    return Error(Code::kNotFound, "this loader has no setting '{}' that can be changed; it has: {}",
                 EscapeText(name), Names(has_cache));
  const SettingValue bounds = BoundsOf(*info, options, value);
  if (value < bounds.min || value > bounds.max)
    return Error(Code::kInvalidArgument,
                 "{}: expected {} to {}, found {}; the most is what the loader was given as {}",
                 info->name, bounds.min, bounds.max, value,
                 info->setting == LiveSetting::kThreads ? "max_threads" : info->name);
  return info->setting;
}

}  // namespace headrace::loader
