#include "headrace/checkpoint/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "headrace/checkpoint/testing/tiny_store.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/retrying_store.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::checkpoint {
namespace {

using object::FaultyStore;
using object::MakeMemoryStore;
using object::StoreOperation;
using testing::HasSubstr;

// A store of each kind: where it is, and what must live as long.
struct Place {
  std::shared_ptr<void> owner;
  StorePlace place;
};
struct Kind {
  const char* name;
  Place (*open)();
};

Place OpenFolder() {
  auto dir = std::make_shared<TemporaryDirectory>();
  return {dir, StoreInFolder(PosixFileSystem(), *dir / "not/there/yet").value()};
}
Place OpenMemoryFolder() {
  auto files = std::make_shared<MemoryFileSystem>();
  return {files, StoreInFolder(files.get(), "/ckpt").value()};
}
Place OpenBucket() { return {nullptr, StoreInBucket(MakeMemoryStore(), "run/7").value()}; }
Place OpenWholeBucket() { return {nullptr, StoreInBucket(MakeMemoryStore(), "").value()}; }
Place OpenFolderAsBucket() {
  auto dir = std::make_shared<TemporaryDirectory>();
  return {dir, StoreInBucket(object::OpenDirStore(dir->path(), {}).value(), "run").value()};
}

class CatalogStoreTest : public testing::TestWithParam<Kind> {
 protected:
  Place place_ = GetParam().open();
  CatalogStore store_{place_.place};
};
INSTANTIATE_TEST_SUITE_P(Stores, CatalogStoreTest,
                         testing::Values(Kind{"folder", OpenFolder},
                                         Kind{"memory_folder", OpenMemoryFolder},
                                         Kind{"bucket", OpenBucket},
                                         Kind{"whole_bucket", OpenWholeBucket},
                                         Kind{"folder_as_bucket", OpenFolderAsBucket}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CatalogStoreTest, ListsWhatWasPublished) {
  EXPECT_EQ(CatalogLine(&store_), "");
  EXPECT_EQ(store_.ReadHead({})->epoch, 0u);
  ASSERT_EQ(store_.TakeOver("me", {}).value(), 1u);
  EXPECT_EQ(CatalogLine(&store_), "");
  for (uint64_t step : {200, 100, 300}) ASSERT_TRUE(PublishTiny(&store_, {step, 1, 1}).ok());
  EXPECT_EQ(CatalogLine(&store_), "100/1/1 local, 200/1/1 local, 300/1/1 local");
  ASSERT_TRUE(PublishTiny(&store_, {200, 1, 2}).ok());
  const Catalog catalog = *store_.Read({});
  EXPECT_EQ(catalog.sequence, 4u);
  EXPECT_EQ(catalog.Latest()->id.step, 300u);
  EXPECT_EQ(catalog.Latest(Level::kMemory, 200)->id.attempt, 2u);
  EXPECT_EQ(catalog.Latest(Level::kPeer), nullptr);
  EXPECT_EQ(catalog.Latest(Level::kMemory, 250), nullptr);
  EXPECT_EQ(catalog.Find({200, 1, 3}), nullptr);
  const CatalogEntry* entry = catalog.Find({200, 1, 2});
  ASSERT_NE(entry, nullptr);
  EXPECT_GT(entry->published_ns, 0);
  auto manifest = store_.ReadManifest(*entry, {});
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(manifest->info.id, entry->id);
  EXPECT_EQ(entry->data_bytes, manifest->data_bytes());
  EXPECT_GT(entry->new_bytes, entry->data_bytes);
}

TEST_P(CatalogStoreTest, PublishingAgainChangesNothing) {
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  ASSERT_TRUE(PublishTiny(&store_, {100, 1, 1}).ok());
  const uint64_t sequence = store_.Read({})->sequence;
  ASSERT_TRUE(PublishTiny(&store_, {100, 1, 1}).ok());
  EXPECT_EQ(store_.Read({})->sequence, sequence);
  Manifest other = TinyManifest({100, 1, 1});
  other.info.created_by = "another";
  const Status status = store_.Publish(1, other, Level::kLocal, {});
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("step 100, epoch 1, attempt 1"));
  EXPECT_EQ(store_.Publish(1, TinyManifest({100, 2, 1}), Level::kLocal, {}).code(),
            Code::kInvalidArgument);
}

// As after a clock that was set back between the start of the save and now.
TEST_P(CatalogStoreTest, TheClockDecidesNothing) {
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  for (int64_t hours : {2, -2, 5, -5}) {
    Manifest manifest = TinyManifest({static_cast<uint64_t>(100 - 10 * hours), 1, 1});
    manifest.info.started_ns = WallClockNanos() + hours * 3'600'000'000'000;
    manifest.info.stall_ns = 1;
    ASSERT_TRUE(PutTinyFiles(place_.place, manifest).ok());
    ASSERT_TRUE(store_.Publish(1, manifest, Level::kLocal, {}).ok());
  }
  EXPECT_EQ(CatalogLine(&store_), "50/1/1 local, 80/1/1 local, 120/1/1 local, 150/1/1 local");
  const Catalog catalog = *store_.Read({});
  EXPECT_EQ(catalog.Latest()->id.step, 150u);
  EXPECT_EQ(catalog.Find({80, 1, 1})->save_ns, 0u);  // that was not measured
  EXPECT_GT(catalog.Find({150, 1, 1})->save_ns, 0u);
}

TEST_P(CatalogStoreTest, LevelsRise) {
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  ASSERT_TRUE(PublishTiny(&store_, {100, 1, 1}).ok());
  ASSERT_TRUE(PublishTiny(&store_, {200, 1, 1}).ok());
  ASSERT_TRUE(store_.RaiseLevel(1, {100, 1, 1}, Level::kRemote, {}).ok());
  EXPECT_EQ(CatalogLine(&store_), "100/1/1 remote, 200/1/1 local");
  const uint64_t sequence = store_.Read({})->sequence;
  ASSERT_TRUE(store_.RaiseLevel(1, {100, 1, 1}, Level::kPeer, {}).ok());
  EXPECT_EQ(store_.Read({})->sequence, sequence);
  EXPECT_EQ(store_.RaiseLevel(1, {300, 1, 1}, Level::kPeer, {}).code(), Code::kNotFound);
  EXPECT_EQ(store_.Read({})->Latest(Level::kRemote)->id.step, 100u);
}

TEST_P(CatalogStoreTest, Removes) {
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  for (uint64_t step : {100, 200, 300}) ASSERT_TRUE(PublishTiny(&store_, {step, 1, 1}).ok());
  const std::vector<SaveId> ids = {{100, 1, 1}, {300, 1, 1}, {400, 1, 1}};
  ASSERT_TRUE(store_.Remove(1, ids, {}).ok());
  EXPECT_EQ(CatalogLine(&store_), "200/1/1 local");
  ASSERT_TRUE(store_.Remove(1, ids, {}).ok());
  EXPECT_EQ(store_.Read({})->sequence, 4u);
}

TEST_P(CatalogStoreTest, AZombieChangesNothing) {
  ASSERT_EQ(store_.TakeOver("the zombie", {}).value(), 1u);
  ASSERT_TRUE(PublishTiny(&store_, {100, 1, 1}).ok());
  CatalogStore heir(place_.place);
  ASSERT_EQ(heir.TakeOver("the heir", {}).value(), 2u);
  EXPECT_EQ(CatalogLine(&heir), "100/1/1 local");
  ASSERT_TRUE(PublishTiny(&heir, {50, 2, 1}).ok());
  const std::vector<SaveId> ids = {{100, 1, 1}};
  for (const Status& status :
       {PublishTiny(&store_, {200, 1, 1}), store_.Remove(1, ids, {}),
        store_.RaiseLevel(1, ids[0], Level::kRemote, {}), store_.CheckEpoch(1, {})}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("the heir"));
  }
  // What the heir saved counts as newer, though the step is lower.
  EXPECT_EQ(CatalogLine(&heir), "100/1/1 local, 50/2/1 local");
  EXPECT_EQ(heir.Read({})->Latest()->id.step, 50u);
  EXPECT_EQ(store_.TakeOver("the zombie", {}).value(), 3u);
  EXPECT_EQ(heir.CheckEpoch(2, {}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(heir.TakeOver("the heir", {}, 10).value(), 10u);
}

TEST_P(CatalogStoreTest, WritersOfOneEpochLoseNothingToEachOther) {
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  constexpr uint64_t kThreads = 4, kEach = 5;
  std::vector<std::thread> threads;
  std::vector<Status> statuses(kThreads);
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CatalogStore store(place_.place);
      for (uint64_t i = 0; i < kEach && statuses[t].ok(); ++i)
        statuses[t] = PublishTiny(&store, {t * 100 + i, 1, 1});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(store_.Read({})->entries.size(), kThreads * kEach);
  EXPECT_EQ(store_.Read({})->sequence, kThreads * kEach);
}

TEST_P(CatalogStoreTest, EachTakeOverGetsItsOwnEpoch) {
  std::vector<std::thread> threads;
  std::vector<uint64_t> epochs(8);
  for (size_t t = 0; t < epochs.size(); ++t)
    threads.emplace_back(
        [&, t] { epochs[t] = CatalogStore(place_.place).TakeOver("me", {}).value(); });
  for (std::thread& thread : threads) thread.join();
  std::sort(epochs.begin(), epochs.end());
  for (size_t t = 0; t < epochs.size(); ++t) EXPECT_EQ(epochs[t], t + 1);
}

TEST_P(CatalogStoreTest, AFileThatIsMissingOrCutIsNamed) {
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  const Manifest manifest = TinyManifest({100, 1, 1});
  ASSERT_TRUE(PutTinyFiles(place_.place, manifest).ok());
  for (const std::string& key : {manifest.files[1].DataKey(), manifest.files[1].SumsKey()}) {
    const std::string path = place_.place.prefix + key;
    ASSERT_TRUE(place_.place.store->Put(path, AsBytes("short"), {}, {}).ok());
    Status status = store_.Publish(1, manifest, Level::kLocal, {});
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(key + " of rank 1"));
    ASSERT_TRUE(place_.place.store->Delete(path, {}).ok());
    status = store_.Publish(1, manifest, Level::kLocal, {});
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("is not in"));
    ASSERT_TRUE(PutTinyFiles(place_.place, manifest).ok());
  }
  EXPECT_EQ(CatalogLine(&store_), "");
  EXPECT_TRUE(store_.Publish(1, manifest, Level::kLocal, {}).ok());
}

