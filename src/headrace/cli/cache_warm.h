// `headrace cache warm`: brings a data set, or what some ranks read of it in an epoch, into the
// cache of this node. The main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/cli/commands.h"
#include "headrace/dataset/dataset.h"

namespace headrace::cli {

class CacheWarm {
 public:
  void Declare(Arguments* arguments);
  // The session reads URLs through the cache. Failures are those of Dataset::Open and cache::Warm;
  // kInvalidArgument: a data set that is not read through a cache, ranks that make no sense.
  Result<ExitCode> Run(Session* session, const std::string& dataset);

 private:
  // The shards to bring, in the order in which they are read.
  Result<std::vector<uint32_t>> ChooseShards(const dataset::Dataset& data) const;
  Result<std::vector<uint32_t>> ReadRanks() const;

  std::string ranks_, tail_ = "drop";
  uint64_t epoch_ = 0, world_size_ = 1, seed_ = 0, lanes_ = 0, window_ = 0;
  std::optional<uint64_t> global_batch_;
  bool no_shuffle_ = false;
};

}  // namespace headrace::cli
