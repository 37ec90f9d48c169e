// Makes the manifest of a checkpoint of those of its ranks, and checks that nothing is missing: all
// ranks there, the same save, each tensor of the same type and shape everywhere, its boxes covering
// it once. One owner at a time. 4,096 ranks of 300 boxes take less than a second.
//
//   Assembler assembler(id, world_size);
//   for (...) HR_RETURN_IF_ERROR(assembler.Add(rank_manifest));
//   Result<Manifest> manifest = assembler.Finish();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

class Assembler {
 public:
  Assembler(const SaveId& id, uint32_t world_size);
  ~Assembler();
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;

  // Takes in what a rank wrote, ranks in any order. What does not fit together is told by Finish.
  //   kInvalidArgument  of another save or world size, or of a rank that is already in.
  Status Add(const RankManifest& manifest);
  // Ranks that are not in yet, ascending.
  std::vector<uint32_t> MissingRanks() const;

  // Call once, last. kFailedPrecondition: the message lists all that is wrong, each tensor with its
  // ranks and boxes (the first 100 faults; faults() has them all).
  Result<Manifest> Finish();
  // After Finish: one line for each fault.
  const std::vector<std::string>& faults() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace headrace::checkpoint
