#include "headrace/agent/node_store_watch.h"

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/preflight.h"
#include "headrace/object/url.h"
#include "headrace/object/url_file_system.h"

namespace headrace::agent {

namespace {

constexpr size_t kMostCheckpoints = 50;  // of a store that are told
constexpr size_t kMostDatasets = 256;    // that are looked at

using checkpoint::CatalogEntry;

// A checkpoint, and what each tier that lists it says.
struct Found {
  CatalogEntry entry;  // of the nearest tier
  struct Place {
    checkpoint::Level level;
    int64_t published_ns;
  };
  std::vector<Place> places;

  Json ToJson() const {
    Json list = Json::MakeArray();
    for (const Place& place : places)
      list.Append(Json::MakeObject()
                      .Set("level", checkpoint::LevelName(place.level))
                      .Set("published_unix_ns", place.published_ns));
    return Json::MakeObject()
        .Set("step", entry.id.step)
        .Set("epoch", entry.id.epoch)
        .Set("attempt", entry.id.attempt)
        .Set("kind", EscapeText(entry.kind))
        .Set("bytes", entry.data_bytes)
        .Set("new_bytes", entry.new_bytes)
        .Set("stall_ns", entry.stall_ns)
        .Set("save_ns", entry.save_ns)
        .Set("restore_ns", entry.restore_ns)
        .Set("places", std::move(list));
  }
};

void AddFound(const CatalogEntry& entry, checkpoint::Level level, std::vector<Found>* all) {
  auto at = std::find_if(all->begin(), all->end(),
                         [&entry](const Found& one) { return one.entry.id == entry.id; });
  if (at == all->end()) at = all->insert(all->end(), Found{entry, {}});
  at->places.push_back({level, entry.published_ns});
}

// Without a password or the query of a URL.
std::string ShownName(const std::string& store) {
  if (!IsUrl(store)) return EscapeText(store);
  auto url = object::ParseUrl(store);
  return url.ok() ? EscapeText(object::WithoutSecrets(*url)) : "a URL that cannot be read";
}

}  // namespace

Json NodeStoreWatch::LookAtCaches() {
  Json list = Json::MakeArray();
  Json json = Json::MakeObject();
  has_cache_ = false;
  if (!options_.cache_directories.empty() && !cache_) {
    auto opened = cache::CacheAdmin::Open(options_.fs, options_.cache_directories);
    if (opened.ok())
      cache_ = *std::move(opened);
    else
      json.Set("error", opened.status().ToString());
  }
  if (!cache_) return json.Set("directories", std::move(list));
  for (const auto& disk : cache_->cache()->disks()) {
    const bool kept = disk->MakeRoomFor(0, {}, cache::Displace::kFarther);
    const std::string& root = disk->paths().root();
    Json one = Json::MakeObject().Set("directory", EscapeText(root));
    one.Set("works", disk->healthy()).Set("has_free_floor", kept);
    one.Set("used_bytes", disk->used_bytes()).Set("limit_bytes", disk->limit_bytes());
    auto free = options_.fs->FreeBytes(root);
    if (free.ok()) one.Set("disk_free_bytes", *free);
    one.Set("given_up_bytes", uint64_t{disk->counters().evicted_bytes});
    list.Append(std::move(one));
  }
  has_cache_ = true;
  cache_used_bytes_ = cache_->cache()->used_bytes();
  cache_limit_bytes_ = cache_->cache()->limit_bytes();
  return json.Set("directories", std::move(list));
}

std::vector<MetricValue> NodeStoreWatch::CacheMetrics() const {
  if (!has_cache_) return {};
  return {{Metric::kNodeCacheUsedBytes, "", static_cast<double>(cache_used_bytes_)},
          {Metric::kNodeCacheLimitBytes, "", static_cast<double>(cache_limit_bytes_)}};
}

Result<checkpoint::Tiers> NodeStoreWatch::OpenStore(const std::string& store) const {
  // Opening a folder makes it; who only looks must not.
  if (!IsUrl(store) && !options_.fs->Exists(store))
    return Error(Code::kNotFound, "nothing is at {} yet", EscapeText(store));
  return checkpoint::OpenTiersAt(options_.fs, store, options_.storage);
}

// Opened anew each time: a run that begins may give the store tiers.
Json NodeStoreWatch::StoreJson(const std::string& store, const Context& ctx) const {
  Json json = Json::MakeObject().Set("store", ShownName(store));
  Json tiers = Json::MakeArray(), list = Json::MakeArray();
  std::vector<Found> all;
  auto opened = OpenStore(store);
  if (!opened.ok()) json.Set("error", opened.status().ToString());
  const checkpoint::Tiers none;
  for (const auto& tier : opened.ok() ? *opened : none) {
    Json one = Json::MakeObject().Set("level", checkpoint::LevelName(tier->level));
    one.Set("place", EscapeText(tier->store.name()));
    auto catalog = tier->store.Read(ctx);
    if (!catalog.ok()) one.Set("error", catalog.status().ToString());
    tiers.Append(std::move(one));
    if (!catalog.ok()) continue;
    for (const CatalogEntry& entry : catalog->entries) AddFound(entry, tier->level, &all);
  }
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return checkpoint::Newer(a.entry.id, b.entry.id);
  });
  json.Set("count", all.size());
  if (all.size() > kMostCheckpoints) all.resize(kMostCheckpoints);
  for (const Found& one : all) list.Append(one.ToJson());
  return json.Set("tiers", std::move(tiers)).Set("checkpoints", std::move(list));
}

Json NodeStoreWatch::LookAtCheckpoints(const Context& ctx) {
  Json list = Json::MakeArray();
  for (const std::string& store : options_.checkpoints) list.Append(StoreJson(store, ctx));
  return Json::MakeObject().Set("stores", std::move(list));
}

const std::map<std::string, doctor::DatasetFacts>& NodeStoreWatch::LookAtDatasets(
    const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (asked_.size() >= kMostDatasets) break;
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    asked_.push_back(name);
    // A relative path is one of the job's, not of this program.
    if (!IsUrl(name) && !name.starts_with('/')) continue;
    auto place = IsUrl(name) ? object::LocateUrl(name, options_.storage)
                             : Result<object::Place>(object::Place{options_.fs, name});
    if (!place.ok()) continue;
    if (auto facts = doctor::LookUpDataset(place->fs, place->path, name)) facts_[name] = *facts;
  }
  return facts_;
}

}  // namespace headrace::agent
