// Loaders whose shards are read through caches: the same batches, and what the origin is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "headrace/base/keyed_random.h"
#include "headrace/cache/presence.h"
#include "headrace/cache/warm.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/loader/live_settings.h"
#include "headrace/loader/loader.h"
#include "headrace/loader/loader_snapshot.h"
#include "headrace/loader/read_plan.h"
#include "headrace/loader/testing/tiny_dataset.h"
#include "headrace/object/counted_store.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::loader {
namespace {

using ::testing::HasSubstr;
using testing::TinyDataset;

constexpr uint32_t kBlock = 65536;

// A data set in a bucket.
class Bucket {
 public:
  explicit Bucket(const std::vector<uint64_t>& shard_samples) : data_(shard_samples) {
    for (const auto& entry : std::filesystem::directory_iterator(data_.path())) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::string content{std::istreambuf_iterator<char>(file), {}};
      EXPECT_TRUE(memory_->Put(entry.path().filename(), AsBytes(content), {}, {}).ok());
    }
    const auto dataset = data_.Open();
    for (const dataset::ShardInfo& shard : dataset->shards()) bytes_ += shard.size_bytes;
  }
  std::shared_ptr<object::ObjectStore> store() const { return store_; }
  object::FaultyStore* faults() const { return faulty_.get(); }
  const TinyDataset& local() const { return data_; }
  uint64_t bytes() const { return bytes_; }  // of the shards
  uint64_t fetched_bytes() const { return counters_->bytes_read; }

 private:
  TinyDataset data_;
  uint64_t bytes_ = 0;
  std::shared_ptr<object::ObjectStore> memory_ = object::MakeMemoryStore();
  std::shared_ptr<object::FaultyStore> faulty_ = std::make_shared<object::FaultyStore>(memory_);
  std::shared_ptr<object::StoreCounters> counters_ = std::make_shared<object::StoreCounters>();
  std::shared_ptr<object::ObjectStore> store_ = object::MakeCountedStore(faulty_, counters_);
};

std::shared_ptr<const dataset::Dataset> OpenIn(FileSystem* bucket) {
  auto dataset = dataset::Dataset::Open(bucket, "mem://test", {});
  EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
  return *dataset;
}

// A node that reads it through a cache.
class Node {
 public:
  Node(const Bucket& bucket, uint64_t limit_bytes) {
    cache::BlockCacheOptions options;
    options.fs = &files_;
    options.node.directory = "/cache";
    options.node.limit_bytes = limit_bytes;
    options.node.free_floor_bytes = 1;
    options.memory_bytes = 0;
    options.threads = 2;
    options.hedge = false;
    cache_ = *cache::ProcessCache::Create(options);
    store_ = *cache::CachingStore::Create(bucket.store(), cache_, {.block_bytes = kBlock});
    bucket_ = object::MakeObjectFileSystem(store_);
  }
  std::shared_ptr<const dataset::Dataset> Open() { return OpenIn(bucket_.get()); }
  cache::CachingStore* store() { return store_.get(); }
  FaultyFileSystem* files() { return &files_; }
  uint64_t PresentBytes(const std::vector<uint32_t>& shards) {
    std::shared_ptr<const ShardObjects> objects = FindShardObjects(*Open());
    uint64_t bytes = 0;
    for (uint32_t shard : shards)
      bytes += cache::LookFor(store_.get(), objects->keys[shard], {})->present_bytes;
    return bytes;
  }

 private:
  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::shared_ptr<cache::ProcessCache> cache_;
  std::shared_ptr<cache::CachingStore> store_;
  std::shared_ptr<FileSystem> bucket_;
};

