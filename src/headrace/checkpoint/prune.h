// Removes checkpoints that the rules do not keep, and files that no checkpoint names. Any thread;
// runs beside saves of the same epoch.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/policy/retention.h"

namespace headrace::checkpoint {

struct PrunePlan {
  struct Row {
    CatalogEntry entry;
    bool keep = false;
    std::string why;
  };
  std::vector<Row> rows;                // from the oldest to the newest
  std::vector<std::string> data_files;  // keys that only removed checkpoints name, with their sums
  uint64_t bytes = 0;                   // of these
};

// What the rules would remove; changes nothing. Those that are `in_use` (being drained) stay.
// Failures are those of CatalogStore.
Result<PrunePlan> PlanPrune(CatalogStore* store, const RetentionRules& rules, const Context& ctx,
                            const std::function<bool(const SaveId&)>& in_use = {});
// The same for the checkpoints of these ids, whatever the rules say. Ids that are not there are
// left out.
Result<PrunePlan> PlanRemoval(CatalogStore* store, std::span<const SaveId> ids, const Context& ctx);
// Takes the checkpoints off the list, then removes their files, which `removed` counts. A kill in
// between leaves files that the sweep finds. kFailedPrecondition: another writer has taken over.
Status Prune(CatalogStore* store, uint64_t epoch, const PrunePlan& plan, const Context& ctx,
             std::atomic<uint64_t>* removed = nullptr);

struct SweepReport {
  uint64_t files = 0, bytes = 0;  // removed, or with `dry_run` found
  uint64_t young_files = 0;       // left since they may belong to a save under way
  uint64_t uploads = 0;           // given up: begun in a bucket, and never ended
};
// Removes what no checkpoint on the list names: remains of saves that failed, old catalogs and
// manifests, and parts of files that were being sent. What is younger than `grace` by the store's
// clock stays. Parts that may not be listed or given up are left to the bucket's own rules.
Result<SweepReport> Sweep(CatalogStore* store, uint64_t epoch, std::chrono::seconds grace,
                          bool dry_run, const Context& ctx);

}  // namespace headrace::checkpoint