TEST_P(CatalogStoreTest, ACopyIsPublishedAsItIs) {
  CatalogStore source(OpenBucket().place);
  ASSERT_EQ(source.TakeOver("me", {}, 7).value(), 7u);
  ASSERT_TRUE(PublishTiny(&source, {100, 7, 1}).ok());
  ASSERT_TRUE(store_.TakeOver("me", {}).ok());
  const CatalogEntry entry = *source.Read({})->Latest();
  const Manifest manifest = source.ReadManifest(entry, {}).value();
  const std::string bytes = EncodeManifest(manifest).value();
  EXPECT_EQ(store_.PublishCopy(1, entry, AsBytes(bytes), Level::kRemote, {}).code(),
            Code::kDataLoss);  // its files are not there yet
  ASSERT_TRUE(PutTinyFiles(place_.place, manifest).ok());
  std::string wrong = bytes;
  wrong[100] ^= 1;
  EXPECT_EQ(store_.PublishCopy(1, entry, AsBytes(wrong), Level::kRemote, {}).code(),
            Code::kDataLoss);
  ASSERT_TRUE(store_.PublishCopy(1, entry, AsBytes(bytes), Level::kRemote, {}).ok());
  EXPECT_EQ(CatalogLine(&store_), "100/7/1 remote");
  EXPECT_EQ(store_.ReadManifest(*store_.Read({})->Latest(), {})->info.id, entry.id);
}

