#include "headrace/agent/node_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/check.h"
#include "headrace/doctor/diagnose.h"
#include "headrace/doctor/snapshot_window.h"

namespace headrace::agent {

namespace {

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

double Rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// Four digits behind the point are enough for a picture, and keep answers short.
Json Rounded(double value) {
  constexpr double kDigits = 1e4;
  return std::isfinite(value) ? Json(std::round(value * kDigits) / kDigits) : Json(0.0);
}

double Loop(const ProcessSnapshot& recent) {
  return Seconds(recent.input_wait_ns + recent.between_batches_ns);
}

Json RecentJson(const ProcessSnapshot& recent) {
  const double seconds = Seconds(recent.window_ns);
  Json json = Json::MakeObject();
  json.Set("seconds", Rounded(seconds));
  json.Set("batches_per_second", Rounded(Rate(static_cast<double>(recent.batches), seconds)));
  json.Set("samples_per_second", Rounded(Rate(recent.Value(Metric::kLoaderSamples), seconds)));
  json.Set("loop_seconds", Rounded(Loop(recent)));
  json.Set("input_stall", Rounded(recent.InputStall()));
  json.Set("save_stall", Rounded(recent.SaveStall()));
  json.Set("au", Rounded(recent.Au()));
  const std::optional<double> mfu = recent.Mfu();
  json.Set("mfu", mfu ? Rounded(*mfu) : Json());
  json.Set("cpus", Rounded(Rate(recent.Value(Metric::kProcessCpuSeconds), seconds)));
  return json.Set("limiting", LimitingStage(recent));
}

Json StagesJson(const ProcessSnapshot& recent) {
  Json list = Json::MakeArray();
  for (const StageSnapshot& stage : recent.stages) {
    Json one = Json::MakeObject();
    one.Set("pool", EscapeText(stage.pool)).Set("name", EscapeText(stage.name));
    one.Set("busy_ns", stage.busy_ns).Set("wait_ns", stage.wait_ns);
    one.Set("idle_ns", recent.IdleNs(stage)).Set("count", stage.count).Set("bytes", stage.bytes);
    one.Set("p50_ns", stage.durations.Percentile(0.5));
    one.Set("p99_ns", stage.durations.Percentile(0.99));
    list.Append(std::move(one));
  }
  return list;
}

Json PoolsJson(const ProcessSnapshot& recent) {
  Json list = Json::MakeArray();
  for (const PoolSnapshot& pool : recent.pools)
    list.Append(Json::MakeObject()
                    .Set("name", EscapeText(pool.name))
                    .Set("threads", pool.threads)
                    .Set("thread_ns", pool.thread_ns));
  return list;
}

// Since the process began, by the metrics' names.
Json MetricsJson(const ProcessSnapshot& total) {
  Json list = Json::MakeArray();
  for (const MetricValue& one : total.metrics) {
    Json json = Json::MakeObject().Set("name", InfoOf(one.metric).name);
    if (!one.label.empty()) json.Set("label", EscapeText(one.label));
    list.Append(json.Set("value", one.value));
  }
  return list;
}

constexpr std::array<const char*, 11> kColumns = {"samples_per_second",
                                                  "batches_per_second",
                                                  "input_stall",
                                                  "save_stall",
                                                  "au",
                                                  "cpus",
                                                  "origin_bytes_per_second",
                                                  "cache_bytes_per_second",
                                                  "saved_bytes_per_second",
                                                  "busy",
                                                  "stages"};
// The stages whose busy shares are told in a point, in this order.
constexpr std::array kPlotted = {Stage::kMeta,      Stage::kFetch,    Stage::kCache,
                                 Stage::kRead,      Stage::kChecksum, Stage::kDecode,
                                 Stage::kTransform, Stage::kCollate};

Json HistoryPointJson(const HistoryPoint& point) {
  if (point.seconds <= 0) return {};
  auto rate = [&point](float count) { return Rounded(Rate(count, point.seconds)); };
  auto share = [&point](float part) { return Rounded(Rate(part, point.loop_s())); };
  Json stages = Json::MakeArray();
  float busy = 0;
  for (Stage stage : kPlotted) {
    const float stage_s = point.busy_s[static_cast<size_t>(stage)];
    busy += stage_s;
    stages.Append(Rounded(Rate(stage_s, point.thread_s)));
  }
  Json row = Json::MakeArray();
  row.Append(rate(point.samples)).Append(rate(point.batches));
  row.Append(share(point.input_wait_s)).Append(share(point.save_stall_s));
  row.Append(share(point.compute_s)).Append(rate(point.cpu_s));
  row.Append(rate(point.origin_bytes)).Append(rate(point.cache_bytes));
  row.Append(rate(point.saved_bytes)).Append(Rounded(Rate(busy, point.thread_s)));
  return row.Append(std::move(stages));
}

// What processes say of one data set, added up.
struct DatasetSums {
  size_t processes = 0, live = 0;
  std::vector<std::string> runs;
  double samples = 0, bad_samples = 0;
  double epoch_bytes = 0, epoch_missing_bytes = 0;
  bool has_epoch = false;
  std::map<std::string, double> decodes;

