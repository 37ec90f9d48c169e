#include "headrace/checkpoint/prune.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "headrace/env/process.h"
#include "headrace/object/upload_sweep.h"

namespace headrace::checkpoint {
namespace {

// Keys of the data files that an entry names, with their sizes.
Result<std::unordered_map<std::string, uint64_t>> FilesOf(CatalogStore* store,
                                                          const CatalogEntry& entry,
                                                          const Context& ctx) {
  HR_ASSIGN_OR_RETURN(Manifest manifest, store->ReadManifest(entry, ctx));
  std::unordered_map<std::string, uint64_t> files;
  for (const FileEntry& file : manifest.files) files.emplace(file.DataKey(), file.bytes);
  return files;
}

std::string SumsKeyOf(const std::string& data_key) {
  return data_key.substr(0, data_key.rfind('.')) + ".crc";
}

Status DeleteKey(CatalogStore* store, const std::string& key, const Context& ctx) {
  return store->place().store->Delete(store->place().prefix + key, ctx);
}

// All that the present list needs. Keys without the store's prefix.
Result<std::set<std::string>> NamedKeys(CatalogStore* store, const Catalog& catalog,
                                        const Context& ctx) {
  std::set<std::string> named;
  HR_ASSIGN_OR_RETURN(StoreHead head, store->ReadHead(ctx));
  named.insert(head.catalog);
  for (const CatalogEntry& entry : catalog.entries) {
    named.insert(entry.manifest);
    HR_ASSIGN_OR_RETURN(auto files, FilesOf(store, entry, ctx));
    for (const auto& [key, bytes] : files) {
      named.insert(key);
      named.insert(SumsKeyOf(key));
    }
  }
  return named;
}

// Removes what is not named below one prefix.
Status SweepBelow(CatalogStore* store, const std::string& prefix,
                  const std::set<std::string>& named, int64_t youngest_ns, bool dry_run,
                  const Context& ctx, SweepReport* report) {
  const StorePlace& place = store->place();
  object::ListRequest request;
  request.prefix = place.prefix + prefix;
  do {
    HR_ASSIGN_OR_RETURN(object::ListPage page, place.store->List(request, ctx));
    for (const object::ObjectInfo& info : page.objects) {
      std::string key = info.key.substr(place.prefix.size());
      if (named.contains(key)) continue;
      if (info.mtime_ns == 0 || info.mtime_ns > youngest_ns) {
        ++report->young_files;
        continue;
      }
      if (!dry_run) HR_RETURN_IF_ERROR(DeleteKey(store, key, ctx));
      ++report->files;
      report->bytes += info.size_bytes;
    }
    request.token = page.next;
  } while (!request.token.empty());
  return OkStatus();
}

// What is removed when these decisions, one for each entry, are carried out.
Result<PrunePlan> PlanOf(CatalogStore* store, const Catalog& catalog,
                         const std::vector<RetentionDecision>& decisions, const Context& ctx) {
  PrunePlan plan;
  std::set<std::string> kept;
  std::unordered_map<std::string, uint64_t> removed;
  for (size_t i = 0; i < catalog.entries.size(); ++i) {
    plan.rows.push_back({catalog.entries[i], decisions[i].keep, decisions[i].why});
    HR_ASSIGN_OR_RETURN(auto files, FilesOf(store, catalog.entries[i], ctx));
    for (const auto& [key, bytes] : files) {
      if (decisions[i].keep) {
        kept.insert(key);
      } else {
        removed.emplace(key, bytes);
      }
    }
  }
  for (const auto& [key, bytes] : removed) {
    if (kept.contains(key)) continue;
    plan.data_files.push_back(key);
    plan.data_files.push_back(SumsKeyOf(key));
    plan.bytes += bytes;
  }
  return plan;
}

}  // namespace

Result<PrunePlan> PlanPrune(CatalogStore* store, const RetentionRules& rules, const Context& ctx,
                            const std::function<bool(const SaveId&)>& in_use) {
  HR_ASSIGN_OR_RETURN(Catalog catalog, store->Read(ctx));
  std::vector<RetentionCandidate> candidates;
  for (const CatalogEntry& entry : catalog.entries)
    candidates.push_back({.step = entry.id.step,
                          .level = entry.level,
                          .light = entry.kind == "light",
                          .in_use = in_use && in_use(entry.id)});
  return PlanOf(store, catalog, PlanRetention(rules, candidates), ctx);
}

Result<PrunePlan> PlanRemoval(CatalogStore* store, std::span<const SaveId> ids,
                              const Context& ctx) {
  HR_ASSIGN_OR_RETURN(Catalog catalog, store->Read(ctx));
  std::vector<RetentionDecision> decisions;
  for (const CatalogEntry& entry : catalog.entries) {
    bool named = std::ranges::find(ids, entry.id) != ids.end();
    decisions.push_back({.keep = !named, .why = named ? "named" : "not named"});
  }
  return PlanOf(store, catalog, decisions, ctx);
}

Status Prune(CatalogStore* store, uint64_t epoch, const PrunePlan& plan, const Context& ctx,
             std::atomic<uint64_t>* removed) {
  std::vector<SaveId> ids;
  for (const PrunePlan::Row& row : plan.rows)
    if (!row.keep) ids.push_back(row.entry.id);
  if (ids.empty()) return OkStatus();
  HR_RETURN_IF_ERROR(store->Remove(epoch, ids, ctx));
  for (const std::string& key : plan.data_files) {
    HR_RETURN_IF_ERROR(DeleteKey(store, key, ctx));
    if (removed != nullptr) ++*removed;
  }
  for (const PrunePlan::Row& row : plan.rows)
    if (!row.keep) HR_RETURN_IF_ERROR(DeleteKey(store, row.entry.manifest, ctx));
  return OkStatus();
}

Result<SweepReport> Sweep(CatalogStore* store, uint64_t epoch, std::chrono::seconds grace,
                          bool dry_run, const Context& ctx) {
  HR_RETURN_IF_ERROR(store->CheckEpoch(epoch, ctx));
  HR_ASSIGN_OR_RETURN(Catalog catalog, store->Read(ctx));
  HR_ASSIGN_OR_RETURN(std::set<std::string> named, NamedKeys(store, catalog, ctx));
  const int64_t youngest_ns =
      WallClockNanos() - std::chrono::duration_cast<std::chrono::nanoseconds>(grace).count();
  SweepReport report;
  for (const char* prefix : {"data/", "manifests/", "catalogs/", "attempts/"})
    HR_RETURN_IF_ERROR(SweepBelow(store, prefix, named, youngest_ns, dry_run, ctx, &report));
  const StorePlace& place = store->place();
  if (dry_run || !place.store->abilities().upload) return report;
  auto is_old = [&](const object::PendingUpload& upload) {
    return upload.started_ns != 0 && upload.started_ns <= youngest_ns;
  };
  auto swept = object::SweepUploads(place.store.get(), place.prefix + "data/", is_old, ctx);
  if (swept.ok()) report.uploads = *swept;
  return report;
}

}  // namespace headrace::checkpoint