// Stores that fail.

struct FaultyPlace {
  std::shared_ptr<FaultyStore> faulty = std::make_shared<FaultyStore>(MakeMemoryStore());
  CatalogStore store{StoreInBucket(faulty, "").value()};
};

TEST(CatalogStore, EachFailureLeavesTheOldListOrTheNewOne) {
  for (StoreOperation operation :
       {StoreOperation::kPut, StoreOperation::kGet, StoreOperation::kHead}) {
    uint64_t failures = 0;
    for (uint64_t nth = 1;; ++nth) {
      FaultyPlace p;
      ASSERT_TRUE(p.store.TakeOver("me", {}).ok());
      ASSERT_TRUE(PublishTiny(&p.store, {100, 1, 1}).ok());
      const Manifest manifest = TinyManifest({200, 1, 1});
      ASSERT_TRUE(PutTinyFiles(p.store.place(), manifest).ok());
      p.faulty->Heal();
      p.faulty->FailNth(operation, nth, Error(Code::kUnavailable, "503"));
      const Status status = p.store.Publish(1, manifest, Level::kLocal, {});
      const bool reached = p.faulty->count(operation) >= nth;
      p.faulty->Heal();
      if (!reached) break;
      ++failures;
      EXPECT_EQ(status.code(), Code::kUnavailable);
      EXPECT_EQ(CatalogLine(&p.store), "100/1/1 local");
      EXPECT_TRUE(p.store.Publish(1, manifest, Level::kLocal, {}).ok());
      EXPECT_EQ(CatalogLine(&p.store), "100/1/1 local, 200/1/1 local");
    }
    EXPECT_GE(failures, 2u);
  }
}

