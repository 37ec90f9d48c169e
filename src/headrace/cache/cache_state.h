// What all processes of a node share about one cache, in memory-mapped words
// (docs/formats/cache.md): the bytes in use, the limit, the clock, the progress of plans, and when
// each block is expected to be used. Everything here is a hint but the bytes in use: a word that is
// lost or stale costs a worse choice of what to evict, never wrong bytes. Thread-safe and safe
// between processes; no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/cache/block_format.h"
#include "headrace/cache/policy/expected_use.h"
#include "headrace/env/file.h"

namespace headrace::cache {

inline constexpr uint32_t kNumPlans = 64;  // plan 0 stands for "no plan"

class CacheState {
 public:
  // `steady_ms` is a clock that goes on while the machine runs and is the same in all processes.
  // `use_words` is a multiple of 8. Errors as FileSystem::OpenSharedWords.
  static Result<std::unique_ptr<CacheState>> Open(FileSystem* fs, const std::string& counters_path,
                                                  const std::string& uses_path, uint64_t use_words,
                                                  std::function<uint64_t()> steady_ms);

  // kIoError: the files of the words cannot be read any more, so that nothing here is shared or
  // true; open them again. Looks at one word, so that a disk that has just gone is noticed.
  Status Check() const;

  // Puts the clock right after a restart of the machine, which begins the steady clock anew. Only
  // while no other process opens the cache.
  void StartClock();
  Tick Now() const;

  uint64_t used_bytes() const;
  // Adds or takes away; returns the new value.
  uint64_t AddUsed(int64_t bytes);
  void SetUsed(uint64_t bytes);
  uint64_t limit_bytes() const;       // 0: none was set yet
  uint64_t free_floor_bytes() const;  // as above
  void SetLimits(uint64_t limit_bytes, uint64_t free_floor_bytes);

  void SetUse(const BlockId& id, const ExpectedUse& use);
  // A block was read: counts for blocks that no plan has a claim on.
  void Touch(const BlockId& id);
  std::optional<ExpectedUse> Use(const BlockId& id) const;
  void Forget(const BlockId& id);

  void SetProgress(uint32_t plan, const PlanProgress& progress);
  std::vector<PlanProgress> AllProgress() const;  // kNumPlans

 private:
  CacheState() = default;
  // The place of the block's word, if it has one.
  std::optional<size_t> FindWord(const BlockId& id) const;
  // True while a live plan still has that use before it.
  bool IsClaimed(const ExpectedUse& use, Tick now) const;

  std::unique_ptr<SharedWords> counters_, uses_;
  std::function<uint64_t()> steady_ms_;
};

}  // namespace headrace::cache