// A process that reads it without a cache directory.
class Diskless {
 public:
  Diskless(const Bucket& bucket, uint64_t memory_bytes) {
    cache::BlockCacheOptions options;
    options.memory_bytes = memory_bytes;
    options.threads = 2;
    options.hedge = false;
    store_ = *cache::CachingStore::Create(
        bucket.store(), *cache::ProcessCache::Create(options),
        {.block_bytes = kBlock, .head_ttl_ms = 0, .planned_alone = true});
    bucket_ = object::MakeObjectFileSystem(store_);
  }
  std::shared_ptr<const dataset::Dataset> Open() { return OpenIn(bucket_.get()); }
  uint64_t memory_bytes() { return store_->cache()->memory_bytes(); }

 private:
  std::shared_ptr<cache::CachingStore> store_;
  std::shared_ptr<FileSystem> bucket_;
};

LoaderOptions Options(uint64_t batch, uint32_t world = 1, uint32_t rank = 0) {
  LoaderOptions options;
  options.global_batch = batch;
  options.world_size = world;
  options.rank = rank;
  options.threads = 2;
  options.order.seed = 7;
  options.columns = {{"cls", R"({"type": "label"})", true}, {"txt", "", true}};
  return options;
}

LoaderPtr Make(std::shared_ptr<const dataset::Dataset> dataset, const LoaderOptions& options) {
  auto loader = Loader::Create(std::move(dataset), options);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  return std::move(loader).value();
}

// The samples of the next batch, each of which is checked; empty at the end of the epoch.
std::vector<uint64_t> Next(Loader* loader) {
  auto batch = loader->Next(Context());
  EXPECT_TRUE(batch.ok()) << batch.status().ToString();
  std::vector<uint64_t> ids;
  if (!batch.ok() || !*batch) return ids;
  const auto* cls = reinterpret_cast<const int64_t*>((*batch)->TensorData(0));
  for (uint64_t r = 0; r < (*batch)->num_rows; ++r) {
    const BatchRow& row = (*batch)->rows[r];
    EXPECT_EQ(row.key, TinyDataset::Key(row.sample_id));
    EXPECT_EQ(AsText(row.values[0]), TinyDataset::Text(row.sample_id));
    EXPECT_EQ(cls[r], static_cast<int64_t>(row.sample_id));
    ids.push_back(row.sample_id);
  }
  return ids;
}

std::vector<std::vector<uint64_t>> Epoch(Loader* loader, uint64_t epoch, uint64_t position = 0) {
  std::vector<std::vector<uint64_t>> batches;
  Status begun = loader->Begin(epoch, position);
  EXPECT_TRUE(begun.ok()) << begun.ToString();
  for (auto ids = Next(loader); !ids.empty(); ids = Next(loader)) batches.push_back(ids);
  return batches;
}

// From the middle of one epoch into that of another, and then no more.
void ExpectToEndAnywhere(Loader* loader) {
  for (auto [epoch, position] : {std::pair<uint64_t, uint64_t>{5, 0}, {1, 100}}) {
    ASSERT_TRUE(loader->Begin(epoch, position).ok());
    Next(loader);
  }
  loader->Close();
  EXPECT_EQ(loader->Next(Context()).status().code(), Code::kCancelled);
}

void ExpectTheOriginsFailure(const Bucket& bucket,
                             const std::shared_ptr<const dataset::Dataset>& dataset) {
  LoaderPtr loader = Make(dataset, Options(20));
  bucket.faults()->FailNth(object::StoreOperation::kGet, 1,
                           Error(Code::kPermissionDenied, "not allowed"), UINT64_MAX);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  auto batch = loader->Next(Context());
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(batch.status().ToString(), HasSubstr("shard-"));
}

