// Puts the data files that tiny checkpoints speak of into a store: right lengths, no content. For
// tests only.
#pragma once

#include <string>

#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/testing/tiny_checkpoint.h"

namespace headrace::checkpoint {

inline Status PutTinyFiles(const StorePlace& place, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    const std::string data(file.bytes, 'd'), sums(ChunkSumsBytes(file.bytes), 's');
    HR_RETURN_IF_ERROR(
        place.store->Put(place.prefix + file.DataKey(), AsBytes(data), {}, {}).status());
    HR_RETURN_IF_ERROR(
        place.store->Put(place.prefix + file.SumsKey(), AsBytes(sums), {}, {}).status());
  }
  return OkStatus();
}

inline Manifest TinyManifest(const SaveId& id, uint32_t world_size = 2) {
  return AssembleAll(TinyRanks(id, world_size, TinyTensors())).value();
}

// Puts the files and publishes.
inline Status PublishTiny(CatalogStore* store, const SaveId& id, Level level = Level::kLocal) {
  const Manifest manifest = TinyManifest(id);
  HR_RETURN_IF_ERROR(PutTinyFiles(store->place(), manifest));
  return store->Publish(id.epoch, manifest, level, {});
}

// "100/1/1 local, 200/1/1 remote": step, epoch, attempt and level.
inline std::string CatalogLine(const Catalog& catalog) {
  std::string line;
  for (const CatalogEntry& entry : catalog.entries)
    line += fmt::format("{}{}/{}/{} {}", line.empty() ? "" : ", ", entry.id.step, entry.id.epoch,
                        entry.id.attempt, LevelName(entry.level));
  return line;
}
inline std::string CatalogLine(CatalogStore* store) {
  const Result<Catalog> catalog = store->Read({});
  return catalog.ok() ? CatalogLine(*catalog) : catalog.status().ToString();
}

}  // namespace headrace::checkpoint
