// The settings of a loader that may change while it runs. Each is declared once, in
// live_settings.cc, with the budget that the loader's options give it: nobody, a user, the doctor
// or the auto-tune, takes it beyond. No change moves a sample, a byte of it, or where the run
// stands. Pure functions and constant data: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/process_snapshot.h"
#include "headrace/base/status.h"

namespace headrace::loader {

struct LoaderOptions;

// In the order of the table in live_settings.cc.
enum class LiveSetting : uint8_t {
  kThreads,
  kPrefetchBytes,
  kPrefetchInFlight,
  kPrefetchRequests,
};
inline constexpr size_t kNumLiveSettings = static_cast<size_t>(LiveSetting::kPrefetchRequests) + 1;

struct LiveSettingInfo {
  LiveSetting setting;
  std::string_view name;  // as in the options of the Python Loader
  std::string_view unit;
  bool of_cache;  // only a loader whose shards are read through a cache has it
  uint64_t min;
  uint64_t (*budget)(const LoaderOptions& options);  // the most that the user has allowed
};
std::span<const LiveSettingInfo> AllLiveSettings();

// The setting as a snapshot shows it, with its bounds under `options`.
SettingValue BoundsOf(const LiveSettingInfo& info, const LoaderOptions& options, uint64_t value);

// The setting of this name, if it may be set to `value`.
//   kNotFound         a loader with such options has none of that name; says which it has.
//   kInvalidArgument  `value` is outside its bounds; says them and which option gives them.
Result<LiveSetting> CheckLiveSetting(std::string_view name, uint64_t value,
                                     const LoaderOptions& options, bool has_cache);

}  // namespace headrace::loader