// There is no cache that could be.
void ExpectNothingToWarm(const std::shared_ptr<const dataset::Dataset>& dataset) {
  LoaderOptions options = Options(10);
  options.cache.require_warm = true;
  auto refused = Loader::Create(dataset, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
}

// Waits until `ready`; a test that waits in vain ends by its time limit.
void Until(const std::function<bool()>& ready) {
  while (!ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Waits until the loader is as far ahead as it goes, so that what was read can be compared.
void Settle(Loader* loader) {
  Until([&] { return loader->stats().ready_batches == 8; });
}

// What a cache must hold for `bytes` of shards that are whole blocks, and for the small objects.
uint64_t LimitFor(uint64_t bytes) {
  return bytes / kBlock * cache::BlockCost(kBlock) + (256 << 10);
}

class FourNodes : public ::testing::TestWithParam<double> {};

// Ranks of four nodes, each with a cache for its part of the data set, or a fraction of it.
TEST_P(FourNodes, ReadTheOriginOnceAndThenWhatTheyCannotHold) {
  constexpr uint32_t kWorld = 4;
  constexpr uint64_t kEpochs = 3;
  const double fraction = GetParam();
  const std::vector<uint64_t> shards(16, 160);
  Bucket bucket(shards);
  LoaderPtr local = Make(bucket.local().Open(), Options(64));
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<LoaderPtr> loaders;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    auto part = static_cast<uint64_t>(static_cast<double>(bucket.bytes()) / kWorld * fraction);
    nodes.push_back(std::make_unique<Node>(bucket, LimitFor(part)));
    LoaderOptions options = Options(64, kWorld, rank);
    loaders.push_back(Make(nodes.back()->Open(), options));
  }
  ASSERT_EQ(loaders[0]->options().order.lanes % kWorld, 0u);
  uint64_t after_first = 0;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto expected = Epoch(local.get(), epoch);
    for (LoaderPtr& loader : loaders) ASSERT_TRUE(loader->Begin(epoch, 0).ok());
    for (const auto& batch : expected) {
      std::vector<uint64_t> joined(batch.size());
      for (uint32_t rank = 0; rank < kWorld; ++rank) {
        const auto ids = Next(loaders[rank].get());
        ASSERT_EQ(ids.size(), batch.size() / kWorld);
        for (size_t i = 0; i < ids.size(); ++i) joined[i * kWorld + rank] = ids[i];
      }
      ASSERT_EQ(joined, batch);
    }
    for (LoaderPtr& loader : loaders) ASSERT_TRUE(Next(loader.get()).empty());
    for (LoaderPtr& loader : loaders) Settle(loader.get());
    if (epoch == 0) after_first = bucket.fetched_bytes();
  }
  uint64_t present = 0;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    auto order = Order::Create(shards, loaders[rank]->state().dataset_version,
                               loaders[rank]->options().order);
    present += nodes[rank]->PresentBytes(OwnShards(*order, loaders[rank]->plan()));
    CacheStats stats = loaders[rank]->stats().cache;
    EXPECT_TRUE(stats.has_plan);
    EXPECT_EQ(stats.keeps_all, fraction < 1);
    EXPECT_EQ(stats.epoch, kEpochs - 1);
    EXPECT_GT(stats.cache.disk_hits, 0u);
  }
  const auto all = static_cast<double>(bucket.bytes());
  const double cached = static_cast<double>(present) / all;
  EXPECT_GE(cached, fraction * 0.9);
  EXPECT_LE(static_cast<double>(after_first), 1.1 * all);
  EXPECT_LE(static_cast<double>(bucket.fetched_bytes() - after_first),
            (kEpochs - 1) * ((1 - std::min(cached, 1.0)) * all + 1));
}

INSTANTIATE_TEST_SUITE_P(All, FourNodes, ::testing::Values(1.0, 0.5));

