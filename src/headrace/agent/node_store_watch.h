// What an agent looks at besides processes: the node's cache, checkpoint stores, data sets. These
// looks may wait for disks and servers, so they have a thread of their own, and what is shown is
// the last look that came to its end. Not thread-safe: that thread's alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/json.h"
#include "headrace/base/process_snapshot.h"
#include "headrace/cache/cache_admin.h"
#include "headrace/checkpoint/tiers.h"
#include "headrace/doctor/run.h"
#include "headrace/env/file.h"
#include "headrace/object/url_settings.h"

namespace headrace::agent {

class NodeStoreWatch {
 public:
  struct Options {
    FileSystem* fs = nullptr;              // of this machine, and of URLs
    object::UrlSettings storage;           // of URLs
    std::string cache_directories;         // with ':' between; empty: none
    std::vector<std::string> checkpoints;  // stores: folders or URLs
  };
  explicit NodeStoreWatch(Options options) : options_(std::move(options)) {}

  // {"directories": [...]}; and upkeep: where the disk of a directory has less free space than the
  // cache is to leave, because other programs have filled it, blocks are given up until it has. A
  // process that reads through the cache does so only when it next writes a block.
  Json LookAtCaches();
  // What the last look at the caches found, in all: of the scope kNode.
  std::vector<MetricValue> CacheMetrics() const;

  // {"stores": [...]}: the newest checkpoints of each, where each is safe and since when. What
  // cannot be read now says why.
  Json LookAtCheckpoints(const Context& ctx);

  // Facts of those of these data sets that have a manifest at an absolute path or a URL. Each is
  // looked at once.
  const std::map<std::string, doctor::DatasetFacts>& LookAtDatasets(
      const std::vector<std::string>& names);

 private:
  Json StoreJson(const std::string& store, const Context& ctx) const;
  Result<checkpoint::Tiers> OpenStore(const std::string& store) const;

  const Options options_;
  std::unique_ptr<cache::CacheAdmin> cache_;  // null: not open yet
  uint64_t cache_used_bytes_ = 0, cache_limit_bytes_ = 0;
  bool has_cache_ = false;
  std::map<std::string, doctor::DatasetFacts> facts_;
  std::vector<std::string> asked_;  // data sets
};

}  // namespace headrace::agent
