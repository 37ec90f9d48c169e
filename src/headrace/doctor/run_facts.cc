// The facts of a record as JSON and back.
#include <cmath>
#include <utility>

#include "headrace/doctor/run_record.h"

namespace headrace::doctor {
namespace {

// Facts that are missing are unknown.
Status ReadFact(const Json& json, const char* name, uint64_t* to) {
  if (!json.Find(name)) return OkStatus();
  HR_ASSIGN_OR_RETURN(*to, json.GetUint(name));
  return OkStatus();
}

Status ReadFact(const Json& json, const char* name, uint32_t* to) {
  uint64_t wide = *to;
  HR_RETURN_IF_ERROR(ReadFact(json, name, &wide));
  if (wide > UINT32_MAX) return Error(Code::kInvalidArgument, "{}: {} is too large", name, wide);
  *to = static_cast<uint32_t>(wide);
  return OkStatus();
}

Status ReadFact(const Json& json, const char* name, double* to) {
  const Json* found = json.Find(name);
  if (!found) return OkStatus();
  if (!found->is_number()) return Error(Code::kInvalidArgument, "{}: expected a number", name);
  *to = found->AsDouble();
  if (!std::isfinite(*to) || *to < 0)
    return Error(Code::kInvalidArgument, "{}: {} is no such quantity", name, *to);
  return OkStatus();
}

Status ReadFact(const Json& json, const char* name, std::string* to) {
  if (!json.Find(name)) return OkStatus();
  HR_ASSIGN_OR_RETURN(*to, json.GetString(name));
  return OkStatus();
}

Status ReadFact(const Json& json, const char* name, bool* to) {
  if (const Json* found = json.Find(name)) *to = found->AsBool();
  return OkStatus();
}

// Calls visit(name, member) for each fact. `facts` may be const or not.
template <typename Facts, typename Visit>
void VisitMachine(Facts& m, const Visit& visit) {
  visit("cpus", m.cpus);
  visit("memory_bytes", m.memory_bytes);
  visit("network_bytes_per_second", m.network_bytes_per_s);
  visit("disk_bytes_per_second", m.disk_bytes_per_s);
  visit("clock_source", m.clock_source);
  visit("mhz", m.mhz);
  visit("max_mhz", m.max_mhz);
  visit("shares_cores", m.shares_cores);
}

template <typename Facts, typename Visit>
void VisitJob(Facts& j, const Visit& visit) {
  visit("world_size", j.world_size);
  visit("node_ranks", j.node_ranks);
  visit("has_cache", j.has_cache);
  visit("cache_limit_bytes", j.cache_limit_bytes);
  visit("epoch_bytes", j.epoch_bytes);
}

template <typename Facts, typename Visit>
void VisitDataset(Facts& d, const Visit& visit) {
  visit("name", d.name);
  visit("kind", d.kind);
  visit("num_shards", d.num_shards);
  visit("num_samples", d.num_samples);
  visit("bytes", d.bytes);
  visit("present_files", d.present_files);
}

template <typename Facts, typename VisitAll>
Json ToJson(const Facts& facts, const VisitAll& visit_all) {
  Json json = Json::MakeObject();
  visit_all(facts, [&json](const char* name, const auto& value) { json.Set(name, Json(value)); });
  return json;
}

template <typename Facts, typename VisitAll>
Status FromJson(const Json& json, const char* name, const VisitAll& visit_all, Facts* facts) {
  const Json* part = json.Find(name);
  if (!part) return OkStatus();
  Status status;
  visit_all(*facts, [&](const char* fact, auto& value) {
    if (status.ok()) status = ReadFact(*part, fact, &value);
  });
  return std::move(status).Prefix(name);
}

}  // namespace

Json RunFactsJson(const RunFacts& facts) {
  return Json::MakeObject()
      .Set("type", "run")
      .Set("version", kRecordVersion)
      .Set("name", facts.name)
      .Set("rank", facts.rank)
      .Set("node", facts.node)
      .Set("machine", ToJson(facts.machine, [](auto& f, auto v) { VisitMachine(f, v); }))
      .Set("job", ToJson(facts.job, [](auto& f, auto v) { VisitJob(f, v); }))
      .Set("dataset", ToJson(facts.dataset, [](auto& f, auto v) { VisitDataset(f, v); }));
}

Result<RunFacts> ReadRunFacts(const Json& json) {
  RunFacts facts;
  HR_RETURN_IF_ERROR(ReadFact(json, "name", &facts.name));
  HR_RETURN_IF_ERROR(ReadFact(json, "rank", &facts.rank));
  HR_RETURN_IF_ERROR(ReadFact(json, "node", &facts.node));
  HR_RETURN_IF_ERROR(
      FromJson(json, "machine", [](auto& f, auto v) { VisitMachine(f, v); }, &facts.machine));
  HR_RETURN_IF_ERROR(FromJson(json, "job", [](auto& f, auto v) { VisitJob(f, v); }, &facts.job));
  HR_RETURN_IF_ERROR(
      FromJson(json, "dataset", [](auto& f, auto v) { VisitDataset(f, v); }, &facts.dataset));
  return facts;
}

}  // namespace headrace::doctor