TEST(CatalogStore, GoesOnWhenAnswersAreLost) {
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    FaultyPlace p;
    object::RetryOptions options;
    options.first_pause = options.longest_pause = std::chrono::microseconds(10);
    CatalogStore store(StoreInBucket(MakeRetryingStore(p.faulty, options), "").value());
    p.faulty->LoseNth(StoreOperation::kPut, nth, Error(Code::kUnavailable, "cut"));
    auto epoch = store.TakeOver("me", {});
    ASSERT_TRUE(epoch.ok()) << epoch.status().ToString();
    const Status status = PublishTiny(&store, {100, *epoch, 1});
    EXPECT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(PublishTiny(&store, {200, *epoch, 1}).ok());
    EXPECT_EQ(store.Read({})->entries.size(), 2u);
  }
}

TEST(CatalogStore, EachFlippedBitIsNoticed) {
  FaultyPlace p;
  ASSERT_TRUE(p.store.TakeOver("me", {}).ok());
  ASSERT_TRUE(PublishTiny(&p.store, {100, 1, 1}).ok());
  const Catalog catalog = *p.store.Read({});
  const std::string head = p.store.ReadHead({})->ToJson();
  for (uint64_t at = 0; at < head.size(); ++at) {
    p.faulty->FlipBit("head", at);
    EXPECT_FALSE(p.store.Read({}).ok()) << head.substr(at);
    p.faulty->Heal();
  }
  for (uint64_t at = 0; at < catalog.ToJson().size(); ++at) {
    p.faulty->FlipBit(".json", at);
    EXPECT_EQ(p.store.Read({}).status().code(), Code::kDataLoss);
    p.faulty->Heal();
  }
  p.faulty->FlipBit(".hrckm", 77);
  EXPECT_EQ(p.store.ReadManifest(*catalog.Latest(), {}).status().code(), Code::kDataLoss);
  // What does not come back as it was written is not published.
  const Status status = PublishTiny(&p.store, {200, 1, 1});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  p.faulty->Heal();
  EXPECT_EQ(CatalogLine(&p.store), "100/1/1 local");
}

