// What the doctor looks at: what a job did, cut into windows of time, and the facts of its machine
// and data set. Plain values; whoever has them (a live job, a record, a simulation) fills them in.
// Times are in seconds, rates per second. A fact that is not known is 0 or empty, and no check
// draws conclusions from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/stage_timer.h"

namespace headrace::doctor {

// One place that samples are read from: a disk, a folder of a cache, a server.
struct SourceTotals {
  std::string name;
  uint64_t reads = 0, bytes = 0;
  double seconds = 0;  // spent in the reads
};

// What one rank did in a stretch of time. Counts and times are of this stretch alone.
struct Window {
  double start_s = 0;  // since the run began, by a steady clock
  double seconds = 0;
  uint32_t threads = 0;               // worker threads of the loader
  uint64_t samples = 0, batches = 0;  // delivered
  StageReport stages{};               // of the worker threads; kQueue and kStep are not used here
  // The consumer's time: these four add up to `seconds`, but for what it did before the first
  // batch.
  double input_wait_s = 0;  // it waited for a batch
  double step_s = 0;        // it computed, or waited for other ranks
  double python_s = 0;      // transforms written in Python
  double save_stall_s = 0;  // a save blocked it
  // The part of the window in which a save was being written, blocking or not.
  double saving_s = 0;
  double cpu_s = 0;               // processor time of the process
  double run_delay_s = 0;         // its threads could run and waited for a processor
  double throttled_s = 0;         // they were stopped by the quota of a control group
  uint64_t origin_bytes = 0;      // came over the network
  uint64_t cache_hit_bytes = 0;   // came from the node's cache
  uint64_t device_bytes = 0;      // came from local devices rather than from the page cache
  bool knows_device = false;      // device_bytes was measured
  uint64_t requests = 0;          // to object stores, tries counted each
  uint64_t refused_requests = 0;  // of these: answered "slow down" or "too many requests"
  double back_off_s = 0;          // workers waited before such a request was tried again
  int64_t wall_clock_ns = 0;      // by the system's clock, at the end of the window; 0: unknown
  std::vector<SourceTotals> sources;

  // Adds counts and times; keeps the earlier start. The greater thread count and the later clock
  // stay.
  void Add(const Window& other);
  const StageTotals& stage(Stage s) const { return stages[static_cast<size_t>(s)]; }
  double busy_s(Stage s) const { return static_cast<double>(stage(s).busy_ns) * 1e-9; }
  // Share of the time in which the consumer got no work done for want of input, Python included.
  double input_stall() const { return seconds > 0 ? (input_wait_s + python_s) / seconds : 0; }
  double samples_per_s() const { return seconds > 0 ? static_cast<double>(samples) / seconds : 0; }
};

struct MachineFacts {
  double cpus = 0;  // that the job may use: affinity mask and quota of the control group
  uint64_t memory_bytes = 0;
  double network_bytes_per_s = 0;  // the most that this node can receive
  double disk_bytes_per_s = 0;     // the most that the device of data or cache reads
  std::string clock_source;        // as the kernel names it
  double mhz = 0, max_mhz = 0;     // of the processors, under load and at best
  // Some processors may be threads of one core, or of a core that another machine uses too: two of
  // them then do less than twice the work of one.
  bool shares_cores = false;
};

struct JobFacts {
  uint32_t world_size = 1;
  uint32_t node_ranks = 1;  // of them on this node
  bool has_cache = false;
  uint64_t cache_limit_bytes = 0;
  uint64_t epoch_bytes = 0;    // of the shards that this node reads in an epoch
  uint32_t request_limit = 0;  // requests to the origin at once
  // Images whose seek points were of no use, and all images.
  uint64_t images = 0, images_without_seek_points = 0, progressive_images = 0;
};

struct DatasetFacts {
  std::string name;  // as the user names it
  std::string kind;  // "tar", "folder", "list", ...
  uint64_t num_shards = 0, num_samples = 0;
  uint64_t bytes = 0;
  // Files of the same kind in the folders that it was opened from, whether it names them or not.
  uint64_t present_files = 0;
};

// One process that consumes batches.
struct RankRun {
  uint32_t rank = 0;
  std::string node;
  MachineFacts machine;
  JobFacts job;
  std::vector<Window> windows;  // by time, without overlap
};

struct JobRun {
  std::string name;
  DatasetFacts dataset;
  std::vector<RankRun> ranks;
};

// The sum over the windows, from the second one after the first batch on: what comes before is the
// start, which no cure of a running job shortens. All of them where there are fewer than 4.
Window SteadyTotal(const std::vector<Window>& windows);
// The windows that SteadyTotal adds up.
std::vector<Window> SteadyWindows(const std::vector<Window>& windows);

}  // namespace headrace::doctor