  void Add(const ProcessSnapshot& total) {
    ++processes;
    if (std::find(runs.begin(), runs.end(), total.job) == runs.end()) runs.push_back(total.job);
    samples += total.Value(Metric::kLoaderSamples);
    bad_samples += total.Value(Metric::kLoaderBadSamples);
    has_epoch = has_epoch || total.Has(Metric::kCacheEpochBytes);
    epoch_bytes += total.Value(Metric::kCacheEpochBytes);
    epoch_missing_bytes += total.Value(Metric::kCacheEpochMissingBytes);
    for (const MetricValue& one : total.metrics)
      if (one.metric == Metric::kLoaderDecodes && one.value > 0) decodes[one.label] += one.value;
  }
  Json ToJson(const std::string& name) const {
    Json run_list = Json::MakeArray(), decode_list = Json::MakeArray();
    for (const std::string& run : runs) run_list.Append(EscapeText(run));
    for (const auto& [path, count] : decodes)
      decode_list.Append(Json::MakeObject().Set("path", EscapeText(path)).Set("images", count));
    Json json = Json::MakeObject().Set("name", EscapeText(name)).Set("runs", std::move(run_list));
    json.Set("processes", processes).Set("live", live);
    json.Set("samples", samples).Set("bad_samples", bad_samples);
    json.Set("decodes", std::move(decode_list));
    if (has_epoch)
      json.Set("epoch_bytes", epoch_bytes).Set("epoch_missing_bytes", epoch_missing_bytes);
    return json;
  }
};

Json FactsJson(const doctor::DatasetFacts& facts) {
  return Json::MakeObject()
      .Set("kind", facts.kind)
      .Set("shards", facts.num_shards)
      .Set("samples", facts.num_samples)
      .Set("bytes", facts.bytes)
      .Set("present_files", facts.present_files);
}

}  // namespace

std::string LimitingStage(const ProcessSnapshot& recent) {
  if (recent.input_wait_ns + recent.between_batches_ns == 0) return "";
  if (recent.InputStall() < doctor::kInputStall.value) return "step";
  const StageSnapshot* busiest = recent.BusiestStage("loader");
  return busiest != nullptr ? EscapeText(busiest->name) : "";
}

void NodeView::Look(double now_s, std::vector<Seen> seen) {
  now_s_ = now_s;
  findings_.reset();
  left_out_ = 0;
  // Those that have ended first: they make room for new ones.
  std::set<std::string> there;
  for (const Seen& one : seen) there.insert(one.id);
  for (auto& [id, process] : processes_) {
    if (there.contains(id)) continue;
    process.state = State::kEnded;
    process.run.windows.clear();
  }
  for (Seen& one : seen) {
    if (one.snapshot) {
      ++looks_;
      Take(now_s, one.id, *std::move(one.snapshot));
      continue;
    }
    ++failed_looks_;
    if (auto known = processes_.find(one.id); known != processes_.end())
      known->second.state = State::kSilent;
  }
  Forget(now_s);
}

void NodeView::Take(double now_s, const std::string& id, ProcessSnapshot snapshot) {
  auto found = processes_.find(id);
  if (found == processes_.end()) {
    if (processes_.size() - NumIn(State::kEnded) >= options_.max_processes) {
      ++left_out_;
      return;
    }
    found = processes_.try_emplace(id, options_.history).first;
    found->second.begun_s = now_s;
  }
  Process& process = found->second;
  process.state = State::kLive;
  process.seen_s = now_s;
  if (!process.looks.empty()) {
    const ProcessSnapshot between = snapshot.Since(process.looks.back());
    if (between.window_ns > 0) {
      Book(between);
      process.history.Add(PointOf(between, now_s));
      process.run.windows.push_back(
          doctor::WindowOf(between, Seconds(process.looks.back().window_ns)));
      if (process.run.windows.size() > options_.doctor_windows)
        process.run.windows.erase(process.run.windows.begin());
      doctor::AddJobFacts(between, &process.run.job);
    }
  }
  process.looks.push_back(std::move(snapshot));
  if (process.looks.size() > options_.recent_looks + 1) process.looks.pop_front();
  process.recent = process.looks.size() > 1 ? process.looks.back().Since(process.looks.front())
                                            : process.looks.back();
}

void NodeView::Book(const ProcessSnapshot& between) {
  batches_ += static_cast<double>(between.batches);
  samples_ += between.Value(Metric::kLoaderSamples);
  input_wait_ns_ += between.input_wait_ns;
  between_batches_ns_ += between.between_batches_ns;
  save_stall_ns_ += between.save_stall_ns;
}

// Of those that have ended, the ones whose time is up, and the oldest beyond the bound.
void NodeView::Forget(double now_s) {
  std::erase_if(processes_, [&](const auto& one) {
    return one.second.state == State::kEnded && now_s - one.second.seen_s > options_.keeps_ended_s;
  });
  while (processes_.size() > options_.max_processes) {
    auto oldest = processes_.end();
    for (auto at = processes_.begin(); at != processes_.end(); ++at)
      if (at->second.state == State::kEnded &&
          (oldest == processes_.end() || at->second.seen_s < oldest->second.seen_s))
        oldest = at;
    if (oldest == processes_.end()) return;
    processes_.erase(oldest);
  }
}

size_t NodeView::NumIn(State state) const {
  return static_cast<size_t>(
      std::count_if(processes_.begin(), processes_.end(),
                    [state](const auto& one) { return one.second.state == state; }));
}

Json NodeView::ProcessJson(const std::string& id, const Process& process) const {
  constexpr const char* kStates[] = {"live", "silent", "ended"};
  const ProcessSnapshot& total = process.looks.back();
  Json json = Json::MakeObject();
  json.Set("id", EscapeText(id)).Set("run", EscapeText(total.job)).Set("rank", total.rank);
  json.Set("world_size", total.world_size).Set("pid", total.pid);
  json.Set("dataset", EscapeText(total.dataset));
  json.Set("state", kStates[static_cast<size_t>(process.state)]);
  json.Set("age_seconds", Rounded(Seconds(total.window_ns)));
  json.Set("seen_seconds_ago", Rounded(now_s_ - process.seen_s));
  json.Set("recent", RecentJson(process.recent));
  json.Set("pools", PoolsJson(process.recent)).Set("stages", StagesJson(process.recent));
  return json.Set("metrics", MetricsJson(total));
}

Json NodeView::NodeJson() const {
  std::vector<const std::map<std::string, Process>::value_type*> sorted;
  sorted.reserve(processes_.size());
  for (const auto& one : processes_) sorted.push_back(&one);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    const ProcessSnapshot &x = a->second.looks.back(), &y = b->second.looks.back();
    return std::tie(x.job, x.rank, x.begin_unix_ns, x.pid) <
           std::tie(y.job, y.rank, y.begin_unix_ns, y.pid);
  });
  Json list = Json::MakeArray();
  for (const auto* one : sorted) list.Append(ProcessJson(one->first, one->second));
  return Json::MakeObject()
      .Set("interval_seconds", options_.interval_s)
      .Set("now_seconds", Rounded(now_s_))
      .Set("live", NumIn(State::kLive))
      .Set("silent", NumIn(State::kSilent))
      .Set("ended", NumIn(State::kEnded))
      .Set("left_out", left_out_)
      .Set("processes", std::move(list));
}

