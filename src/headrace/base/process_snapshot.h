// Where the time of one process went: what /snapshot of its admin server gives, a run record keeps,
// and the doctor, `headrace top` and the agent read. docs/design/observability.md.
//
// All counts and times only grow while the process lives, so the difference of two snapshots
// (Since) is what happened between them, exactly. A plain value: one owner at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/log_histogram.h"
#include "headrace/base/metrics.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/status.h"

namespace headrace {

// Threads that do the same work: "loader" (its workers) and "consumer" (the training loop).
// Requests to an object store ("store") and saves ("checkpoint") run beside each other, not on a
// thread each, and transforms in Python ("python") on the loop's: threads and thread_ns of these
// pools are 0.
struct PoolSnapshot {
  std::string name;
  uint64_t threads = 0;    // now
  uint64_t thread_ns = 0;  // wall time x threads: each thread counted from its start to its end
};

// What a pool did in one stage. Times in nanoseconds, summed over its threads, or over requests
// where there are none: then busy_ns / window_ns is how many ran at once.
//
// In each stage of threads busy + wait + idle = thread_ns of the pool, exactly. A thread is idle
// for a stage while it is in another one, or in none.
struct StageSnapshot {
  std::string pool;
  std::string name;  // StageName
  uint64_t busy_ns = 0;
  uint64_t wait_ns = 0;  // held up by somebody else: rows, room, memory, a batch
  uint64_t count = 0;    // items: samples; of "plan", "queue" and "step" batches; requests; saves
  uint64_t bytes = 0;
  LogHistogram durations;  // busy time of each item
  LogHistogram waits;      // each wait
};

// The value of one declared metric. A gauge's is that of now.
struct MetricValue {
  Metric metric{};
  std::string label;  // the value of the metric's label; empty when it has none
  double value = 0;
};

// One place that data are read from beside others of its kind: a directory of the node's cache.
struct SourceSnapshot {
  std::string name;
  uint64_t reads = 0, bytes = 0;  // that succeeded
  uint64_t busy_ns = 0;           // from call to end, summed over them
};

// A setting that may be changed while the process runs, inside its bounds.
struct SettingValue {
  std::string name;  // as in the loader's options: "threads", "prefetch_bytes"...
  uint64_t value = 0;
  uint64_t min = 0, max = 0;
  std::string unit = {};  // "bytes", or what is counted
};

// A setting that was changed while the process ran.
struct SettingChange {
  uint64_t number = 0;  // counts all changes of the process, from 1 on
  int64_t unix_ns = 0;
  std::string name;
  uint64_t from = 0, to = 0;
  std::string by;   // "headrace doctor", "autotune", "set_threads"...
  std::string why;  // one sentence, or empty
};
// "threads: 4 to 6, by autotune: ...", in printable letters.
std::string ChangeText(const SettingChange& change);

struct ProcessSnapshot {
  static constexpr uint64_t kVersion = 1;

  // Who: the job's name (HEADRACE_JOB, else the scheduler's), this process's place in it.
  std::string job;
  uint64_t rank = 0, world_size = 1;
  int64_t pid = 0;
  std::string host;
  std::string dataset;  // path or URL of what is loaded; empty without a loader

  // When: nanoseconds since 1970 by the system's clock, and the length by a steady one.
  int64_t begin_unix_ns = 0, end_unix_ns = 0;
  uint64_t window_ns = 0;

  std::vector<PoolSnapshot> pools;
  std::vector<StageSnapshot> stages;  // those in which something happened
  std::vector<MetricValue> metrics;
  std::vector<SourceSnapshot> sources;
  std::vector<SettingValue> settings;
  std::vector<SettingChange> changes;  // the latest ones, oldest first

  // The training loop's time: waiting for batches, and between them, from the first batch asked for
  // to the last one given. Saves stop the loop between two batches: their stall is a part of that.
  uint64_t input_wait_ns = 0;
  uint64_t between_batches_ns = 0;
  uint64_t save_stall_ns = 0;
  uint64_t batches = 0;  // given to the loop: steps

  // What a model's steps cost and what the accelerator could do, both if the user has told them.
  double model_flops_per_step = 0;
  double peak_flops_per_second = 0;  // of this rank's accelerator

  // Time the loop computed: between batches and not stalled by a save.
  uint64_t StepNs() const {
    return between_batches_ns > save_stall_ns ? between_batches_ns - save_stall_ns : 0;
  }
  // Shares of the loop's time (waiting and between batches); 0 when there was none.
  double InputStall() const;
  double SaveStall() const;
  // Accelerator utilization as MLPerf Storage defines it: compute time / total time.
  double Au() const;
  // Model FLOPs utilization: FLOPs of the steps / (peak x total time). Empty when not told.
  std::optional<double> Mfu() const;

  // Null when there is none.
  const PoolSnapshot* FindPool(std::string_view name) const;
  const StageSnapshot* FindStage(std::string_view pool, std::string_view name) const;
  // The stage that most of the busy time of a pool goes to; null without any.
  const StageSnapshot* BusiestStage(std::string_view pool) const;
  // thread_ns of the stage's pool - busy - wait; 0 for requests.
  uint64_t IdleNs(const StageSnapshot& stage) const;
  // The value of a metric, with that label; 0 when there is none.
  double Value(Metric metric, std::string_view label = "") const;
  bool Has(Metric metric, std::string_view label = "") const;
  // Time of a pool's threads that no stage accounts for.
  uint64_t UnbookedNs(std::string_view pool) const;

  // Adds a pool and what it did. A second call for the same pool (two loaders) is added to the
  // first. Of lives that were looked at before their last event, the rest is added.
  void AddPool(const PoolSnapshot& pool, const StageReport& report);
  // Adds to the value, also to a gauge's.
  void AddMetric(Metric metric, double value, std::string_view label = "");

  // Null when there is none of that name.
  const SettingValue* FindSetting(std::string_view name) const;

  // What happened between an earlier snapshot of the same process and this one, changes of settings
  // among it. Gauges, settings and threads are those of this one.
  ProcessSnapshot Since(const ProcessSnapshot& earlier) const;

  // JSON as the design page shows it. FromJson takes what ToJson gives; members it does not know
  // are skipped, so a newer process can be read. kInvalidArgument names what is wrong.
  Json ToJson() const;
  static Result<ProcessSnapshot> FromJson(const Json& json);

 private:
  PoolSnapshot* PoolOf(std::string_view name);
  uint64_t BookedNs(std::string_view pool) const;
};

}  // namespace headrace
