// Object stores read through memory and disk: what a reader gets, and what the origin is asked for.
#include "headrace/cache/caching_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <thread>

#include "headrace/base/keyed_random.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::cache {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kBlock = kPageBytes;
const uint64_t kCost = BlockCost(kBlock);

MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

struct TierSetup {
  uint64_t limit_bytes = 1 << 30;
  uint64_t memory_bytes = 0;
  FileSystem* files = nullptr;
  std::string directory = "/cache";
  std::function<void(BlockCacheOptions*)> change = nullptr;
};

class CachingStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<CachingStore> Open(const TierSetup& setup = {}) {
    BlockCacheOptions options;
    options.fs = setup.files ? setup.files : &files_;
    options.node.directory = setup.directory;
    options.node.limit_bytes = setup.limit_bytes;
    options.node.free_floor_bytes = 1;
    options.node.warn = [this](const std::string& line) {
      MutexLock lock(&mu_);
      warnings_.push_back(line);
    };
    options.memory_bytes = setup.memory_bytes;
    options.threads = 3;
    options.max_request_bytes = 4 * kBlock;
    options.hedge = false;
    // However slow the machine is, a cache does not give up waiting for the other one.
    options.patience_ms = 3'600'000;
    if (setup.change) setup.change(&options);
    auto cache = ProcessCache::Create(options);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    auto store = CachingStore::Create(origin_, *cache, {.identity = "", .block_bytes = kBlock});
    EXPECT_TRUE(store.ok());
    return *std::move(store);
  }
  static Status Read(object::ObjectStore* store, const std::string& key, uint64_t offset,
                     std::string* out, const Context& ctx = {}) {
    return store->Get({.key = key, .offset = offset, .out = Writable(out), .if_match = ""}, ctx)
        .status();
  }
  // Reads and compares.
  static void ExpectRead(object::ObjectStore* store, const std::string& key, uint64_t offset,
                         uint64_t length, uint64_t version = 1) {
    std::string out(length, '\0');
    Status status = Read(store, key, offset, &out);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(out, CountingOrigin::Content(key, version, offset, length));
  }

  // Readers do not wait for the disk: this does, until nothing is on its way to it.
  static void UntilAdmitted(CachingStore* store) {
    ASSERT_TRUE(store->cache()->WaitUntilIdle(std::chrono::minutes(4)));
  }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::shared_ptr<CountingOrigin> origin_ = std::make_shared<CountingOrigin>(kBlock);
  Mutex mu_;
  std::vector<std::string> warnings_ HR_GUARDED_BY(mu_);
};