Json NodeView::HistoryJson(double span_s, size_t points, const std::string& id) const {
  constexpr size_t kMostCells = 8192;  // points of all processes together
  const double fine_s = options_.interval_s * static_cast<double>(options_.history.fine_points);
  const double resolution_s = span_s > fine_s ? options_.history.coarse_s : options_.interval_s;
  const auto finest = static_cast<size_t>(span_s / (2 * resolution_s));
  const size_t fair = kMostCells / std::max<size_t>(id.empty() ? processes_.size() : 1, 1);
  points = std::clamp<size_t>(std::min({points, finest, fair}), 1, 360);
  const double from_s = now_s_ - span_s;
  Json list = Json::MakeArray();
  for (const auto& [name, process] : processes_) {
    if (!id.empty() && EscapeText(name) != id) continue;
    Json rows = Json::MakeArray();
    for (const HistoryPoint& point : Gather(process.history.Since(from_s), from_s, now_s_, points))
      rows.Append(HistoryPointJson(point));
    const ProcessSnapshot& total = process.looks.back();
    list.Append(Json::MakeObject()
                    .Set("id", EscapeText(name))
                    .Set("run", EscapeText(total.job))
                    .Set("rank", total.rank)
                    .Set("points", std::move(rows)));
  }
  Json columns = Json::MakeArray(), stages = Json::MakeArray();
  for (const char* column : kColumns) columns.Append(column);
  for (Stage stage : kPlotted) stages.Append(StageName(stage));
  return Json::MakeObject()
      .Set("from_seconds", Rounded(from_s))
      .Set("to_seconds", Rounded(now_s_))
      .Set("columns", std::move(columns))
      .Set("stages", std::move(stages))
      .Set("processes", std::move(list));
}

