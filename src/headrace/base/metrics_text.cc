#include "headrace/base/metrics_text.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace headrace {

namespace {

// Upper edges of the exported buckets: every second power of two from 2^10 ns (1 us) to 2^36 (69
// s).
constexpr size_t kFirstEdge = 10, kLastEdge = 36, kEdgeStep = 2;

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// A label's value, with what ends it escaped.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// The samples of one metric of one process; `labels` are put behind those of the process.
class Samples {
 public:
  Samples(std::string name, std::string process, std::string* out)
      : name_(std::move(name)), process_(std::move(process)), out_(out) {}

  void Add(double value, const std::string& labels = "", std::string_view suffix = "") {
    fmt::format_to(std::back_inserter(*out_), "{}{}{{{}{}{}}} {}\n", name_, suffix, process_,
                   labels.empty() ? "" : ",", labels, value);
  }

 private:
  const std::string name_, process_;
  std::string* out_;
};

std::string StageLabels(const StageSnapshot& stage) {
  return fmt::format("pool={},stage={}", Quoted(stage.pool), Quoted(stage.name));
}

void AddHistogram(const StageSnapshot& stage, Samples* samples) {
  const std::string labels = StageLabels(stage);
  uint64_t below = 0;
  size_t bucket = 0;
  for (size_t edge = kFirstEdge; edge <= kLastEdge; edge += kEdgeStep) {
    while (bucket < edge) below += stage.durations[bucket++];
    samples->Add(static_cast<double>(below),
                 fmt::format("{},le=\"{}\"", labels, Seconds(uint64_t{1} << edge)), "_bucket");
  }
  const auto total = static_cast<double>(stage.durations.Total());
  samples->Add(total, labels + ",le=\"+Inf\"", "_bucket");
  samples->Add(Seconds(stage.busy_ns), labels, "_sum");
  samples->Add(total, labels, "_count");
}

double StageValue(const ProcessSnapshot& process, const StageSnapshot& stage, Metric metric) {
  switch (metric) {
    case Metric::kStageBusySeconds:
      return Seconds(stage.busy_ns);
    case Metric::kStageWaitSeconds:
      return Seconds(stage.wait_ns);
    case Metric::kStageIdleSeconds:
      return Seconds(process.IdleNs(stage));
    case Metric::kStageItems:
      return static_cast<double>(stage.count);
    default:
      return static_cast<double>(stage.bytes);
  }
}

double ProcessValue(const ProcessSnapshot& process, Metric metric) {
  switch (metric) {
    case Metric::kWindowSeconds:
      return Seconds(process.window_ns);
    case Metric::kLoopBatches:
      return static_cast<double>(process.batches);
    case Metric::kInputWaitSeconds:
      return Seconds(process.input_wait_ns);
    case Metric::kBetweenBatchesSeconds:
      return Seconds(process.between_batches_ns);
    case Metric::kSaveStallSeconds:
      return Seconds(process.save_stall_ns);
    case Metric::kModelStepFlops:
      return process.model_flops_per_step;
    case Metric::kModelPeakFlops:
      return process.peak_flops_per_second;
    default:
      return 1;  // kInfo
  }
}

void AddSamples(const ProcessSnapshot& process, const MetricInfo& info, Samples* samples) {
  switch (info.scope) {
    case MetricScope::kProcess: {
      std::string labels;
      if (info.metric == Metric::kInfo)
        labels = fmt::format("host={},world_size=\"{}\"", Quoted(process.host), process.world_size);
      samples->Add(ProcessValue(process, info.metric), labels);
      return;
    }
    case MetricScope::kPool:
      for (const PoolSnapshot& pool : process.pools)
        samples->Add(info.metric == Metric::kPoolThreads ? static_cast<double>(pool.threads)
                                                         : Seconds(pool.thread_ns),
                     fmt::format("pool={}", Quoted(pool.name)));
      return;
    case MetricScope::kStage:
      for (const StageSnapshot& stage : process.stages) {
        if (info.kind == MetricKind::kHistogram)
          AddHistogram(stage, samples);
        else
          samples->Add(StageValue(process, stage, info.metric), StageLabels(stage));
      }
      return;
    case MetricScope::kValue:
      for (const MetricValue& one : process.metrics)
        if (one.metric == info.metric)
          samples->Add(one.value, info.label.empty()
                                      ? ""
                                      : fmt::format("{}={}", info.label, Quoted(one.label)));
      return;
    case MetricScope::kNode:
      return;  // no process has it
  }
}

// The samples of a node's metric.
std::string NodeSamples(std::span<const MetricValue> node, const MetricInfo& info) {
  std::string lines;
  for (const MetricValue& one : node)
    if (one.metric == info.metric)
      lines += info.label.empty() ? fmt::format("{} {}\n", info.name, one.value)
                                  : fmt::format("{}{{{}={}}} {}\n", info.name, info.label,
                                                Quoted(one.label), one.value);
  return lines;
}

std::string_view KindName(MetricKind kind) {
  constexpr std::string_view kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<std::string_view> LabelNames(const MetricInfo& info) {
  if (info.metric == Metric::kInfo) return {"host", "world_size"};
  if (info.scope == MetricScope::kPool) return {"pool"};
  if (info.scope == MetricScope::kStage) return {"pool", "stage"};
  if (info.label.empty()) return {};
  return {info.label};
}

// The labels with the values that are declared for them.
std::string LabelsText(const MetricInfo& info) {
  std::string text;
  for (std::string_view name : LabelNames(info))
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  if (!info.label_values.empty()) text += ':';
  for (std::string_view value : info.label_values)
    text += fmt::format("{} {}", value == info.label_values.front() ? "" : ",", value);
  return text;
}

std::string TextOf(std::span<const ProcessSnapshot> processes, bool with_pid,
                   std::span<const MetricValue> node) {
  std::vector<std::string> labels;
  for (const ProcessSnapshot& process : processes) {
    labels.push_back(fmt::format("run={},rank=\"{}\"", Quoted(process.job), process.rank));
    if (with_pid) labels.back() += fmt::format(",pid=\"{}\"", process.pid);
  }
  std::string out;
  for (const MetricInfo& info : AllMetrics()) {
    std::string lines = NodeSamples(node, info);
    for (size_t i = 0; i < processes.size(); ++i) {
      Samples samples(std::string(info.name), labels[i], &lines);
      AddSamples(processes[i], info, &samples);
    }
    if (lines.empty()) continue;
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", info.name, info.help, info.name,
                       KindName(info.kind));
    out += lines;
  }
  return out;
}

}  // namespace

std::string PrometheusText(std::span<const ProcessSnapshot> processes) {
  return TextOf(processes, processes.size() > 1, {});
}

std::string NodePrometheusText(std::span<const ProcessSnapshot> processes,
                               std::span<const MetricValue> node) {
  return TextOf(processes, true, node);
}

std::string MetricsReference() {
  std::string out = "| metric | kind | unit | labels | what |\n|---|---|---|---|---|\n";
  for (const MetricInfo& info : AllMetrics())
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", info.name, KindName(info.kind), info.unit,
                       LabelsText(info), info.help);
  return out;
}

Json MetricsReferenceJson() {
  Json all = Json::MakeArray();
  for (const MetricInfo& info : AllMetrics()) {
    Json labels = Json::MakeArray();
    for (std::string_view name : LabelNames(info)) labels.Append(name);
    all.Append(Json::MakeObject()
                   .Set("name", info.name)
                   .Set("kind", KindName(info.kind))
                   .Set("unit", info.unit)
                   .Set("labels", std::move(labels))
                   .Set("help", info.help));
  }
  return all;
}

}  // namespace headrace
