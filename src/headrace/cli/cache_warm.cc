#include "headrace/cli/cache_warm.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/cache/warm.h"
#include "headrace/cli/locate.h"
#include "headrace/cli/progress_line.h"
#include "headrace/loader/read_plan.h"
#include "headrace/object/object_file_system.h"

namespace headrace::cli {
namespace {

using cache::CachingStore;
using loader::BatchPlan;
using loader::Order;

// Objects of one store, each once.
struct Objects {
  std::shared_ptr<CachingStore> store;
  std::vector<object::ObjectInfo> list;
};

Status NotCached(const dataset::Dataset& data) {
  return Error(Code::kInvalidArgument,
               "{} is not in an object store: what lies on this machine needs no cache",
               EscapeText(data.path()));
}

Status AddFile(const dataset::Dataset& data, FileSystem* fs, const std::string& path,
               const Context& ctx, Objects* objects) {
  auto place = object::FindObject(fs, path);
  if (!place.ok() && place.status().code() == Code::kUnimplemented) return NotCached(data);
  HR_RETURN_IF_ERROR(place.status());
  auto store = std::dynamic_pointer_cast<CachingStore>(place->store);
  if (!store) return NotCached(data);
  if (!objects->store) objects->store = store;
  if (objects->store != store)
    return Error(Code::kUnimplemented, "{} is spread over several stores: warm each by itself",
                 EscapeText(data.path()));
  HR_ASSIGN_OR_RETURN(auto object, store->Find(place->key, ctx));
  objects->list.push_back(object->info);
  return OkStatus();
}

// Samples whose fields are files of their own: all of those.
Status AddSampleFiles(std::shared_ptr<const dataset::Dataset> data, FileSystem* fs,
                      const std::vector<uint32_t>& shards, const Context& ctx, Objects* objects) {
  auto reader = dataset::SampleReader::Create(data, {});
  std::set<std::string> seen;
  for (uint32_t shard : shards) {
    for (uint64_t id = data->first_sample(shard); id < data->first_sample(shard + 1); ++id) {
      HR_RETURN_IF_ERROR(ctx.Check());
      HR_ASSIGN_OR_RETURN(dataset::SampleView sample, reader->Locate(id));
      for (const dataset::FieldEntry& entry : sample.entries) {
        if (entry.in_index) continue;
        std::string path = reader->Where(entry).file;
        if (seen.insert(path).second) HR_RETURN_IF_ERROR(AddFile(*data, fs, path, ctx, objects));
      }
    }
  }
  return OkStatus();
}

// The files of shards, and of their indexes, which come into the cache by being opened.
Result<Objects> FindObjects(const std::shared_ptr<const dataset::Dataset>& data, FileSystem* fs,
                            const std::vector<uint32_t>& shards, const Context& ctx) {
  Objects objects;
  for (uint32_t shard : shards) {
    HR_RETURN_IF_ERROR(ctx.Check());
    auto file = data->FileOfShard(shard);
    if (!file.ok() && file.status().code() == Code::kUnimplemented) {
      HR_RETURN_IF_ERROR(AddSampleFiles(data, fs, shards, ctx, &objects));
      return objects;
    }
    HR_RETURN_IF_ERROR(file.status());
    HR_RETURN_IF_ERROR(AddFile(*data, file->fs, file->path, ctx, &objects));
  }
  return objects;
}

}  // namespace

void CacheWarm::Declare(Arguments* arguments) {
  arguments->Text(
      "--ranks", &ranks_,
      "warm: only what these ranks read, as in 0,1,2,3; all of the data set without it");
  arguments->Count("--world-size", &world_size_, "warm: number of ranks");
  arguments->Count("--epoch", &epoch_, "warm: the epoch in which they read it, from 0");
  arguments->Count("--seed", &seed_, "warm: the loader's seed");
  arguments->Count("-b,--global-batch-size", &global_batch_,
                   "warm: samples of a batch over all ranks");
  arguments->Flag("--no-shuffle", &no_shuffle_, "warm: the order of a loader with shuffle=False");
  arguments->Count("--lanes", &lanes_, "warm: number of lanes; 0 for the default");
  arguments->Count("--window", &window_,
                   "warm: shards that are mixed with each other; 0 for the "
                   "default");
  arguments->Choice("--tail", &tail_, {"drop", "pad", "uneven"},
                    "warm: what happens to the samples after the last full batch");
}

Result<std::vector<uint32_t>> CacheWarm::ReadRanks() const {
  std::vector<uint32_t> ranks;
  for (size_t at = 0; at <= ranks_.size();) {
    const size_t end = std::min(ranks_.find(',', at), ranks_.size());
    uint32_t rank = 0;
    const char* last = ranks_.data() + end;
    auto [stopped, error] = std::from_chars(ranks_.data() + at, last, rank);
    if (error != std::errc() || stopped != last || rank >= world_size_)
      return Error(Code::kInvalidArgument,
                   "--ranks: expected numbers from 0 to {} with commas between them, found '{}'",
                   world_size_ - 1, EscapeText(ranks_));
    ranks.push_back(rank);
    at = end + 1;
  }
  return ranks;
}

Result<std::vector<uint32_t>> CacheWarm::ChooseShards(const dataset::Dataset& data) const {
  std::vector<uint32_t> chosen;
  if (ranks_.empty()) {
    for (uint32_t shard = 0; shard < data.shards().size(); ++shard) chosen.push_back(shard);
    return chosen;
  }
  if (world_size_ == 0 || world_size_ > UINT32_MAX || lanes_ > UINT32_MAX || window_ > UINT32_MAX)
    return Error(Code::kInvalidArgument, "--world-size, --lanes or --window is out of range");
  HR_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks, ReadRanks());
  HR_ASSIGN_OR_RETURN(const loader::Tail tail, loader::ParseTail(tail_));
  std::vector<uint64_t> samples;
  for (const dataset::ShardInfo& shard : data.shards()) samples.push_back(shard.num_samples);
  loader::OrderOptions options;
  options.seed = seed_;
  options.shuffle = !no_shuffle_;
  options.lanes = static_cast<uint32_t>(lanes_);
  options.window_shards = static_cast<uint32_t>(window_);
  HR_ASSIGN_OR_RETURN(const Order order, Order::Create(samples, data.version(), options));
  std::vector<bool> seen(samples.size());
  for (uint32_t rank : ranks) {
    HR_ASSIGN_OR_RETURN(BatchPlan plan,
                        BatchPlan::Create(data.num_samples(), global_batch_.value_or(world_size_),
                                          static_cast<uint32_t>(world_size_), rank, tail));
    for (uint32_t shard : loader::ShardsReadIn(order, plan, epoch_, 0)) {
      if (!seen[shard]) chosen.push_back(shard);
      seen[shard] = true;
    }
  }
  return chosen;
}

