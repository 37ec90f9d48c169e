#include <fmt/format.h>

#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/loader/plan/batch_plan.h"

namespace headrace::loader {
namespace {

constexpr std::string_view kFormat = "headrace-loader-state";

Result<uint64_t> GetWithin(const Json& json, std::string_view name, uint64_t min, uint64_t max) {
  HR_ASSIGN_OR_RETURN(const uint64_t value, json.GetUint(name));
  if (value < min || value > max) {
    return Error(Code::kInvalidArgument, "{}: expected {} to {}, found {}", name, min, max, value);
  }
  return value;
}

Result<bool> GetBool(const Json& json, std::string_view name) {
  const Json* value = json.Find(name);
  if (value == nullptr || !value->is_bool()) {
    return Error(Code::kInvalidArgument, "{}: expected true or false, found {}", name,
                 value == nullptr ? "nothing" : value->Dump());
  }
  return value->AsBool();
}

// The text is a state of a version that this program knows.
Status CheckHeader(const Json& json) {
  if (!json.is_object() || json.Find("format") == nullptr ||
      json.Find("format")->AsString() != kFormat) {
    return Error(Code::kInvalidArgument, "expected an object with \"format\": \"{}\", found {}",
                 kFormat, json.Dump().substr(0, 80));
  }
  HR_ASSIGN_OR_RETURN(const uint64_t version, json.GetUint("version"));
  if (version > LoaderState::kVersion) {
    return Error(Code::kFailedPrecondition,
                 "the state has version {}, and this program reads up to {}: use the Headrace that "
                 "wrote it or a newer one",
                 version, LoaderState::kVersion);
  }
  if (version == 0) return Error(Code::kInvalidArgument, "version: expected 1, found 0");
  return OkStatus();
}

Result<LoaderState> ReadMembers(const Json& json) {
  LoaderState state;
  HR_RETURN_IF_ERROR(CheckHeader(json));
  HR_ASSIGN_OR_RETURN(state.dataset_version, json.GetString("dataset_version"));
  if (state.dataset_version.empty()) {
    return Error(Code::kInvalidArgument, "dataset_version: expected a text, found an empty one");
  }
  HR_ASSIGN_OR_RETURN(state.seed, json.GetUint("seed"));
  HR_ASSIGN_OR_RETURN(state.epoch, json.GetUint("epoch"));
  HR_ASSIGN_OR_RETURN(state.next_position, GetWithin(json, "next_position", 0, kMaxSamples));
  HR_ASSIGN_OR_RETURN(state.global_batch,
                      GetWithin(json, "global_batch", 1, BatchPlan::kMaxGlobalBatch));
  HR_ASSIGN_OR_RETURN(state.shuffle, GetBool(json, "shuffle"));
  HR_ASSIGN_OR_RETURN(state.lanes, GetWithin(json, "lanes", 1, UINT32_MAX));
  HR_ASSIGN_OR_RETURN(state.window_shards, GetWithin(json, "window_shards", 1, UINT32_MAX));
  HR_ASSIGN_OR_RETURN(const std::string tail, json.GetString("tail"));
  HR_ASSIGN_OR_RETURN(state.tail, ParseTail(tail));
  if (state.next_position % state.global_batch != 0) {
    return Error(Code::kInvalidArgument,
                 "next_position: expected a multiple of global_batch ({}), found {}",
                 state.global_batch, state.next_position);
  }
  return state;
}

// Collects "name is A in the state and B here".
class Differences {
 public:
  template <typename T>
  void Compare(std::string_view name, const T& then, const T& now) {
    if (then != now)
      found_.push_back(fmt::format("{} is {} in the state and {} here", name, then, now));
  }
  bool empty() const { return found_.empty(); }
  std::string Join() const { return fmt::format("{}", fmt::join(found_, "; ")); }

 private:
  std::vector<std::string> found_;
};

}  // namespace

std::string LoaderState::ToJson() const {
  Json json;
  json.Set("format", kFormat).Set("version", kVersion);
  json.Set("dataset_version", dataset_version).Set("seed", seed).Set("epoch", epoch);
  json.Set("next_position", next_position).Set("global_batch", global_batch);
  json.Set("shuffle", shuffle).Set("lanes", lanes).Set("window_shards", window_shards);
  json.Set("tail", TailName(tail));
  return json.Dump();
}

Result<LoaderState> LoaderState::FromJson(std::string_view json) {
  auto parsed = Json::Parse(json);
  if (!parsed.ok()) return std::move(parsed).status().Prefix("reading the loader state");
  auto state = ReadMembers(*parsed);
  if (!state.ok()) return std::move(state).status().Prefix("reading the loader state");
  return state;
}

Status LoaderState::CheckFits(const LoaderState& here) const {
  Differences differences;
  differences.Compare("the dataset version", EscapeText(dataset_version),
                      EscapeText(here.dataset_version));
  differences.Compare("seed", seed, here.seed);
  differences.Compare("shuffle", shuffle, here.shuffle);
  if (shuffle && here.shuffle) {
    differences.Compare("lanes", lanes, here.lanes);
    differences.Compare("window_shards", window_shards, here.window_shards);
  }
  differences.Compare("tail", TailName(tail), TailName(here.tail));
  if (!differences.empty()) {
    return Error(Code::kFailedPrecondition,
                 "the run cannot go on from this state, since the order of its samples is another: "
                 "{}. Use the state's values, or start anew without the state",
                 differences.Join());
  }
  if (here.global_batch == 0 || next_position % here.global_batch != 0) {
    return Error(
        Code::kFailedPrecondition,
        "the run cannot go on from this state: the global batch size is {} in the state and "
        "{} here, and position {} is not a border between batches of {}. Use a global batch "
        "size that divides {}, such as {}",
        global_batch, here.global_batch, next_position, here.global_batch, next_position,
        global_batch);
  }
  return OkStatus();
}

}  // namespace headrace::loader