TEST(CachedLoader, GivesTheSameBatchesWhateverTheCacheDoes) {
  Bucket bucket(std::vector<uint64_t>(12, 60));
  auto expected = Epoch(Make(bucket.local().Open(), Options(20)).get(), 1);
  for (uint64_t limit : {uint64_t{1} << 30, uint64_t{1} << 20, uint64_t{100'000}}) {
    for (uint64_t failing_from : {uint64_t{0}, uint64_t{1}, uint64_t{6}}) {
      Node node(bucket, limit);
      LoaderPtr loader = Make(node.Open(), Options(20));
      if (failing_from > 0) {
        node.files()->FailNth(FileOperation::kCreate, failing_from,
                              Error(Code::kResourceExhausted, "the disk is full"), UINT64_MAX);
        node.files()->FailNth(FileOperation::kRead, failing_from * 20,
                              Error(Code::kIoError, "broken"), UINT64_MAX);
      }
      EXPECT_EQ(Epoch(loader.get(), 1), expected) << limit << " " << failing_from;
      EXPECT_TRUE(loader->stats().cache.has_cache);
    }
  }
}

TEST(CachedLoader, GoesToOtherPlacesAndEnds) {
  Bucket bucket(std::vector<uint64_t>(12, 60));
  Node node(bucket, uint64_t{1} << 21);
  LoaderPtr local = Make(bucket.local().Open(), Options(20));
  LoaderPtr loader = Make(node.Open(), Options(20));
  for (auto [epoch, position] : {std::pair<uint64_t, uint64_t>{0, 0}, {3, 400}, {0, 700}, {2, 0}}) {
    EXPECT_EQ(Epoch(loader.get(), epoch, position), Epoch(local.get(), epoch, position));
    EXPECT_EQ(loader->stats().cache.epoch, epoch);
  }
  ExpectToEndAnywhere(loader.get());
  for (int i = 0; i < 10; ++i) {
    LoaderPtr other = Make(node.Open(), Options(20));
    ASSERT_TRUE(other->Begin(static_cast<uint64_t>(i), 0).ok());
  }
}

TEST(CachedLoader, TellsWhatTheEpochNeedsOfTheOrigin) {
  Bucket bucket(std::vector<uint64_t>(8, 60));
  Node node(bucket, uint64_t{1} << 30);
  LoaderPtr loader = Make(node.Open(), Options(20));
  EXPECT_FALSE(loader->stats().cache.expected_origin_bytes.has_value());
  Epoch(loader.get(), 0);
  EXPECT_EQ(loader->stats().cache.epoch_bytes, bucket.bytes());
  EXPECT_GE(loader->stats().cache.epoch_origin_bytes, bucket.bytes());
  // What is on its way to the disk when an epoch begins is not there yet.
  ASSERT_TRUE(node.store()->cache()->WaitUntilIdle(std::chrono::minutes(4)));
  Epoch(loader.get(), 1);
  Until([&] { return loader->stats().cache.expected_origin_bytes.has_value(); });
  CacheStats stats = loader->stats().cache;
  EXPECT_EQ(stats.epoch, 1u);
  EXPECT_EQ(*stats.expected_origin_bytes, 0u);
  EXPECT_EQ(stats.epoch_origin_bytes, 0u);
  EXPECT_GE(stats.prefetch.request_limit, 1u);
}

// Sets each setting to something in its budget, again and again, until it is destroyed.
class Meddler {
 public:
  explicit Meddler(Loader* loader)
      : thread_([this, loader] {
          KeyedRandom random(HashKey(1));
          while (!stop_) {
            for (const SettingValue& setting : loader->settings()) {
              const uint64_t span = setting.max - setting.min;
              const uint64_t value = setting.min + random.NextBelow(span + 1);
              EXPECT_TRUE(loader->ChangeSetting(setting.name, value).ok()) << setting.name;
            }
            ++rounds_;
          }
        }) {}
  ~Meddler() {
    stop_ = true;
    thread_.join();
  }
  void WaitForARound() const {
    const uint64_t before = rounds_;
    Until([&] { return rounds_ > before; });
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};
  std::thread thread_;  // last: uses the others
};

// Samples, their bytes and the state of the run are the same whatever is changed when.
TEST(CachedLoader, SettingsThatChangeMoveNothing) {
  Bucket bucket(std::vector<uint64_t>(12, 60));
  LoaderPtr plain = Make(bucket.local().Open(), Options(20));
  for (uint64_t limit : {uint64_t{1} << 30, uint64_t{1} << 19}) {
    Node node(bucket, limit);
    LoaderOptions options = Options(20);
    options.max_threads = 4;
    LoaderPtr loader = Make(node.Open(), options);
    Meddler meddler(loader.get());
    for (auto [epoch, position] : {std::pair<uint64_t, uint64_t>{0, 0}, {1, 0}, {3, 400}}) {
      ASSERT_TRUE(plain->Begin(epoch, position).ok());
      ASSERT_TRUE(loader->Begin(epoch, position).ok());
      for (auto expected = Next(plain.get()); !expected.empty(); expected = Next(plain.get())) {
        meddler.WaitForARound();
        ASSERT_EQ(Next(loader.get()), expected);
        ASSERT_EQ(loader->state().ToJson(), plain->state().ToJson());
      }
      ASSERT_TRUE(Next(loader.get()).empty());
    }
  }
}

TEST(CachedLoader, SettingsKeepToTheirBudgets) {
  Bucket bucket(std::vector<uint64_t>(4, 60));
  Node node(bucket, uint64_t{1} << 30);
  LoaderOptions options = Options(20);
  options.cache.prefetch = {.ahead_bytes = 1000, .in_flight_bytes = 2000, .max_requests = 3};
  LoaderPtr loader = Make(node.Open(), options);
  const std::vector<SettingValue> settings = loader->settings();
  ASSERT_EQ(settings.size(), kNumLiveSettings);
  for (const SettingValue& setting : settings) {
    EXPECT_EQ(setting.value, setting.max) << setting.name;  // what was given is the budget
    Status more = loader->ChangeSetting(setting.name, setting.max + 1).status();
    EXPECT_EQ(more.code(), Code::kInvalidArgument) << setting.name;
    EXPECT_THAT(more.ToString(), HasSubstr(setting.name));
    EXPECT_EQ(loader->ChangeSetting(setting.name, setting.min).value(), setting.max);
  }
  for (const SettingValue& setting : loader->settings()) EXPECT_EQ(setting.value, setting.min);
  EXPECT_EQ(Epoch(loader.get(), 0).size(), 12u);
  EXPECT_EQ(loader->stats().cache.prefetch.request_limit, 1u);
  EXPECT_EQ(loader->ChangeSetting("prefetch_requests", 2).value(), 1u);
}

TEST(CachedLoader, TellsWhatItHasOfTheCache) {
  Bucket bucket(std::vector<uint64_t>(8, 60));
  Node node(bucket, uint64_t{1} << 30);
  LoaderOptions options = Options(20, /*world=*/2);
  options.cache.node_ranks = 2;
  LoaderPtr loader = Make(node.Open(), options);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  ProcessSnapshot snapshot;
  AddToSnapshot(*loader, &snapshot);
  EXPECT_EQ(snapshot.Value(Metric::kCacheLimitBytes), 1 << 30);
  EXPECT_EQ(snapshot.Value(Metric::kCacheShareBytes), 1 << 29);
  AddToSnapshot(*loader, &snapshot);  // as a second loader with the same cache
  EXPECT_EQ(snapshot.Value(Metric::kCacheShareBytes), 1 << 29);
}

TEST(CachedLoader, WithoutACacheThereIsNothingToTell) {
  TinyDataset data({20, 20});
  LoaderPtr loader = Make(data.Open(), Options(10));
  Epoch(loader.get(), 0);
  EXPECT_FALSE(loader->stats().cache.has_cache);
  ExpectNothingToWarm(data.Open());
}

TEST(CachedLoader, RefusesAColdStartWhenAskedTo) {
  Bucket bucket(std::vector<uint64_t>(8, 60));
  Node node(bucket, uint64_t{1} << 30);
  LoaderOptions options = Options(20);
  options.cache.require_warm = true;
  LoaderPtr loader = Make(node.Open(), options);
  Status cold = loader->Begin(3, 0);
  EXPECT_EQ(cold.code(), Code::kFailedPrecondition);
  EXPECT_THAT(cold.ToString(), HasSubstr(std::to_string(bucket.bytes()) + " bytes of the"));
  EXPECT_THAT(cold.ToString(), HasSubstr("headrace cache warm mem://test --cache-dir /cache "
                                         "--epoch 3 --ranks 0 --world-size 1 --seed 7"));
  std::vector<object::ObjectInfo> objects;
  std::shared_ptr<const ShardObjects> shards = FindShardObjects(*node.Open());
  for (const std::string& key : shards->keys) objects.push_back(*bucket.store()->Head(key, {}));
  cache::WarmProgress progress;
  ASSERT_TRUE(cache::Warm(node.store(), objects, {}, &progress, {}).ok());
  EXPECT_EQ(Epoch(loader.get(), 3), Epoch(Make(bucket.local().Open(), Options(20)).get(), 3));
  EXPECT_TRUE(loader->Begin(9, 0).ok());  // only the start is asked about
}

TEST(CachedLoader, TheOriginsFailureIsTheReadersToTell) {
  Bucket bucket(std::vector<uint64_t>(4, 60));
  Node node(bucket, uint64_t{1} << 30);
  ExpectTheOriginsFailure(bucket, node.Open());
}

// Whoever is first, the plan or a reader: each block comes once, and stays.
TEST(DisklessLoader, ReadsEachBlockOnceWhereAllFit) {
  constexpr uint64_t kEpochs = 3;
  Bucket bucket(std::vector<uint64_t>(16, 160));
  Diskless process(bucket, 2 * bucket.bytes());
  LoaderPtr local = Make(bucket.local().Open(), Options(64));
  LoaderPtr loader = Make(process.Open(), Options(64));
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch)
    ASSERT_EQ(Epoch(loader.get(), epoch), Epoch(local.get(), epoch));
  Settle(loader.get());
  const CacheStats stats = loader->stats().cache;
  EXPECT_TRUE(stats.has_plan);
  EXPECT_TRUE(stats.in_memory);
  EXPECT_EQ(stats.epoch_bytes, bucket.bytes());
  EXPECT_EQ(stats.expected_origin_bytes, bucket.bytes());
  EXPECT_EQ(stats.cache.streamed_bytes, 0u);
  EXPECT_GT(stats.cache.memory_hits, 0u);
  EXPECT_LE(stats.cache.origin_bytes, bucket.bytes());
  EXPECT_LE(stats.cache.origin_requests, bucket.bytes() / kBlock + 16);
  loader.reset();
  EXPECT_EQ(process.memory_bytes(), 0u);
}

TEST(DisklessLoader, ReadsTheRestSampleBySample) {
  Bucket bucket(std::vector<uint64_t>(16, 160));
  const uint64_t limit = bucket.bytes() / 3;
  Diskless process(bucket, limit);
  LoaderPtr local = Make(bucket.local().Open(), Options(64));
  LoaderPtr loader = Make(process.Open(), Options(64));
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    ASSERT_EQ(Epoch(loader.get(), epoch), Epoch(local.get(), epoch));
    EXPECT_LE(process.memory_bytes(), limit);
  }
  CacheStats stats = loader->stats().cache;
  EXPECT_TRUE(stats.has_plan);
  EXPECT_GT(stats.cache.streamed_bytes, 0u);
  EXPECT_GT(stats.cache.memory_bytes, 0u);
  // There is no room left for another one, which reads all so.
  LoaderPtr other = Make(process.Open(), Options(64));
  ASSERT_EQ(Epoch(other.get(), 5), Epoch(local.get(), 5));
  EXPECT_FALSE(other->stats().cache.has_plan);
}