Result<ExitCode> CacheWarm::Run(Session* session, const std::string& dataset) {
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, dataset));
  HR_ASSIGN_OR_RETURN(auto data, dataset::Dataset::Open(place.fs, place.path, {}));
  HR_ASSIGN_OR_RETURN(const std::vector<uint32_t> shards, ChooseShards(*data));
  cache::WarmProgress progress;
  Objects objects;
  Status status = [&]() -> Status {
    ProgressLine line("warming", *session, [&progress] {
      return ProgressFigures{0, 0, progress.done_bytes, progress.total_bytes};
    });
    HR_ASSIGN_OR_RETURN(objects, FindObjects(data, place.fs, shards, session->ctx));
    if (!objects.store) return OkStatus();  // nothing to bring
    HR_RETURN_IF_ERROR(cache::Warm(objects.store.get(), objects.list, {}, &progress, session->ctx));
    for (uint32_t shard : shards) {
      HR_RETURN_IF_ERROR(session->ctx.Check());
      HR_RETURN_IF_ERROR(data->Index(shard).status());
    }
    (void)objects.store->cache()->WaitUntilIdle(std::chrono::minutes(1));
    return OkStatus();
  }();
  HR_RETURN_IF_ERROR(status);
  const uint64_t total = progress.total_bytes, fetched = progress.fetched_bytes;
  if (session->json) {
    session->out->Print(Json::MakeObject()
                            .Set("objects", objects.list.size())
                            .Set("bytes", total)
                            .Set("fetched_bytes", fetched));
  } else {
    session->out->Print("warm: {} in {} objects are in the cache, {} of these were fetched now\n",
                        FormatSize(total), FormatCount(objects.list.size()), FormatSize(fetched));
  }
  return ExitCode::kOk;
}

}  // namespace headrace::cli
