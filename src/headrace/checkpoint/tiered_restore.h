// Restoring from the nearest tier that has each piece: a helper's memory, this node's folders, a
// peer, the destination. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/helper_client.h"
#include "headrace/checkpoint/manifest.h"
#include "headrace/checkpoint/restore.h"
#include "headrace/checkpoint/tiers.h"

namespace headrace::checkpoint {

struct TieredCheckpoint {
  CatalogEntry entry;  // as the nearest tier tells it
  Manifest manifest;
  // Of the helpers that have anything, the rank's own one first.
  std::vector<std::shared_ptr<const HelperMemory>> memories;
  std::vector<Status> skipped;  // tiers that could not be asked
};

// With the level kMemory the helpers of `rank` and of rank 0 that listen at `home` are asked, too,
// after they have got ready what they were handed in. Rank 0's by all ranks: what one rank alone
// saved lies there, so that all of them find the same. An empty `home`: there is none.
//   kNotFound  there is no checkpoint.
//   others     as FindNewest, and those of reading the manifest.
Result<TieredCheckpoint> FindCheckpoint(const Tiers& tiers, const std::string& home, uint32_t rank,
                                        const CheckpointChoice& choice, const Context& ctx);

struct TieredReport {
  uint64_t wanted_bytes = 0, read_bytes = 0;
  struct Place {
    std::string name;      // "memory", "local", "peer", "remote"
    uint64_t bytes = 0;    // read from there
    uint64_t refused = 0;  // files that were missing or damaged there and came from the next
  };
  std::vector<Place> places;  // from the nearest to the farthest
};
// Fills all boxes; failures are those of Restore.
Status RestoreFromTiers(const Tiers& tiers,
                        std::span<const std::shared_ptr<const HelperMemory>> memories,
                        const Manifest& manifest, std::span<const WantedBox> wanted,
                        const RestoreOptions& options, const Context& ctx, TieredReport* report);

}  // namespace headrace::checkpoint
