// ProcessSnapshot as JSON text and back.
#include "headrace/base/process_snapshot.h"

namespace headrace {

namespace {

// Counts from bucket 0 on, without the zeros at the end.
Json HistogramJson(const LogHistogram& histogram) {
  size_t used = LogHistogram::kBuckets;
  while (used > 0 && histogram[used - 1] == 0) --used;
  Json counts = Json::MakeArray();
  for (size_t i = 0; i < used; ++i) counts.Append(histogram[i]);
  return counts;
}

Json StageJson(const ProcessSnapshot& snapshot, const StageSnapshot& stage) {
  Json json = Json::MakeObject();
  json.Set("pool", stage.pool).Set("name", stage.name);
  json.Set("busy_ns", stage.busy_ns).Set("wait_ns", stage.wait_ns);
  json.Set("idle_ns", snapshot.IdleNs(stage));
  json.Set("count", stage.count).Set("bytes", stage.bytes);
  json.Set("durations", HistogramJson(stage.durations)).Set("waits", HistogramJson(stage.waits));
  return json;
}

Json LoopJson(const ProcessSnapshot& snapshot) {
  Json json = Json::MakeObject();
  json.Set("input_wait_ns", snapshot.input_wait_ns);
  json.Set("between_batches_ns", snapshot.between_batches_ns);
  json.Set("save_stall_ns", snapshot.save_stall_ns);
  json.Set("batches", snapshot.batches);
  json.Set("input_stall", snapshot.InputStall()).Set("save_stall", snapshot.SaveStall());
  json.Set("au", snapshot.Au());
  std::optional<double> mfu = snapshot.Mfu();
  json.Set("mfu", mfu ? Json(*mfu) : Json());
  return json;
}

// A member that may be missing: it is then 0 or empty. A wrong kind is a fault.
Status ReadUint(const Json& json, std::string_view name, uint64_t* to) {
  if (json.Find(name) == nullptr) return OkStatus();
  HR_ASSIGN_OR_RETURN(*to, json.GetUint(name));
  return OkStatus();
}

Status ReadInt(const Json& json, std::string_view name, int64_t* to) {
  const Json* found = json.Find(name);
  if (found == nullptr) return OkStatus();
  if (!found->is_integer())
    return Error(Code::kInvalidArgument, "{}: expected a whole number", name);
  *to = found->AsInt();
  return OkStatus();
}

Status ReadDouble(const Json& json, std::string_view name, double* to) {
  const Json* found = json.Find(name);
  if (found == nullptr) return OkStatus();
  if (!found->is_number()) return Error(Code::kInvalidArgument, "{}: expected a number", name);
  *to = found->AsDouble();
  return OkStatus();
}

Status ReadText(const Json& json, std::string_view name, std::string* to) {
  if (json.Find(name) == nullptr) return OkStatus();
  HR_ASSIGN_OR_RETURN(*to, json.GetString(name));
  return OkStatus();
}

// The elements of an array, which may be missing.
Result<const Json::Array*> ReadArray(const Json& json, std::string_view name) {
  static const Json::Array kNone;
  const Json* found = json.Find(name);
  if (found == nullptr) return &kNone;
  if (!found->is_array()) return Error(Code::kInvalidArgument, "{}: expected an array", name);
  return &found->items();
}

Status ReadHistogram(const Json& json, std::string_view name, LogHistogram* to) {
  HR_ASSIGN_OR_RETURN(const Json::Array* counts, ReadArray(json, name));
  if (counts->size() > LogHistogram::kBuckets)
    return Error(Code::kInvalidArgument, "{}: expected at most {} counts, found {}", name,
                 LogHistogram::kBuckets, counts->size());
  for (size_t i = 0; i < counts->size(); ++i) to->counts[i] = (*counts)[i].AsUint();
  return OkStatus();
}

Status ReadPool(const Json& json, PoolSnapshot* pool) {
  HR_RETURN_IF_ERROR(ReadText(json, "name", &pool->name));
  HR_RETURN_IF_ERROR(ReadUint(json, "threads", &pool->threads));
  return ReadUint(json, "thread_ns", &pool->thread_ns);
}

Status ReadStage(const Json& json, StageSnapshot* stage) {
  HR_RETURN_IF_ERROR(ReadText(json, "pool", &stage->pool));
  HR_RETURN_IF_ERROR(ReadText(json, "name", &stage->name));
  HR_RETURN_IF_ERROR(ReadUint(json, "busy_ns", &stage->busy_ns));
  HR_RETURN_IF_ERROR(ReadUint(json, "wait_ns", &stage->wait_ns));
  HR_RETURN_IF_ERROR(ReadUint(json, "count", &stage->count));
  HR_RETURN_IF_ERROR(ReadUint(json, "bytes", &stage->bytes));
  HR_RETURN_IF_ERROR(ReadHistogram(json, "durations", &stage->durations));
  return ReadHistogram(json, "waits", &stage->waits);
}

Status ReadSetting(const Json& json, SettingValue* setting) {
  HR_RETURN_IF_ERROR(ReadText(json, "name", &setting->name));
  HR_RETURN_IF_ERROR(ReadUint(json, "value", &setting->value));
  HR_RETURN_IF_ERROR(ReadUint(json, "min", &setting->min));
  HR_RETURN_IF_ERROR(ReadUint(json, "max", &setting->max));
  return ReadText(json, "unit", &setting->unit);
}

Json SourceJson(const SourceSnapshot& source) {
  Json json = Json::MakeObject();
  json.Set("name", source.name).Set("reads", source.reads).Set("bytes", source.bytes);
  return json.Set("busy_ns", source.busy_ns);
}

Status ReadSource(const Json& json, SourceSnapshot* source) {
  HR_RETURN_IF_ERROR(ReadText(json, "name", &source->name));
  HR_RETURN_IF_ERROR(ReadUint(json, "reads", &source->reads));
  HR_RETURN_IF_ERROR(ReadUint(json, "bytes", &source->bytes));
  return ReadUint(json, "busy_ns", &source->busy_ns);
}

Json ChangeJson(const SettingChange& change) {
  Json json = Json::MakeObject();
  json.Set("number", change.number).Set("unix_ns", change.unix_ns).Set("name", change.name);
  json.Set("from", change.from).Set("to", change.to).Set("by", change.by);
  return json.Set("why", change.why);
}

Status ReadChange(const Json& json, SettingChange* change) {
  HR_RETURN_IF_ERROR(ReadUint(json, "number", &change->number));
  HR_RETURN_IF_ERROR(ReadInt(json, "unix_ns", &change->unix_ns));
  HR_RETURN_IF_ERROR(ReadText(json, "name", &change->name));
  HR_RETURN_IF_ERROR(ReadUint(json, "from", &change->from));
  HR_RETURN_IF_ERROR(ReadUint(json, "to", &change->to));
  HR_RETURN_IF_ERROR(ReadText(json, "by", &change->by));
  return ReadText(json, "why", &change->why);
}

// Metrics of a newer process that this one does not know are left out.
Status ReadMetric(const Json& json, std::vector<MetricValue>* to) {
  std::string name;
  MetricValue value;
  HR_RETURN_IF_ERROR(ReadText(json, "name", &name));
  HR_RETURN_IF_ERROR(ReadText(json, "label", &value.label));
  HR_RETURN_IF_ERROR(ReadDouble(json, "value", &value.value));
  std::optional<Metric> metric = FindMetric(name);
  if (!metric) return OkStatus();
  value.metric = *metric;
  to->push_back(std::move(value));
  return OkStatus();
}

template <typename T>
Status ReadList(const Json& json, std::string_view name, Status (*read)(const Json&, T*),
                std::vector<T>* to) {
  HR_ASSIGN_OR_RETURN(const Json::Array* items, ReadArray(json, name));
  for (size_t i = 0; i < items->size(); ++i) {
    T one;
    Status status = read((*items)[i], &one);
    if (!status.ok()) return std::move(status).Prefix(fmt::format("{}[{}]", name, i));
    to->push_back(std::move(one));
  }
  return OkStatus();
}

Status ReadWho(const Json& json, ProcessSnapshot* out) {
  HR_RETURN_IF_ERROR(ReadText(json, "job", &out->job));
  HR_RETURN_IF_ERROR(ReadUint(json, "rank", &out->rank));
  HR_RETURN_IF_ERROR(ReadUint(json, "world_size", &out->world_size));
  HR_RETURN_IF_ERROR(ReadInt(json, "pid", &out->pid));
  HR_RETURN_IF_ERROR(ReadText(json, "host", &out->host));
  HR_RETURN_IF_ERROR(ReadText(json, "dataset", &out->dataset));
  HR_RETURN_IF_ERROR(ReadInt(json, "begin_unix_ns", &out->begin_unix_ns));
  HR_RETURN_IF_ERROR(ReadInt(json, "end_unix_ns", &out->end_unix_ns));
  return ReadUint(json, "window_ns", &out->window_ns);
}

Status ReadLoop(const Json& json, ProcessSnapshot* out) {
  if (const Json* loop = json.Find("loop")) {
    HR_RETURN_IF_ERROR(ReadUint(*loop, "input_wait_ns", &out->input_wait_ns));
    HR_RETURN_IF_ERROR(ReadUint(*loop, "between_batches_ns", &out->between_batches_ns));
    HR_RETURN_IF_ERROR(ReadUint(*loop, "save_stall_ns", &out->save_stall_ns));
    HR_RETURN_IF_ERROR(ReadUint(*loop, "batches", &out->batches));
  }
  if (const Json* model = json.Find("model")) {
    HR_RETURN_IF_ERROR(ReadDouble(*model, "flops_per_step", &out->model_flops_per_step));
    HR_RETURN_IF_ERROR(ReadDouble(*model, "peak_flops_per_second", &out->peak_flops_per_second));
  }
  return OkStatus();
}

}  // namespace

Json ProcessSnapshot::ToJson() const {
  Json json = Json::MakeObject();
  json.Set("version", kVersion);
  json.Set("job", job).Set("rank", rank).Set("world_size", world_size).Set("pid", pid);
  json.Set("host", host).Set("dataset", dataset);
  json.Set("begin_unix_ns", begin_unix_ns).Set("end_unix_ns", end_unix_ns);
  json.Set("window_ns", window_ns);
  json.Set("loop", LoopJson(*this));
  Json model = Json::MakeObject();
  model.Set("flops_per_step", model_flops_per_step);
  model.Set("peak_flops_per_second", peak_flops_per_second);
  json.Set("model", std::move(model));
  Json pool_list = Json::MakeArray();
  for (const PoolSnapshot& pool : pools) {
    Json one = Json::MakeObject();
    one.Set("name", pool.name).Set("threads", pool.threads).Set("thread_ns", pool.thread_ns);
    pool_list.Append(std::move(one));
  }
  json.Set("pools", std::move(pool_list));
  Json stage_list = Json::MakeArray();
  for (const StageSnapshot& stage : stages) stage_list.Append(StageJson(*this, stage));
  json.Set("stages", std::move(stage_list));
  Json metric_list = Json::MakeArray();
  for (const MetricValue& value : metrics) {
    Json one = Json::MakeObject();
    one.Set("name", InfoOf(value.metric).name);
    if (!value.label.empty()) one.Set("label", value.label);
    one.Set("value", value.value);
    metric_list.Append(std::move(one));
  }
  json.Set("metrics", std::move(metric_list));
  Json source_list = Json::MakeArray();
  for (const SourceSnapshot& source : sources) source_list.Append(SourceJson(source));
  json.Set("sources", std::move(source_list));
  Json setting_list = Json::MakeArray();
  for (const SettingValue& setting : settings) {
    Json one = Json::MakeObject();
    one.Set("name", setting.name).Set("value", setting.value);
    one.Set("min", setting.min).Set("max", setting.max).Set("unit", setting.unit);
    setting_list.Append(std::move(one));
  }
  json.Set("settings", std::move(setting_list));
  Json change_list = Json::MakeArray();
  for (const SettingChange& change : changes) change_list.Append(ChangeJson(change));
  json.Set("changes", std::move(change_list));
  return json;
}

Result<ProcessSnapshot> ProcessSnapshot::FromJson(const Json& json) {
  if (!json.is_object()) return Error(Code::kInvalidArgument, "a snapshot is a JSON object");
  HR_ASSIGN_OR_RETURN(uint64_t version, json.GetUint("version"));
  if (version != kVersion)
    return Error(Code::kInvalidArgument,
                 "a snapshot of version {}; this program reads version {}: use that of the process",
                 version, kVersion);
  ProcessSnapshot out;
  HR_RETURN_IF_ERROR(ReadWho(json, &out));
  HR_RETURN_IF_ERROR(ReadLoop(json, &out));
  HR_RETURN_IF_ERROR(ReadList(json, "pools", &ReadPool, &out.pools));
  HR_RETURN_IF_ERROR(ReadList(json, "stages", &ReadStage, &out.stages));
  HR_RETURN_IF_ERROR(ReadList(json, "sources", &ReadSource, &out.sources));
  HR_RETURN_IF_ERROR(ReadList(json, "settings", &ReadSetting, &out.settings));
  HR_RETURN_IF_ERROR(ReadList(json, "changes", &ReadChange, &out.changes));
  HR_ASSIGN_OR_RETURN(const Json::Array* metrics, ReadArray(json, "metrics"));
  for (size_t i = 0; i < metrics->size(); ++i) {
    Status status = ReadMetric((*metrics)[i], &out.metrics);
    if (!status.ok()) return std::move(status).Prefix(fmt::format("metrics[{}]", i));
  }
  return out;
}

}  // namespace headrace
