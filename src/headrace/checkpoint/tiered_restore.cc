#include "headrace/checkpoint/tiered_restore.h"

#include <utility>

namespace headrace::checkpoint {
namespace {

using Memories = std::vector<std::shared_ptr<const HelperMemory>>;

bool IsChosen(const MemoryCheckpoint& one, const CheckpointChoice& choice) {
  if (one.manifest.empty() || (choice.step && one.entry.id.step != *choice.step)) return false;
  return !choice.full_before ||
         (one.entry.kind == "full" && Newer(*choice.full_before, one.entry.id));
}

// The newest in memory whose manifest is known.
const MemoryCheckpoint* NewestInMemory(const Memories& memories, const CheckpointChoice& choice) {
  const MemoryCheckpoint* newest = nullptr;
  for (const auto& memory : memories)
    for (const MemoryCheckpoint& one : memory->content().checkpoints)
      if (IsChosen(one, choice) && (newest == nullptr || Newer(one.entry.id, newest->entry.id)))
        newest = &one;
  return newest;
}

void ReadMemories(const std::string& home, uint32_t rank, const Context& ctx,
                  TieredCheckpoint* checkpoint) {
  std::vector<uint32_t> ranks{rank};
  if (rank != 0) ranks.push_back(0);
  for (uint32_t one : ranks) {
    auto memory = HelperMemory::Read(home, one, ctx);
    if (!memory.ok()) {
      checkpoint->skipped.push_back(memory.status());
    } else if (*memory != nullptr) {
      checkpoint->memories.push_back(*std::move(memory));
    }
  }
}

// From the nearest tier that lists the checkpoint and can give its manifest.
Result<Manifest> ManifestOf(const Tiers& tiers, const FoundCheckpoint& found, const Context& ctx) {
  Status first;
  for (size_t i = found.tier; i < tiers.size(); ++i) {
    const Context within = ContextFor(*tiers[i], ctx);
    auto catalog = tiers[i]->store.Read(within);
    const CatalogEntry* entry = catalog.ok() ? catalog->Find(found.entry.id) : nullptr;
    if (!catalog.ok() && first.ok()) first = catalog.status();
    if (entry == nullptr) continue;
    auto manifest = tiers[i]->store.ReadManifest(*entry, within);
    if (manifest.ok()) return manifest;
    if (first.ok()) first = manifest.status();
  }
  return first.ok() ? Error(Code::kNotFound, "{} was removed meanwhile", found.entry.id.Text())
                    : first;
}

}  // namespace

Result<TieredCheckpoint> FindCheckpoint(const Tiers& tiers, const std::string& home, uint32_t rank,
                                        const CheckpointChoice& choice, const Context& ctx) {
  TieredCheckpoint checkpoint;
  if (choice.level == Level::kMemory && !home.empty()) ReadMemories(home, rank, ctx, &checkpoint);
  std::vector<Status> skipped;
  auto found = FindNewest(tiers, choice, ctx, &skipped);
  for (Status& status : skipped) checkpoint.skipped.push_back(std::move(status));
  const MemoryCheckpoint* kept = NewestInMemory(checkpoint.memories, choice);
  if (kept != nullptr && (!found.ok() || Newer(kept->entry.id, found->entry.id))) {
    checkpoint.entry = kept->entry;
    HR_ASSIGN_OR_RETURN(checkpoint.manifest,
                        DecodeManifest(AsBytes(kept->manifest), "a manifest in memory"));
    return checkpoint;
  }
  HR_RETURN_IF_ERROR(found.status());
  checkpoint.entry = found->entry;
  HR_ASSIGN_OR_RETURN(checkpoint.manifest, ManifestOf(tiers, *found, ctx));
  return checkpoint;
}

Status RestoreFromTiers(const Tiers& tiers,
                        std::span<const std::shared_ptr<const HelperMemory>> memories,
                        const Manifest& manifest, std::span<const WantedBox> wanted,
                        const RestoreOptions& options, const Context& ctx, TieredReport* report) {
  std::vector<DataFiles*> places;
  std::vector<std::string> names;
  for (const auto& memory : memories) {
    places.push_back(memory->content().files.get());
    names.emplace_back(LevelName(Level::kMemory));
  }
  for (const auto& tier : tiers) {
    places.push_back(tier->files.get());
    names.emplace_back(LevelName(tier->level));
  }
  RestoreReport read;
  HR_RETURN_IF_ERROR(Restore(places, manifest, wanted, options, ctx, &read));
  report->wanted_bytes = read.wanted_bytes;
  report->read_bytes = read.read_bytes;
  for (size_t i = 0; i < places.size(); ++i) {
    // Several memories are one place: what the last of them refused, all did.
    if (report->places.empty() || report->places.back().name != names[i])
      report->places.push_back({.name = names[i]});
    report->places.back().bytes += read.places[i].bytes;
    report->places.back().refused = read.places[i].refused;
  }
  return OkStatus();
}

}  // namespace headrace::checkpoint