// A block would be fetched by each of them.
TEST(DisklessLoader, RanksThatShareTheirLanesReadSampleBySample) {
  Bucket bucket(std::vector<uint64_t>(16, 40));
  for (uint32_t rank : {0u, 2u}) {
    Diskless process(bucket, 2 * bucket.bytes());
    LoaderPtr local = Make(bucket.local().Open(), Options(66, 3, rank));
    LoaderPtr loader = Make(process.Open(), Options(66, 3, rank));
    EXPECT_EQ(Epoch(loader.get(), 0), Epoch(local.get(), 0));
    const CacheStats stats = loader->stats().cache;
    EXPECT_FALSE(stats.has_plan);
    EXPECT_GT(stats.cache.streamed_bytes, 0u);
    EXPECT_EQ(stats.cache.streamed_bytes, stats.cache.origin_bytes);
    EXPECT_EQ(process.memory_bytes(), 0u);
  }
}

TEST(DisklessLoader, GoesToOtherPlacesAndEnds) {
  Bucket bucket(std::vector<uint64_t>(12, 60));
  for (uint64_t memory : {bucket.bytes() / 4, 2 * bucket.bytes()}) {
    for (Tail tail : {Tail::kDrop, Tail::kPad, Tail::kUneven}) {
      Diskless process(bucket, memory);
      LoaderOptions options = Options(50);
      options.tail = tail;
      LoaderPtr local = Make(bucket.local().Open(), options);
      LoaderPtr loader = Make(process.Open(), options);
      for (auto [epoch, position] :
           {std::pair<uint64_t, uint64_t>{0, 0}, {3, 400}, {0, 650}, {40, 0}, {2, 0}})
        EXPECT_EQ(Epoch(loader.get(), epoch, position), Epoch(local.get(), epoch, position));
      ExpectToEndAnywhere(loader.get());
    }
  }
}

