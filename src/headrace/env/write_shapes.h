// How a device likes to be written around the page cache: in blocks of what size, and how many of
// them at once. It is found out with the first large files that are written there, each piece of
// 64 MiB another way, and remembered for as long as the process lives. Internal to env.
// Thread-safe.
//
// HEADRACE_DIRECT_WRITE="1MiBx4" forces one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/status.h"

namespace headrace {

struct WriteShape {
  uint64_t block_bytes = uint64_t{1} << 20;  // a power of two, 64 KiB to 4 MiB
  uint32_t depth = 4;                        // blocks under way at once, 1 to 64
  bool operator==(const WriteShape&) const = default;
};

class WriteShapes {
 public:
  static constexpr uint64_t kTrialBytes = uint64_t{64} << 20;
  static constexpr int kRounds = 2;  // each shape is tried so often, and its best time counts

  struct Choice {
    WriteShape shape;
    std::optional<size_t> trial;  // set: the next kTrialBytes are to be timed, and told
  };

  static WriteShapes& OfThisProcess();
  static const std::vector<WriteShape>& Candidates();

  // How to write to a device of which `left_bytes` more will be asked for.
  Choice Next(uint64_t device, uint64_t left_bytes);
  // How long kTrialBytes took. One that was tried by several threads at once counts once.
  void Tell(uint64_t device, size_t trial, std::chrono::nanoseconds time);

 private:
  struct Known {
    size_t trials = 0;                           // told so far
    std::vector<std::chrono::nanoseconds> best;  // of each candidate
  };
  Mutex mu_;
  std::map<uint64_t, Known> devices_ HR_GUARDED_BY(mu_);
};

// Reads "1MiBx4". kInvalidArgument.
Result<WriteShape> ParseWriteShape(std::string_view text);
// What HEADRACE_DIRECT_WRITE says; none when it is not set. kInvalidArgument.
Result<std::optional<WriteShape>> ForcedWriteShape();

}  // namespace headrace
