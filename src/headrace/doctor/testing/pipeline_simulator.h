// A double of a training job on a virtual clock: ranks with workers that read and decode samples,
// disks, a network, processors, and a training loop that steps when all ranks have their batch. Any
// fault that the doctor names can be put in with a strength, alone or with others; and taken out
// again, so that what a cure really gains is known. A pure function of its configuration.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/doctor/run.h"

namespace headrace::doctor::testing {

// The thread count from a moment on.
struct ThreadsChange {
  double at_s = 0;
  int threads = 0;
};

// The job as it is when it is well: it needs 80 to 90 % of what the pipeline can give.
struct PipelineConfig {
  uint64_t seed = 1;
  int ranks = 1;
  int threads = 4;  // workers of each rank
  std::vector<ThreadsChange> threads_changes;
  double cpus = 4;  // of each rank's node
  int batch = 32;
  int batches_ahead = 8;
  double duration_s = 30, window_s = 1;
  double compute_s = 0.1;  // of a batch
  double compute_jitter = 0.02;

  double sample_bytes = 120e3;
  double size_spread = 0.5;  // sizes are spread by this share to both sides
  double meta_s = 0;         // look-up and open of each sample
  double disk_bytes_per_s = 2e9, disk_latency_s = 100e-6;
  // A share of the bytes comes over the network, the rest from the disk.
  double origin_share = 0;
  double network_bytes_per_s = 1.25e9, network_latency_s = 500e-6;
  double page_cache_share = 0;             // of what is read locally
  double decode_s = 8e-3;                  // processor time of a sample of mean size
  double slow_share = 0, slow_factor = 1;  // samples that take so many times as long to decode

  double contention = 0;  // processor time grows by this for each thread over one for a processor
  double python_s = 0;    // of a batch, on the training loop's thread
  double save_every_s = 0, save_stall_s = 0;
  double save_writes_s = 0, save_slows_reads = 1;  // while it is written reads take so many times
  double refused_share = 0, back_off_s = 0;        // requests to the origin that are refused
  int slow_rank = -1;
  double slow_rank_factor = 1;  // its disk's and network's times
  double clock_jump_at_s = 0, clock_jump_s = 0;

  // Facts that no time is simulated for.
  MachineFacts machine;  // what is 0 here is filled in from the above
  JobFacts job;
  DatasetFacts dataset;
};

JobRun Simulate(const PipelineConfig& config);
// Samples per second of one rank after the start.
double SpeedOf(const JobRun& run);

}  // namespace headrace::doctor::testing