TEST(CatalogStore, ACatalogThatWasSweptMeanwhileIsNoDamage) {
  FaultyPlace p;
  ASSERT_TRUE(p.store.TakeOver("me", {}).ok());
  ASSERT_TRUE(PublishTiny(&p.store, {100, 1, 1}).ok());
  const std::string old = p.store.ReadHead({})->catalog;
  CatalogStore other(StoreInBucket(p.faulty, "").value());
  // Its second Get is for the catalog: just before it another one is published, and this one goes.
  p.faulty->Heal();
  p.faulty->RunBeforeNth(StoreOperation::kGet, 2, [&] {
    ASSERT_TRUE(PublishTiny(&other, {200, 1, 1}).ok());
    ASSERT_TRUE(p.faulty->Delete(old, {}).ok());
  });
  EXPECT_EQ(CatalogLine(&p.store), "100/1/1 local, 200/1/1 local");
  // One that is gone though it is the present one is damage.
  ASSERT_TRUE(p.faulty->Delete(p.store.ReadHead({})->catalog, {}).ok());
  const Status status = p.store.Read({}).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("not there"));
}

TEST(CatalogStore, NeedsABucketWithConditions) {
  object::MemoryStoreOptions options;
  options.abilities.put_if_match = false;
  EXPECT_EQ(StoreInBucket(MakeMemoryStore(options), "").status().code(), Code::kUnimplemented);
}

TEST(CatalogText, TheGoldenFiles) {
  auto head_text = PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/head_v1.json", 1 << 20);
  auto head = StoreHead::FromJson(head_text.value(), "golden");
  ASSERT_TRUE(head.ok()) << head.status().ToString();
  EXPECT_EQ(head->epoch, 3u);
  EXPECT_EQ(head->owner, "node\x01 pid 77");
  EXPECT_EQ(head->catalog_bytes, 800u);
  EXPECT_EQ(head->catalog_hash, (Hash128{5, 6}));
  EXPECT_EQ(head->ToJson(), *head_text);
  auto text = PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/catalog_v1.json", 1 << 20);
  auto catalog = Catalog::FromJson(text.value(), "golden");
  ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
  EXPECT_EQ(CatalogLine(*catalog), "200/1/1 remote, 100/2/1 local");
  EXPECT_EQ(catalog->sequence, 2u);
  EXPECT_EQ(catalog->entries[1].kind, "light");
  EXPECT_EQ(catalog->entries[1].data_bytes, 2'194'477'056u);
  EXPECT_EQ(catalog->ToJson(), *text);
}

TEST(CatalogText, WhatIsWrongIsNamed) {
  Catalog catalog;
  catalog.entries.resize(2);
  catalog.entries[0].id = {1, 1, 1};
  catalog.entries[1].id = {2, 1, 1};
  catalog.entries[0].manifest = catalog.entries[1].manifest = "manifests/x";
  const std::string good = catalog.ToJson();
  ASSERT_TRUE(Catalog::FromJson(good, "x").ok());
  auto with = [&good](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.rfind(from);
    return Catalog::FromJson(text.replace(at, from.size(), to), "x").status();
  };
  EXPECT_THAT(with("\"step\": 2", "\"step\": 1").message(),
              HasSubstr("checkpoints[1]: they are not"));
  EXPECT_THAT(with("\"step\": 2", "\"steq\": 1").message(), HasSubstr("checkpoints[1]: step"));
  EXPECT_THAT(with("\"local\"", "\"there\"").message(), HasSubstr("level"));
  EXPECT_THAT(with("manifests/", "../../etc/").message(), HasSubstr("manifest"));
  EXPECT_THAT(with("\"full\"", "3").message(), HasSubstr("kind"));
  EXPECT_EQ(with("\"format_version\": 1", "\"format_version\": 2").code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(with("headrace-checkpoints", "headrace-x").code(), Code::kDataLoss);
  EXPECT_EQ(Catalog::FromJson("{", "x").status().code(), Code::kDataLoss);
  EXPECT_EQ(Catalog::FromJson("[]", "x").status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace headrace::checkpoint