TEST_F(CachingStoreTest, AsksTheOriginOnceForEachBlock) {
  constexpr uint64_t kSize = 10 * kBlock + 17;
  origin_->Add("a", kSize);
  auto store = Open();
  for (int round = 0; round < 3; ++round)
    for (uint64_t offset = 0; offset + 1000 < kSize; offset += 10'007)
      ExpectRead(store.get(), "a", offset, 1000);
  ExpectRead(store.get(), "a", 0, kSize);
  EXPECT_EQ(origin_->bytes(), kSize);
  EXPECT_EQ(origin_->MostFetched(11), 1u);
  EXPECT_EQ(origin_->heads(), 1u);
  CacheCounters counts = store->cache()->counters();
  EXPECT_EQ(counts.origin_bytes, kSize);
  EXPECT_EQ(counts.misses, 11u);
  EXPECT_GT(counts.disk_hits + counts.memory_hits, 30u);
  EXPECT_EQ(counts.streamed_bytes, 0u);
  store.reset();
  store = Open();  // another run finds it
  ExpectRead(store.get(), "a", 0, kSize);
  EXPECT_EQ(origin_->bytes(), kSize);
}

TEST_F(CachingStoreTest, FetchesNeighboursTogether) {
  origin_->Add("a", 16 * kBlock);
  auto store = Open();
  ExpectRead(store.get(), "a", 0, 16 * kBlock);
  EXPECT_EQ(origin_->requests(), 4u);  // four blocks each
  EXPECT_EQ(origin_->bytes(), 16u * kBlock);
}

// As a store does that knows that its next try would come too late.
TEST_F(CachingStoreTest, AHeadThatEndsBeforeItsTimeIsNotAskedForAgain) {
  origin_->Add("a", 1000);
  auto faulty = std::make_shared<object::FaultyStore>(origin_);
  BlockCacheOptions options;
  options.memory_bytes = 1 << 20;
  auto cache = ProcessCache::Create(options);
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  auto store = CachingStore::Create(faulty, *cache, {.identity = "", .block_bytes = kBlock});
  ASSERT_TRUE(store.ok());
  faulty->FailNth(object::StoreOperation::kHead, 1, Error(Code::kDeadlineExceeded, "too late"), 3);
  Context ctx;
  ctx.deadline = Context::Clock::now() + std::chrono::hours(1);
  std::string out(1000, '\0');
  EXPECT_EQ(Read(store->get(), "a", 0, &out, ctx).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(faulty->count(object::StoreOperation::kHead), 1u);
  faulty->Heal();
  ExpectRead(store->get(), "a", 0, 1000);
}

TEST_F(CachingStoreTest, TellsWhatObjectsAreAsTheOriginDoes) {
  origin_->Add("a", 100);
  auto store = Open();
  EXPECT_EQ(store->Head("a", {})->size_bytes, 100u);
  EXPECT_EQ(store->Head("a", {})->etag, "v1");
  EXPECT_EQ(origin_->heads(), 1u);
  EXPECT_EQ(store->Head("b", {}).status().code(), Code::kNotFound);
  std::string out(10, '\0');
  EXPECT_EQ(Read(store.get(), "b", 0, &out).code(), Code::kNotFound);
  Status outside = Read(store.get(), "a", 95, &out);
  EXPECT_EQ(outside.code(), Code::kOutOfRange);
  EXPECT_THAT(outside.ToString(), HasSubstr("100"));
  EXPECT_EQ(Read(store.get(), "a", UINT64_MAX, &out).code(), Code::kOutOfRange);
  auto head = store->Get({.key = "a", .offset = 0, .out = {}, .if_match = ""}, {});
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->size_bytes, 100u);
}

TEST_F(CachingStoreTest, AReplacedObjectIsAnErrorToWhoWantsTheOldOne) {
  origin_->Add("a", 4 * kBlock, 1);
  auto store = Open();
  ExpectRead(store.get(), "a", 0, kBlock);
  origin_->Add("a", 4 * kBlock, 2);
  ExpectRead(store.get(), "a", 0, kBlock);  // as it was: this block is here
  std::string out(kBlock, '\0');
  object::GetRequest rest{
      .key = "a", .offset = 2 * kBlock, .out = Writable(&out), .if_match = "v1"};
  EXPECT_EQ(store->Get(rest, {}).status().code(), Code::kFailedPrecondition);
  ExpectRead(store.get(), "a", 0, 4 * kBlock, 2);
  UntilAdmitted(store.get());
  origin_->Add("a", 4 * kBlock, 3);
  ASSERT_EQ(store->cache()->node()->Drop((*store->Find("a", {}))->Block(3)), true);
  ExpectRead(store.get(), "a", 0, 4 * kBlock, 3);  // any version will do, but only one
  auto old = store->Get({.key = "a", .offset = 0, .out = Writable(&out), .if_match = "v1"}, {});
  EXPECT_EQ(old.status().code(), Code::kFailedPrecondition);
}

TEST_F(CachingStoreTest, ANewEtagAskedForIsLookedUp) {
  origin_->Add("a", kBlock, 1);
  auto store = Open();
  ExpectRead(store.get(), "a", 0, 100);
  origin_->Add("a", kBlock, 2);
  std::string out(100, '\0');
  auto fresh = store->Get({.key = "a", .offset = 5, .out = Writable(&out), .if_match = "v2"}, {});
  ASSERT_TRUE(fresh.ok()) << fresh.status().ToString();
  EXPECT_EQ(out, CountingOrigin::Content("a", 2, 5, 100));
}

// What is opened anew is asked for anew; what is open goes on reading its version without a Head.
TEST_F(CachingStoreTest, WithoutTimeToLiveEachHeadIsTheOriginsAndReadsGoOn) {
  origin_->Add("a", 4 * kBlock, 1);
  auto cache = ProcessCache::Create({.fs = &files_, .node = {.directory = "/cache"}});
  ASSERT_TRUE(cache.ok());
  auto store = *CachingStore::Create(origin_, *cache, {.block_bytes = kBlock, .head_ttl_ms = 0});
  std::string out(4 * kBlock, '\0');
  object::GetRequest old{.key = "a", .offset = 0, .out = Writable(&out), .if_match = "v1"};
  EXPECT_EQ(store->Head("a", {})->etag, "v1");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(store->Get(old, {}).ok());
  EXPECT_EQ(origin_->heads(), 1u);
  EXPECT_TRUE(store->Find("a", {}).ok());
  EXPECT_EQ(origin_->heads(), 1u);

  origin_->Add("a", 4 * kBlock, 2);
  EXPECT_TRUE(store->Get(old, {}).ok());  // as it was: all of it is here
  EXPECT_EQ(store->Head("a", {})->etag, "v2");
  EXPECT_EQ(store->Get(old, {}).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(Read(store.get(), "a", 0, &out).ok());
  EXPECT_EQ(out, CountingOrigin::Content("a", 2, 0, out.size()));
}

TEST_F(CachingStoreTest, TheOriginsErrorsReachAllWhoWaitAndAreNotKept) {
  origin_->Add("a", 4 * kBlock);
  auto store = Open();
  origin_->FailReads(1, Error(Code::kUnavailable, "503 slow down"));
  std::string out(4 * kBlock, '\0');
  Status status = Read(store.get(), "a", 0, &out);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr("503"));
  ExpectRead(store.get(), "a", 0, 4 * kBlock);
}

TEST_F(CachingStoreTest, ManyReadersOfOneBlockShareOneFetch) {
  origin_->Add("a", 8 * kBlock);
  origin_->Delay(std::chrono::milliseconds(30));
  auto store = Open({.memory_bytes = 2 * kBlock});
  std::vector<std::jthread> readers;
  for (int i = 0; i < 16; ++i)
    readers.emplace_back([&, i] { ExpectRead(store.get(), "a", (i % 4) * kBlock + i, 999); });
  readers.clear();
  EXPECT_EQ(origin_->MostFetched(8), 1u);
}

TEST_F(CachingStoreTest, TwoCachesOnOneDirectoryFetchEachBlockOnce) {
  origin_->Add("a", 32 * kBlock);
  auto a = Open(), b = Open();
  auto waits = [&] { return a->cache()->counters().waits + b->cache()->counters().waits; };
  // Both begin with the same block: who asks for it first has no answer before the other one waits.
  origin_->OnRead([&] {
    while (waits() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  std::vector<std::jthread> readers;
  for (auto* store : {a.get(), b.get()})
    readers.emplace_back([store] {
      for (uint64_t i = 0; i < 32; ++i) ExpectRead(store, "a", i * kBlock, kBlock);
    });
  readers.clear();
  EXPECT_EQ(origin_->MostFetched(32), 1u);
  EXPECT_EQ(origin_->LeastFetched(32), 1u);
  EXPECT_GT(waits(), 0u);
}

TEST_F(CachingStoreTest, ABadBlockIsFetchedAnewOnce) {
  origin_->Add("a", 4 * kBlock);
  auto store = Open();
  ExpectRead(store.get(), "a", 0, 4 * kBlock);
  UntilAdmitted(store.get());
  auto object = store->Find("a", {});
  ASSERT_TRUE(object.ok());
  std::string path =
      store->cache()->node()->disks()[0]->paths().Block((*object)->Block(2), BlockFileKind::kBlock);
  std::string content = *memory_.ReadWhole(path, 1 << 20);
  content[5000] = static_cast<char>(content[5000] ^ 4);
  ASSERT_TRUE(memory_.WriteAtomically(path, AsBytes(content)).ok());
  for (int i = 0; i < 3; ++i) ExpectRead(store.get(), "a", 0, 4 * kBlock);
  EXPECT_EQ(origin_->fetched(2), 2u);
  EXPECT_EQ(origin_->bytes(), 5u * kBlock);
  EXPECT_EQ(store->cache()->counters().node.dropped_blocks, 1u);
}

TEST_F(CachingStoreTest, ALimitBelowABlockReadsExactlyWhatIsAskedFor) {
  origin_->Add("a", 8 * kBlock);
  auto store = Open({.limit_bytes = 1000});
  for (uint64_t offset = 0; offset < 7 * kBlock; offset += 50'000)
    ExpectRead(store.get(), "a", offset, 300);
  ExpectRead(store.get(), "a", 100, 3 * kBlock);
  uint64_t reads = (7 * kBlock + 49'999) / 50'000;
  EXPECT_EQ(origin_->bytes(), reads * 300 + 3 * kBlock);
  EXPECT_EQ(origin_->requests(), reads + 1);  // a read over several blocks is one request
  EXPECT_EQ(store->cache()->counters().streamed_bytes, origin_->bytes());
}

TEST_F(CachingStoreTest, ALimitBelowAnObjectWorks) {
  origin_->Add("a", 32 * kBlock);
  auto store = Open({.limit_bytes = 5 * kCost});
  for (int epoch = 0; epoch < 2; ++epoch) ExpectRead(store.get(), "a", 0, 32 * kBlock);
  // What describes an object is written after its block, and room for it is made by the next one.
  EXPECT_LE(store->cache()->node()->used_bytes(), 5 * kCost + kDescriptorCost);
}

TEST_F(CachingStoreTest, NoDiskAtAllIsNoError) {
  files_.FailNth(FileOperation::kMakeDirectories, 1, Error(Code::kPermissionDenied, "read-only"),
                 UINT64_MAX);
  origin_->Add("a", 8 * kBlock);
  auto store = Open();
  for (int i = 0; i < 50; ++i) ExpectRead(store.get(), "a", i * 7'000, 3'000);
  MutexLock lock(&mu_);
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(CachingStoreTest, ADirectoryRemovedInMidReadIsNoError) {
  TemporaryDirectory dir;
  origin_->Add("a", 64 * kBlock);
  auto store = Open({.files = PosixFileSystem(), .directory = dir / "cache"});
  std::atomic<bool> stop{false};
  std::jthread remover([&] {
    while (!stop) (void)PosixFileSystem()->RemoveTree(dir / "cache/blocks");
  });
  for (int i = 0; i < 200; ++i)
    ExpectRead(store.get(), "a", (i * 37 % 60) * kBlock + 11, 2 * kBlock);
  stop = true;
  remover.join();
  (void)PosixFileSystem()->RemoveTree(dir / "cache");
  for (int i = 0; i < 100; ++i)
    ExpectRead(store.get(), "a", (i * 37 % 60) * kBlock + 11, 2 * kBlock);
  EXPECT_FALSE(PosixFileSystem()->Exists(dir / "cache"));
}

TEST_F(CachingStoreTest, MemoryServesWithoutTheDisk) {
  origin_->Add("a", 8 * kBlock);
  auto store = Open({.memory_bytes = 16 * kBlock});
  ExpectRead(store.get(), "a", 0, 8 * kBlock);
  UntilAdmitted(store.get());
  ASSERT_TRUE(memory_.RemoveTree("/cache/blocks").ok());
  ExpectRead(store.get(), "a", 0, 8 * kBlock);
  EXPECT_EQ(origin_->bytes(), 8u * kBlock);
  EXPECT_EQ(store->cache()->counters().memory_hits, 8u);
  auto alone = Open({.memory_bytes = 16 * kBlock, .directory = ""});
  origin_->ResetCounts();
  ExpectRead(alone.get(), "a", 0, 8 * kBlock);
  ExpectRead(alone.get(), "a", 0, 8 * kBlock);
  EXPECT_EQ(origin_->bytes(), 8u * kBlock);
}

TEST_F(CachingStoreTest, WhatIsInMemoryIsGivenAtOnce) {
  constexpr uint64_t kSize = 6 * kBlock + 17;
  origin_->Add("a", kSize);
  auto store = Open({.memory_bytes = 16 * kBlock});
  const std::string etag = store->Head("a", {})->etag;
  std::string out(3 * kBlock, '\0');
  auto try_get = [&](uint64_t offset, uint64_t length, const std::string& version) {
    out.assign(length, '\0');
    return store->TryGet({.key = "a", .offset = offset, .out = Writable(&out), .if_match = version},
                         {});
  };
  EXPECT_FALSE(try_get(0, 100, etag)) << "it is not there yet";
  ExpectRead(store.get(), "a", kBlock, kSize - kBlock);
  UntilAdmitted(store.get());
  const uint64_t before = store->cache()->counters().memory_hits;
  // Inside a block, over the borders of some, up to the end.
  const std::vector<std::pair<uint64_t, uint64_t>> ranges = {
      {kBlock, 100}, {2 * kBlock - 7, 14}, {2 * kBlock + 5, 3 * kBlock}, {kSize - 20, 20}};
  for (auto [offset, length] : ranges) {
    ASSERT_TRUE(try_get(offset, length, etag));
    EXPECT_EQ(out, CountingOrigin::Content("a", 1, offset, length));
  }
  EXPECT_EQ(store->cache()->counters().memory_hits - before, 1u + 2u + 4u + 2u);
  EXPECT_FALSE(try_get(kBlock - 7, 14, etag)) << "only the half of it is there";
  EXPECT_FALSE(try_get(kBlock, 100, "")) << "of no version";
  EXPECT_FALSE(try_get(kBlock, 100, "another"));
  EXPECT_FALSE(try_get(kSize - 20, 21, etag)) << "beyond the end";
  EXPECT_FALSE(try_get(kBlock, 5 * kBlock + 1, etag)) << "as large as that it goes over threads";
  EXPECT_EQ(store->cache()->counters().memory_hits - before, 9u) << "what fails counts as nothing";
}

TEST_F(CachingStoreTest, AReadersDeadlineEndsItsWaitOnly) {
  origin_->Add("a", 2 * kBlock);
  std::atomic<bool> asked{false}, go{false};
  origin_->OnRead([&] {
    asked = true;
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  auto store = Open();
  ASSERT_TRUE(store->Head("a", {}).ok());
  std::jthread patient([&] { ExpectRead(store.get(), "a", 0, 100); });
  while (!asked) std::this_thread::yield();
  // The origin answers only after the hurried reader has gone: one that waited for it would wait
  // for ever.
  Context hurried;
  hurried.deadline = Context::Clock::now() + std::chrono::milliseconds(50);
  std::string out(100, '\0');
  EXPECT_EQ(Read(store.get(), "a", 500, &out, hurried).code(), Code::kDeadlineExceeded);
  go = true;
  patient.join();
}

TEST_F(CachingStoreTest, ALateAnswerIsAskedForAgain) {
  origin_->Add("a", 400 * uint64_t{kBlock});
  std::atomic<int> reads{0};
  std::atomic<bool> release{false};
  auto store = Open({.change = [](BlockCacheOptions* options) { options->hedge = true; }});
  for (uint64_t i = 0; i < 150; ++i) ExpectRead(store.get(), "a", i * kBlock, 10);
  origin_->OnRead([&] {
    if (reads++ > 0) return;
    while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  ExpectRead(store.get(), "a", 200 * uint64_t{kBlock}, 10);  // the second request answers
  release = true;
  EXPECT_GE(store->cache()->counters().hedges, 1u);
}

TEST_F(CachingStoreTest, KeysOfAnyBytesStayInTheCachesDirectory) {
  auto store = Open();
  std::vector<std::string> keys = {"../../etc/passwd",
                                   "/abs",
                                   "a//b",
                                   ".",
                                   "..",
                                   "a+b%2F~ c",
                                   std::string("nul\0x", 5),
                                   "\xff\xfe",
                                   std::string(1024, 'k')};
  for (const std::string& key : keys) {
    origin_->Add(key, 1000);
    ExpectRead(store.get(), key, 0, 1000);
    ExpectRead(store.get(), key, 0, 1000);
  }
  EXPECT_EQ(origin_->bytes(), keys.size() * 1000);
  EXPECT_EQ(memory_.List("/")->size(), 1u);
  EXPECT_EQ(memory_.List("/cache")->size(), 5u);
}

TEST_F(CachingStoreTest, ManyObjectsWithFewHeadsRemembered) {
  auto cache = ProcessCache::Create({.fs = &files_, .node = {.directory = "/cache"}});
  ASSERT_TRUE(cache.ok());
  auto store = CachingStore::Create(origin_, *cache, {.max_heads = 4});
  for (int i = 0; i < 20; ++i) origin_->Add("k" + std::to_string(i), 100);
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 20; ++i) ExpectRead(store->get(), "k" + std::to_string(i), 0, 100);
  EXPECT_EQ(origin_->bytes(), 2000u);
}

// Random reads of objects that are replaced now and then, through a small cache on a disk with
// faults: the bytes are right and of one version, or the error is the origin's.
TEST_F(CachingStoreTest, RandomReadsGiveTheOriginsBytes) {
  rc::check("reads equal the origin", [this](uint64_t seed) {
    KeyedRandom random(seed);
    MemoryFileSystem memory;
    FaultyFileSystem files(&memory);
    origin_ = std::make_shared<CountingOrigin>(kBlock);
    auto store = Open({.limit_bytes = random.NextBelow(8) * kCost + 100,
                       .memory_bytes = random.NextBelow(3) * kBlock,
                       .files = &files});
    std::map<std::string, std::pair<uint64_t, uint64_t>> objects;  // size, version
    for (const char* key : {"a", "b", "c"}) {
      objects[key] = {random.NextBelow(6 * kBlock) + 1, 1};
      origin_->Add(key, objects[key].first);
    }
    for (int step = 0; step < 60; ++step) {
      const char* key = std::array{"a", "b", "c"}[random.NextBelow(3)];
      auto& [size, version] = objects[key];
      switch (random.NextBelow(12)) {
        case 0:
          origin_->Add(key, size, ++version);
          break;
        case 1:
          files.FailNth(static_cast<FileOperation>(random.NextBelow(kNumFileOperations)), 1,
                        Error(Code::kIoError, "broken"), random.NextBelow(5) + 1);
          break;
        case 2:
          files.Heal();
          break;
        case 3:
          files.FlipBit(".blk", random.NextBelow(kBlock));
          break;
        default: {
          uint64_t offset = random.NextBelow(size);
          std::string out(random.NextBelow(size - offset) + 1, '\0');
          Status status = Read(store.get(), key, offset, &out);
          bool right = false;
          for (uint64_t v = 1; v <= version; ++v)
            right |= out == CountingOrigin::Content(key, v, offset, out.size());
          bool holds = status.ok() ? right : status.code() == Code::kFailedPrecondition;
          RC_ASSERT(holds);
        }
      }
    }
  });
}

// The suite of all stores, through the cache.
struct SuiteOwner {
  MemoryFileSystem files;
  std::shared_ptr<CachingStore> store;  // last: ends first
};
const bool kSuite = object::RegisterObjectStoreSuite(
    "cached", {.abilities = object::MemoryStoreOptions().abilities, .open = [] {
                 auto owner = std::make_shared<SuiteOwner>();
                 BlockCacheOptions options;
                 options.fs = &owner->files;
                 options.node.directory = "/cache";
                 auto cache = ProcessCache::Create(options);
                 owner->store = *CachingStore::Create(object::MakeMemoryStore(), *cache,
                                                      {.block_bytes = kBlock, .head_ttl_ms = 0});
                 return object::StoreUnderTest{
                     .store = std::shared_ptr<object::ObjectStore>(owner, owner->store.get())};
               }});

}  // namespace
}  // namespace headrace::cache
