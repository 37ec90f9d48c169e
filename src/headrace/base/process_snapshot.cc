#include "headrace/base/process_snapshot.h"

#include <fmt/core.h>

#include <algorithm>

#include "headrace/base/text.h"

namespace headrace {

namespace {

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void TakeAway(uint64_t* from, uint64_t earlier) { *from -= std::min(*from, earlier); }

}  // namespace

std::string ChangeText(const SettingChange& change) {
  return fmt::format("{}: {} to {}, by {}{}{}", EscapeText(change.name), change.from, change.to,
                     EscapeText(change.by), change.why.empty() ? "" : ": ", EscapeText(change.why));
}

double ProcessSnapshot::InputStall() const {
  return Share(input_wait_ns, input_wait_ns + between_batches_ns);
}

double ProcessSnapshot::SaveStall() const {
  return Share(between_batches_ns - StepNs(), input_wait_ns + between_batches_ns);
}

double ProcessSnapshot::Au() const { return Share(StepNs(), input_wait_ns + between_batches_ns); }

std::optional<double> ProcessSnapshot::Mfu() const {
  const double seconds = static_cast<double>(input_wait_ns + between_batches_ns) * 1e-9;
  if (!(model_flops_per_step > 0) || !(peak_flops_per_second > 0) || !(seconds > 0))
    return std::nullopt;
  return model_flops_per_step * static_cast<double>(batches) / (peak_flops_per_second * seconds);
}

const PoolSnapshot* ProcessSnapshot::FindPool(std::string_view name) const {
  for (const PoolSnapshot& pool : pools)
    if (pool.name == name) return &pool;
  return nullptr;
}

const StageSnapshot* ProcessSnapshot::FindStage(std::string_view pool,
                                                std::string_view name) const {
  for (const StageSnapshot& stage : stages)
    if (stage.pool == pool && stage.name == name) return &stage;
  return nullptr;
}

const StageSnapshot* ProcessSnapshot::BusiestStage(std::string_view pool) const {
  const StageSnapshot* busiest = nullptr;
  for (const StageSnapshot& stage : stages)
    if (stage.pool == pool && stage.busy_ns > 0 &&
        (busiest == nullptr || stage.busy_ns > busiest->busy_ns))
      busiest = &stage;
  return busiest;
}

double ProcessSnapshot::Value(Metric metric, std::string_view label) const {
  for (const MetricValue& one : metrics)
    if (one.metric == metric && one.label == label) return one.value;
  return 0;
}

bool ProcessSnapshot::Has(Metric metric, std::string_view label) const {
  return std::any_of(metrics.begin(), metrics.end(), [&](const MetricValue& one) {
    return one.metric == metric && one.label == label;
  });
}

const SettingValue* ProcessSnapshot::FindSetting(std::string_view name) const {
  for (const SettingValue& one : settings)
    if (one.name == name) return &one;
  return nullptr;
}

uint64_t ProcessSnapshot::IdleNs(const StageSnapshot& stage) const {
  const PoolSnapshot* pool = FindPool(stage.pool);
  const uint64_t booked = stage.busy_ns + stage.wait_ns;
  return pool != nullptr && pool->thread_ns > booked ? pool->thread_ns - booked : 0;
}

uint64_t ProcessSnapshot::BookedNs(std::string_view pool) const {
  uint64_t booked = 0;
  for (const StageSnapshot& stage : stages)
    if (stage.pool == pool) booked += stage.busy_ns + stage.wait_ns;
  return booked;
}

uint64_t ProcessSnapshot::UnbookedNs(std::string_view pool) const {
  const PoolSnapshot* found = FindPool(pool);
  const uint64_t booked = BookedNs(pool);
  return found != nullptr && found->thread_ns > booked ? found->thread_ns - booked : 0;
}

PoolSnapshot* ProcessSnapshot::PoolOf(std::string_view name) {
  for (PoolSnapshot& pool : pools)
    if (pool.name == name) return &pool;
  pools.push_back({std::string(name), 0, 0});
  return &pools.back();
}

void ProcessSnapshot::AddPool(const PoolSnapshot& pool, const StageReport& report) {
  PoolSnapshot* sum = PoolOf(pool.name);
  sum->threads += pool.threads;
  uint64_t booked = 0;
  for (size_t i = 0; i < kNumStages; ++i) {
    const StageTotals& totals = report[i];
    if (totals.count == 0 && totals.wait_ns == 0) continue;
    booked += totals.busy_ns + totals.wait_ns;
    const std::string_view name = StageName(static_cast<Stage>(i));
    auto found = std::find_if(stages.begin(), stages.end(), [&](const StageSnapshot& one) {
      return one.pool == pool.name && one.name == name;
    });
    if (found == stages.end()) {
      found = stages.insert(stages.end(), StageSnapshot{});
      found->pool = pool.name;
      found->name = name;
    }
    found->busy_ns += totals.busy_ns;
    found->wait_ns += totals.wait_ns;
    found->count += totals.count;
    found->bytes += totals.bytes;
    found->durations.Add(totals.histogram);
    found->waits.Add(totals.waits);
  }
  if (pool.thread_ns > 0) sum->thread_ns += std::max(pool.thread_ns, booked);
}

void ProcessSnapshot::AddMetric(Metric metric, double value, std::string_view label) {
  for (MetricValue& one : metrics) {
    if (one.metric != metric || one.label != label) continue;
    one.value += value;
    return;
  }
  metrics.push_back({metric, std::string(label), value});
}

ProcessSnapshot ProcessSnapshot::Since(const ProcessSnapshot& earlier) const {
  ProcessSnapshot between = *this;
  between.begin_unix_ns = earlier.end_unix_ns;
  TakeAway(&between.window_ns, earlier.window_ns);
  TakeAway(&between.input_wait_ns, earlier.input_wait_ns);
  TakeAway(&between.between_batches_ns, earlier.between_batches_ns);
  TakeAway(&between.save_stall_ns, earlier.save_stall_ns);
  TakeAway(&between.batches, earlier.batches);
  for (StageSnapshot& stage : between.stages) {
    const StageSnapshot* before = earlier.FindStage(stage.pool, stage.name);
    if (before == nullptr) continue;
    TakeAway(&stage.busy_ns, before->busy_ns);
    TakeAway(&stage.wait_ns, before->wait_ns);
    TakeAway(&stage.count, before->count);
    TakeAway(&stage.bytes, before->bytes);
    stage.durations.Subtract(before->durations);
    stage.waits.Subtract(before->waits);
  }
  for (PoolSnapshot& pool : between.pools) {
    const PoolSnapshot* before = earlier.FindPool(pool.name);
    if (before != nullptr) TakeAway(&pool.thread_ns, before->thread_ns);
    if (pool.thread_ns > 0) pool.thread_ns = std::max(pool.thread_ns, between.BookedNs(pool.name));
  }
  for (MetricValue& one : between.metrics)
    if (InfoOf(one.metric).kind == MetricKind::kCounter)
      one.value = std::max(0.0, one.value - earlier.Value(one.metric, one.label));
  for (SourceSnapshot& source : between.sources) {
    const auto before = std::find_if(earlier.sources.begin(), earlier.sources.end(),
                                     [&](const auto& one) { return one.name == source.name; });
    if (before == earlier.sources.end()) continue;
    TakeAway(&source.reads, before->reads);
    TakeAway(&source.bytes, before->bytes);
    TakeAway(&source.busy_ns, before->busy_ns);
  }
  const uint64_t known = earlier.changes.empty() ? 0 : earlier.changes.back().number;
  std::erase_if(between.changes, [&](const SettingChange& one) { return one.number <= known; });
  return between;
}

}  // namespace headrace