std::map<std::string, doctor::JobRun> NodeView::Runs() const {
  std::map<std::string, doctor::JobRun> runs;
  for (const auto& [id, process] : processes_) {
    if (process.state == State::kEnded) continue;
    const ProcessSnapshot& total = process.looks.back();
    doctor::JobRun& run = runs[total.job];
    run.name = total.job;
    if (run.dataset.name.empty()) {
      auto known = facts_.find(total.dataset);
      if (known != facts_.end()) run.dataset = known->second;
      run.dataset.name = total.dataset;
    }
    doctor::RankRun rank = process.run;
    rank.rank = static_cast<uint32_t>(total.rank);
    rank.node = total.host;
    rank.machine = options_.machine;
    run.ranks.push_back(std::move(rank));
  }
  for (auto& [name, run] : runs)
    for (doctor::RankRun& rank : run.ranks)
      rank.job.node_ranks = static_cast<uint32_t>(run.ranks.size());
  return runs;
}

const Json& NodeView::FindingsJson() {
  if (findings_) return *findings_;
  Json list = Json::MakeArray();
  for (const auto& [name, run] : Runs())
    list.Append(doctor::DiagnosisJson(doctor::Diagnose(run))
                    .Set("run", EscapeText(name))
                    .Set("ranks", run.ranks.size()));
  findings_ = Json::MakeObject().Set("runs", std::move(list));
  return *findings_;
}

Json NodeView::DatasetsJson() const {
  std::map<std::string, DatasetSums> sums;
  for (const auto& [id, process] : processes_) {
    const ProcessSnapshot& total = process.looks.back();
    if (total.dataset.empty()) continue;
    DatasetSums& one = sums[total.dataset];
    one.Add(total);
    one.live += process.state != State::kEnded;
  }
  Json list = Json::MakeArray();
  for (const auto& [name, one] : sums) {
    Json json = one.ToJson(name);
    auto known = facts_.find(name);
    json.Set("facts", known != facts_.end() ? FactsJson(known->second) : Json());
    list.Append(std::move(json));
  }
  return Json::MakeObject().Set("datasets", std::move(list));
}

std::vector<MetricValue> NodeView::NodeMetrics() const {
  return {
      {Metric::kNodeProcesses, "live", static_cast<double>(NumIn(State::kLive))},
      {Metric::kNodeProcesses, "silent", static_cast<double>(NumIn(State::kSilent))},
      {Metric::kNodeProcesses, "ended", static_cast<double>(NumIn(State::kEnded))},
      {Metric::kNodeLooks, "", static_cast<double>(looks_)},
      {Metric::kNodeFailedLooks, "", static_cast<double>(failed_looks_)},
      {Metric::kNodeLeftOut, "", static_cast<double>(left_out_)},
      {Metric::kNodeBatches, "", batches_},
      {Metric::kNodeSamples, "", samples_},
      {Metric::kNodeInputWaitSeconds, "", Seconds(input_wait_ns_)},
      {Metric::kNodeBetweenBatchesSeconds, "", Seconds(between_batches_ns_)},
      {Metric::kNodeSaveStallSeconds, "", Seconds(save_stall_ns_)},
  };
}

std::vector<ProcessSnapshot> NodeView::Snapshots() const {
  std::vector<ProcessSnapshot> list;
  for (const auto& [id, process] : processes_)
    if (process.state == State::kLive) list.push_back(process.looks.back());
  return list;
}

std::vector<std::string> NodeView::DatasetNames() const {
  std::vector<std::string> names;
  for (const auto& [id, process] : processes_) {
    const std::string& name = process.looks.back().dataset;
    if (process.state == State::kEnded || name.empty()) continue;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace headrace::agent
