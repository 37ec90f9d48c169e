// Looks at a machine, a data set and the plan of a job before it starts, and says what will hold it
// back. Pure but for the functions that gather facts; safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/dataset/dataset.h"
#include "headrace/doctor/finding.h"
#include "headrace/doctor/machine_probe.h"
#include "headrace/doctor/run.h"

namespace headrace::doctor {

struct DatasetState {
  DatasetFacts facts;
  bool by_url = false;    // read over the network
  bool has_index = true;  // it is stored; else it is made again at each start
  uint64_t largest_shard_bytes = 0;
};

// What the user plans. What is not told is left out of the checks.
struct JobPlan {
  uint32_t world_size = 1;
  uint32_t node_ranks = 1;
  uint64_t threads = 0;  // of each rank's loader; 0: as many as the loader takes by itself
  uint64_t memory_bytes = 128 << 20;  // of each rank's loader
  std::string cache_directory;
  uint64_t cache_limit_bytes = 0;            // 0: half of the free space
  std::optional<uint64_t> cache_free_bytes;  // on the cache's disk; with what it holds already
};

struct Preflight {
  MachineState machine;
  std::optional<DatasetState> dataset;
  std::optional<DiskSpeed> disk;
  JobPlan plan;
};

// The facts of an open data set; lists the folder of its shards. `path` is what the user named.
DatasetState LookAtDataset(const dataset::Dataset& data, const std::string& path);

// What is cheap to know of a data set of which only the name is known: what its manifest says, or,
// of a single tar, that it is one of those that lie there. Else nothing.
std::optional<DatasetFacts> LookUpDataset(FileSystem* fs, const std::string& path,
                                          const std::string& name);

// What is wrong with it, in the order of the checks: cores, memory, /dev/shm, descriptors, shards
// and their sizes against the ranks, small files, index, cache, kernel settings, clock.
std::vector<Finding> CheckPreflight(const Preflight& preflight);
Json PreflightJson(const Preflight& preflight);
// "processors 2 (quota of the control group 1.5)" and so on, one fact a line.
std::string PreflightText(const Preflight& preflight);

}  // namespace headrace::doctor