TEST(DisklessLoader, HasNothingThatCouldBeWarm) {
  Bucket bucket({20, 20});
  Diskless process(bucket, 1 << 20);
  ExpectNothingToWarm(process.Open());
}

TEST(DisklessLoader, TheOriginsFailureIsTheReadersToTell) {
  Bucket bucket(std::vector<uint64_t>(4, 60));
  Diskless process(bucket, 2 * bucket.bytes());
  ExpectTheOriginsFailure(bucket, process.Open());
}

TEST(DisplaceFor, HoldsWindowsOnlyWhereThatCostsLittle) {
  // 400 shards of one lane in windows of 2; 400 shards that are one window.
  const std::vector<uint64_t> samples(400, 10);
  ShardObjects objects;
  objects.bytes.assign(400, 1 << 20);
  OrderOptions narrow, wide;
  narrow.lanes = wide.lanes = 1;
  narrow.window_shards = 2;
  wide.window_shards = 400;
  const Order a = *Order::Create(samples, "v", narrow), b = *Order::Create(samples, "v", wide);
  const BatchPlan plan = *BatchPlan::Create(4000, 10, 1, 0, Tail::kDrop);
  constexpr uint64_t kAll = uint64_t{400} << 20, kRoomy = kAll + kAll / 32;
  EXPECT_EQ(DisplaceFor(a, plan, objects, kAll / 2, 1), cache::Displace::kFarther);
  EXPECT_EQ(DisplaceFor(b, plan, objects, kAll / 2, 1), cache::Displace::kUnclaimed);
  EXPECT_EQ(DisplaceFor(b, plan, objects, kRoomy, 1), cache::Displace::kFarther);
  EXPECT_EQ(DisplaceFor(a, plan, objects, 3 << 20, 1), cache::Displace::kUnclaimed);
  // Ranks of a node that share a lane share what is cached of it; those with lanes of their own
  // share the room.
  EXPECT_EQ(DisplaceFor(b, plan, objects, kRoomy, 8), cache::Displace::kFarther);
  wide.lanes = 2;
  const Order c = *Order::Create(samples, "v", wide);
  const BatchPlan half = *BatchPlan::Create(4000, 10, 2, 0, Tail::kDrop);
  EXPECT_EQ(DisplaceFor(c, half, objects, kRoomy / 2, 1), cache::Displace::kFarther);
  EXPECT_EQ(DisplaceFor(c, half, objects, kRoomy / 2, 2), cache::Displace::kUnclaimed);
}

}  // namespace
}  // namespace headrace::loader
