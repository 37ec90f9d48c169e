#include "headrace/agent/process_watch.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/cache/cache_settings.h"
#include "headrace/env/process.h"
#include "headrace/env/process_usage.h"
#include "headrace/object/per_process.h"
#include "headrace/object/url_file_system.h"

namespace headrace::agent {

namespace {

std::string JobOfEnvironment() {
  for (const char* name :
       {"HEADRACE_JOB", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "TORCHELASTIC_RUN_ID"})
    if (auto value = EnvironmentVariable(name); value && *value != "none") return *value;
  return "";
}

void AddUsage(ProcessSnapshot* snapshot) {
  const ProcessUsage usage = ReadProcessUsage();
  snapshot->AddMetric(Metric::kProcessCpuSeconds, usage.cpu_seconds);
  auto add = [&](Metric metric, uint64_t value) {
    snapshot->AddMetric(metric, static_cast<double>(value));
  };
  add(Metric::kProcessResidentBytes, usage.resident_bytes);
  add(Metric::kProcessMajorFaults, usage.major_faults);
  add(Metric::kProcessPreemptions, usage.preemptions);
  add(Metric::kProcessOpenFilesLimit, OpenFileLimit());
  add(Metric::kProcessCpus, static_cast<uint64_t>(AvailableCpus()));
  add(Metric::kProcessMemoryLimitBytes, MemoryLimitBytes());
  if (auto open = NumOpenFiles(); open.ok()) add(Metric::kProcessOpenFiles, *open);
  if (usage.device_read_bytes) add(Metric::kProcessDeviceReadBytes, *usage.device_read_bytes);
  if (usage.run_delay_seconds)
    snapshot->AddMetric(Metric::kProcessRunDelaySeconds, *usage.run_delay_seconds);
  if (usage.throttled_seconds)
    snapshot->AddMetric(Metric::kCgroupThrottledSeconds, *usage.throttled_seconds);
}

void AddStores(ProcessSnapshot* snapshot) {
  StageReport stages{};
  const object::StoreTotals totals = object::TotalsOfAllStores(&stages);
  if (totals.gets + totals.heads + totals.lists + totals.writes == 0) return;
  snapshot->AddPool({"store", 0, 0}, stages);
  auto add = [&](Metric metric, uint64_t value, std::string_view label = "") {
    snapshot->AddMetric(metric, static_cast<double>(value), label);
  };
  add(Metric::kStoreRequests, totals.gets, "get");
  add(Metric::kStoreRequests, totals.heads, "head");
  add(Metric::kStoreRequests, totals.lists, "list");
  add(Metric::kStoreRequests, totals.writes, "write");
  add(Metric::kStoreFailures, totals.failures);
  add(Metric::kStoreRetries, totals.retries);
  add(Metric::kStoreThrottled, totals.throttled);
  snapshot->AddMetric(Metric::kStoreBackOffSeconds, static_cast<double>(totals.back_off_ns) * 1e-9);
  add(Metric::kStoreReadBytes, totals.bytes_read);
  add(Metric::kStoreWrittenBytes, totals.bytes_written);
}

void AddCaches(ProcessSnapshot* snapshot) {
  const cache::CacheCounters counters = cache::CountersOfAllCaches();
  if (counters.memory_hits + counters.disk_hits + counters.misses + counters.origin_bytes == 0)
    return;
  auto add = [&](Metric metric, uint64_t value, std::string_view label = "") {
    snapshot->AddMetric(metric, static_cast<double>(value), label);
  };
  add(Metric::kCacheHits, counters.memory_hits, "memory");
  add(Metric::kCacheHits, counters.disk_hits, "disk");
  add(Metric::kCacheMisses, counters.misses);
  add(Metric::kCacheReadBytes, counters.memory_bytes, "memory");
  add(Metric::kCacheReadBytes, counters.disk_bytes, "disk");
  add(Metric::kCacheOriginBytes, counters.origin_bytes);
  add(Metric::kCacheOriginRequests, counters.origin_requests);
  add(Metric::kCacheStreamedBytes, counters.streamed_bytes);
  add(Metric::kCacheWaits, counters.waits);
  add(Metric::kCacheHedges, counters.hedges);
  add(Metric::kCachePrefetchedBytes, counters.prefetched_bytes);
  add(Metric::kCacheUnusedBytes, counters.unused_bytes);
  add(Metric::kCacheRefusedBlocks, counters.node.refused_blocks);
  add(Metric::kCacheDroppedBlocks, counters.node.dropped_blocks);
  add(Metric::kCacheDegraded, counters.node.degraded);
  for (const auto& [directory, disk] : cache::CountersOfAllDisks())
    snapshot->sources.push_back({directory, disk.reads, disk.read_bytes, disk.read_ns});
}

// Takes off what is only true now. Lives of threads, times and counts stay.
void KeepWhatGrows(ProcessSnapshot* snapshot) {
  for (PoolSnapshot& pool : snapshot->pools) pool.threads = 0;
  std::erase_if(snapshot->metrics, [](const MetricValue& one) {
    return InfoOf(one.metric).kind != MetricKind::kCounter;
  });
  snapshot->settings.clear();
}

void TraceSave(const ProcessWatch::EndedSave& save) {
  if (!TraceIsOn()) return;
  const uint64_t end = NowNanos();
  const uint64_t begun = end - std::min(end, save.work_ns);
  TraceEvent event;
  event.kind = TraceKind::kSave;
  event.id = save.step;
  event.amount = save.written_bytes;
  event.times = {begun - std::min(begun, save.queued_ns), begun,
                 end - std::min(save.work_ns, save.publish_ns), end};
  Trace(event);
}

}  // namespace

ProcessWatch& ProcessWatch::OfThisProcess() {
  static auto* watch =
      new object::PerProcess<ProcessWatch>([] { return std::make_unique<ProcessWatch>(); });
  return watch->Get();
}

ProcessWatch::ProcessWatch()
    : begin_ns_(NowNanos()), begin_unix_ns_(WallClockNanos()), job_(JobOfEnvironment()) {}

ProcessWatch::Part::Part(ProcessWatch* watch, uint64_t number)
    : watch_(watch), number_(number), fork_generation_(ForkGeneration()) {}

ProcessWatch::Part::~Part() {
  if (ForkGeneration() == fork_generation_) watch_->Remove(number_);
}

Status ProcessWatch::Part::ChangeSetting(const std::string& name, uint64_t value,
                                         const Author& author) {
  if (ForkGeneration() != fork_generation_)
    return Status(Code::kNotFound, "what is watched was made before fork()");
  MutexLock lock(&watch_->mu_);
  for (const Watched& part : watch_->parts_)
    if (part.number == number_) return watch_->ChangeOf(part, name, value, author);
  return Status(Code::kNotFound, "what is watched has ended");
}

std::unique_ptr<ProcessWatch::Part> ProcessWatch::Add(Look look, Change change, LastUse last_use) {
  MutexLock lock(&mu_);
  const uint64_t number = next_++;
  if (!last_use) last_use = [added_ns = NowNanos()] { return added_ns; };
  parts_.push_back({number, std::move(look), std::move(change), std::move(last_use)});
  return std::make_unique<Part>(this, number);
}

// That used last is the last one.
std::vector<const ProcessWatch::Watched*> ProcessWatch::ByUse() const {
  std::vector<std::pair<uint64_t, const Watched*>> uses;
  for (const Watched& part : parts_) uses.emplace_back(part.last_use(), &part);
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Watched*> parts;
  for (const auto& [_, part] : uses) parts.push_back(part);
  return parts;
}

void ProcessWatch::Remove(uint64_t number) {
  MutexLock lock(&mu_);
  auto found = std::find_if(parts_.begin(), parts_.end(),
                            [&](const Watched& one) { return one.number == number; });
  if (found == parts_.end()) return;
  found->look(&past_);
  KeepWhatGrows(&past_);
  parts_.erase(found);
}

void ProcessWatch::SetJob(std::string job) {
  MutexLock lock(&mu_);
  job_ = std::move(job);
}

void ProcessWatch::SetModel(double flops_per_step, double peak_flops_per_second) {
  MutexLock lock(&mu_);
  flops_per_step_ = flops_per_step;
  peak_flops_ = peak_flops_per_second;
}

void ProcessWatch::BookPython(uint64_t ns) {
  python_.Busy(Stage::kTransform, ns);
  TraceInterval(TraceKind::kPython, static_cast<uint8_t>(Stage::kTransform), ns, 0);
}

void ProcessWatch::BookSaveStall(uint64_t ns) {
  saves_.Busy(Stage::kStep, ns);
  TraceInterval(TraceKind::kSaveStall, static_cast<uint8_t>(Stage::kStep), ns, 0);
  MutexLock lock(&mu_);
  save_stall_ns_ += ns;
}

void ProcessWatch::BookSave(const EndedSave& save) {
  saves_.Busy(Stage::kCopy, save.work_ns, save.written_bytes);
  TraceSave(save);
  MutexLock lock(&mu_);
  ++(save.published ? saves_published_ : saves_failed_);
  saved_bytes_ += save.written_bytes;
}

ProcessWatch::LoopTime ProcessWatch::Loop() {
  MutexLock lock(&mu_);
  ProcessSnapshot parts;
  for (const Watched& part : parts_) part.look(&parts);
  return {.input_wait_ns = past_.input_wait_ns + parts.input_wait_ns,
          .between_batches_ns = past_.between_batches_ns + parts.between_batches_ns};
}

ProcessSnapshot ProcessWatch::Snapshot() {
  MutexLock lock(&mu_);
  ProcessSnapshot snapshot = past_;
  for (const Watched* part : ByUse()) part->look(&snapshot);
  AddStores(&snapshot);
  AddCaches(&snapshot);
  AddUsage(&snapshot);
  StageReport saves{};
  saves_.AddTo(&saves);
  if (saves_published_ + saves_failed_ > 0 || save_stall_ns_ > 0) {
    snapshot.AddPool({"checkpoint", 0, 0}, saves);
    snapshot.AddMetric(Metric::kCheckpointSaves, static_cast<double>(saves_published_));
    snapshot.AddMetric(Metric::kCheckpointFailures, static_cast<double>(saves_failed_));
    snapshot.AddMetric(Metric::kCheckpointWrittenBytes, static_cast<double>(saved_bytes_));
  }
  StageReport python{};
  python_.AddTo(&python);
  if (python[static_cast<size_t>(Stage::kTransform)].count > 0)
    snapshot.AddPool({"python", 0, 0}, python);
  snapshot.save_stall_ns += save_stall_ns_;
  snapshot.changes = changes_;
  snapshot.job = job_;
  snapshot.pid = ProcessId();
  snapshot.host = HostName();
  snapshot.model_flops_per_step = flops_per_step_;
  snapshot.peak_flops_per_second = peak_flops_;
  snapshot.begin_unix_ns = begin_unix_ns_;
  snapshot.end_unix_ns = WallClockNanos();
  snapshot.window_ns = NowNanos() - begin_ns_;
  return snapshot;
}

Status ProcessWatch::ChangeSetting(const std::string& name, uint64_t value, const Author& author) {
  MutexLock lock(&mu_);
  const std::vector<const Watched*> parts = ByUse();
  std::string last_used_says;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Status status = ChangeOf(**part, name, value, author);
    if (status.code() != Code::kNotFound) return status;
    if (last_used_says.empty() && (*part)->change)
      last_used_says = "; " + std::string(status.message());
  }
  return Error(Code::kNotFound, "no setting of this process that can be changed is called '{}'{}",
               EscapeText(name), last_used_says);
}

Status ProcessWatch::ChangeOf(const Watched& part, const std::string& name, uint64_t value,
                              const Author& author) {
  if (!part.change) return Status(Code::kNotFound, "it has no settings");
  HR_ASSIGN_OR_RETURN(const uint64_t before, part.change(name, value));
  if (before == value) return OkStatus();
  constexpr size_t kMostChanges = 32, kMostBy = 64, kMostWhy = 256;
  if (changes_.size() == kMostChanges) changes_.erase(changes_.begin());
  changes_.push_back({++num_changes_, WallClockNanos(), name, before, value,
                      EscapeText(author.by.substr(0, kMostBy)),
                      EscapeText(author.why.substr(0, kMostWhy))});
  return OkStatus();
}

}  // namespace headrace::agent
