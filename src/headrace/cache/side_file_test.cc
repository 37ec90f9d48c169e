// Side files: what comes back, what damage does, what they cost of the cache's limit, how they go.
#include "headrace/cache/side_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/fault_point.h"
#include "headrace/base/keyed_random.h"
#include "headrace/cache/cache_admin.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kSlots = 100, kStep = SideTable::kStepBytes;
const ObjectId kId = IdentifySideFile({"a", "b"});
const uint64_t kTableBytes = (SideTable::kFirstSlot + kSlots) * 8;

// The record of a slot, different for each writer and always the same.
std::string RecordOf(uint64_t slot, uint64_t writer = 0) {
  KeyedRandom random(HashKey(slot, writer));
  std::string record(random.NextBelow(3000), '\0');
  for (char& c : record) c = static_cast<char>(random.Next());
  return record;
}

class SideFileTest : public ::testing::Test {
 protected:
  ~SideFileTest() override { DisarmFaults(); }

  std::unique_ptr<NodeCache> OpenCache(uint64_t limit = 1 << 30) {
    NodeCacheOptions options;
    options.directory = "/cache";
    options.limit_bytes = limit;
    options.free_floor_bytes = 1;
    options.warn = [this](const std::string& line) { warnings_.push_back(line); };
    options.steady_ms = [this] { return clock_; };
    auto cache = NodeCache::Open(&files_, options, Context());
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    return cache.ok() ? *std::move(cache) : nullptr;
  }
  static Result<std::unique_ptr<SideFile>> TryOpen(NodeCache* cache, const ObjectId& id = kId,
                                                   uint64_t slots = kSlots) {
    return SideFile::Open([cache](const ObjectId&) { return cache; }, id, slots);
  }
  static std::unique_ptr<SideFile> Open(NodeCache* cache, const ObjectId& id = kId,
                                        uint64_t slots = kSlots) {
    auto file = TryOpen(cache, id, slots);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return file.ok() ? *std::move(file) : nullptr;
  }
  static bool Add(SideFile* file, uint64_t slot, uint64_t writer = 0) {
    return file->Add(slot, AsBytes(RecordOf(slot, writer)));
  }
  static std::optional<std::string> Find(SideFile* file, uint64_t slot) {
    auto found = file->Find(slot);
    if (!found) return std::nullopt;
    return std::string(AsText(*found));
  }
  // What lies in the directory of side files.
  uint64_t BytesOnDisk() {
    uint64_t bytes = 0;
    auto entries = memory_.List("/cache/side");
    if (!entries.ok()) return 0;
    for (const DirectoryEntry& entry : *entries)
      bytes += memory_.Stat("/cache/side/" + entry.name)->size_bytes;
    return bytes;
  }
  void Flip(const std::string& path, uint64_t offset) {
    auto file = memory_.OpenShared(path).value();
    std::byte byte;
    ASSERT_EQ(file->ReadSome(offset, {&byte, 1}).value(), 1u);
    byte ^= std::byte{0x40};
    ASSERT_TRUE(file->WriteAt(offset, {&byte, 1}).ok());
  }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::vector<std::string> warnings_;
  uint64_t clock_ = 1'000'000;
};

TEST_F(SideFileTest, GivesBackWhatWasAddedToAllWhoHaveItOpen) {
  auto cache = OpenCache(), other_cache = OpenCache();
  auto one = Open(cache.get()), two = Open(other_cache.get());
  for (uint64_t slot : {uint64_t{0}, uint64_t{7}, kSlots - 1}) {
    EXPECT_EQ(Find(two.get(), slot), std::nullopt);
    EXPECT_TRUE(Add(one.get(), slot));
    EXPECT_EQ(Find(two.get(), slot), RecordOf(slot));
  }
  EXPECT_TRUE(Add(two.get(), 7, 1));  // in place of the first
  EXPECT_EQ(Find(one.get(), 7), RecordOf(7, 1));
  EXPECT_EQ(Find(one.get(), 8), std::nullopt);
  EXPECT_TRUE(one->Add(8, {}));
  EXPECT_EQ(Find(two.get(), 8), "");
  one.reset();
  two.reset();
  cache.reset();
  other_cache.reset();
  cache = OpenCache();
  one = Open(cache.get());
  EXPECT_EQ(Find(one.get(), 7), RecordOf(7, 1));
  EXPECT_EQ(Find(one.get(), kSlots - 1), RecordOf(kSlots - 1));
}

TEST_F(SideFileTest, ReadsAndWritesTheGoldenFile) {
  const ObjectId id = IdentifySideFile({"seek points 1 every 8", "0123abcd", "jpg"});
  EXPECT_EQ(id.Hex(), "9b10fcc81e8afb26d50340c904ef3452");
  std::string long_record;
  for (int i = 0; i < 3 * 256; ++i) long_record.push_back(static_cast<char>(i));
  const std::vector<std::pair<uint64_t, std::string>> records = {
      {3, "three"}, {0, ""}, {4, long_record}};
  auto cache = OpenCache();
  auto file = Open(cache.get(), id, 5);
  for (const auto& [slot, record] : records) ASSERT_TRUE(file->Add(slot, AsBytes(record)));
  for (const char* part : {"table", "records"}) {
    const std::string path = cache->paths().Side(id, part);
    auto golden =
        PosixFileSystem()->ReadWhole(JoinPath(HEADRACE_GOLDEN_DIR, BaseName(path)), 1 << 20);
    ASSERT_TRUE(golden.ok()) << golden.status().ToString();
    EXPECT_EQ(memory_.ReadWhole(path, 1 << 20).value(), *golden) << part;
    file.reset();
    ASSERT_TRUE(memory_.WriteAtomically(path, AsBytes(*golden)).ok());
  }
  file = Open(cache.get(), id, 5);
  for (const auto& [slot, record] : records) EXPECT_EQ(Find(file.get(), slot), record);
  EXPECT_EQ(Find(file.get(), 1), std::nullopt);
}

TEST_F(SideFileTest, FilesOfOtherNamesAndSizesAreOthers) {
  auto cache = OpenCache();
  auto one = Open(cache.get());
  ASSERT_TRUE(Add(one.get(), 3));
  EXPECT_EQ(Find(Open(cache.get(), IdentifySideFile({"ab"})).get(), 3), std::nullopt);
  EXPECT_NE(IdentifySideFile({"a", "b"}), IdentifySideFile({"ab"}));
  EXPECT_NE(IdentifySideFile({"a", "b"}), IdentifySideFile({"b", "a"}));
  // The same name with another number of slots: nobody makes that, but a file may say anything.
  auto larger = Open(cache.get(), kId, kSlots + 1);
  EXPECT_EQ(Find(larger.get(), 3), std::nullopt);
  EXPECT_TRUE(Add(larger.get(), kSlots));
}

TEST_F(SideFileTest, RefusesARecordThatIsTooLarge) {
  auto cache = OpenCache();
  auto file = Open(cache.get());
  std::string record(kMaxSideRecordBytes, 'x');
  EXPECT_TRUE(file->Add(1, AsBytes(record)));
  EXPECT_EQ(Find(file.get(), 1), record);
  record.push_back('x');
  EXPECT_FALSE(file->Add(2, AsBytes(record)));
  EXPECT_TRUE(file->usable());
}

TEST_F(SideFileTest, NeverGivesWrongBytesWhateverBitIsFlipped) {
  auto cache = OpenCache();
  auto file = Open(cache.get());
  std::map<uint64_t, std::string> records = {{0, "first"}, {1, "the second"}, {2, ""}};
  for (const auto& [slot, record] : records) ASSERT_TRUE(file->Add(slot, AsBytes(record)));
  const std::string table = cache->paths().Side(kId, "table");
  const std::string content = cache->paths().Side(kId, "records");
  const uint64_t content_bytes = memory_.Stat(content)->size_bytes;
  auto words = memory_.OpenSharedWords(table, kTableBytes / 8).value();
  std::map<uint64_t, uint64_t> places;
  for (const auto& [slot, record] : records)
    places[slot] = words->Load(SideTable::kFirstSlot + slot);
  auto lost_with = [&](const std::string& path, uint64_t offset) {
    uint64_t lost = 0;
    Flip(path, offset);
    for (const auto& [slot, record] : records) {
      auto found = Find(file.get(), slot);
      EXPECT_TRUE(!found || *found == record) << path << " " << offset << " " << slot;
      lost += !found;
    }
    Flip(path, offset);
    for (const auto& [slot, place] : places) {  // what was damaged is forgotten
      words->Store(SideTable::kFirstSlot + slot, place);
      EXPECT_EQ(Find(file.get(), slot), records[slot]);
    }
    return lost;
  };
  uint64_t lost = 0;
  for (uint64_t i = 0; i < content_bytes; ++i) lost += lost_with(content, i);
  EXPECT_GE(lost, 3u * 24 + 5 + 10);  // all but the zeros that fill up
  for (uint64_t i = 0; i < (SideTable::kFirstSlot + 3) * 8; ++i) {
    const bool owner = i < 8, place = i >= SideTable::kFirstSlot * 8;
    EXPECT_EQ(lost_with(table, i), owner ? 3u : place ? 1u : 0u) << i;
  }
}

TEST_F(SideFileTest, WhatWasCutOffIsGoneAndMayBeAddedAgain) {
  auto cache = OpenCache();
  auto file = Open(cache.get());
  for (uint64_t slot = 0; slot < 20; ++slot) ASSERT_TRUE(Add(file.get(), slot));
  files_.EndFilesAt(".records", memory_.Stat(cache->paths().Side(kId, "records"))->size_bytes / 2);
  uint64_t there = 0;
  for (uint64_t slot = 0; slot < 20; ++slot) {
    auto found = Find(file.get(), slot);
    there += found.has_value();
    EXPECT_TRUE(!found || *found == RecordOf(slot)) << slot;
  }
  EXPECT_GT(there, 2u);
  EXPECT_LT(there, 18u);
  files_.Heal();
  for (uint64_t slot = 0; slot < 20; ++slot) EXPECT_TRUE(Add(file.get(), slot, 1));
  for (uint64_t slot = 0; slot < 20; ++slot) EXPECT_EQ(Find(file.get(), slot), RecordOf(slot, 1));
}

TEST_F(SideFileTest, CountsItsBytesAgainstTheLimitBeforeTheyAreThere) {
  auto cache = OpenCache();
  EXPECT_EQ(cache->used_bytes(), 0u);
  auto file = Open(cache.get());
  EXPECT_EQ(cache->used_bytes(), SideTableCost(kTableBytes));
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Add(file.get(), i % kSlots, i));
    ASSERT_LE(BytesOnDisk(), cache->used_bytes());
    ASSERT_LE(cache->used_bytes(), BytesOnDisk() + SideTableCost(0) + 4096 + kStep);
  }
  uint64_t used = cache->used_bytes();
  EXPECT_GT(used, 4 * kStep);
  file.reset();
  cache.reset();
  cache = OpenCache();  // counts anew
  EXPECT_EQ(cache->used_bytes(), used);
}

TEST_F(SideFileTest, TakesAQuarterOfTheCacheAndNoMore) {
  auto cache = OpenCache(16 * kStep);
  auto file = Open(cache.get());
  uint64_t added = 0, refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) ++(Add(file.get(), i % kSlots, i) ? added : refused);
  EXPECT_GT(added, 500u);
  EXPECT_GT(refused, 500u);
  EXPECT_TRUE(file->usable());
  EXPECT_LE(memory_.Stat(cache->paths().Side(kId, "records"))->size_bytes, 4 * kStep);
  EXPECT_EQ(cache->used_bytes(), 4 * kStep + SideTableCost(kTableBytes));
  uint64_t found = 0;
  for (uint64_t slot = 0; slot < kSlots; ++slot) found += Find(file.get(), slot).has_value();
  EXPECT_EQ(found, kSlots);
}

TEST_F(SideFileTest, ATableThatIsTooLargeForTheCacheIsNotMade) {
  auto cache = OpenCache(16 * kTableBytes - 1);
  EXPECT_EQ(TryOpen(cache.get()).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(BytesOnDisk(), 0u);
}

// Fills a side file up to `steps` steps.
void Fill(SideFile* file, uint64_t steps) {
  std::string record(kStep / 4 - 24, 'r');
  for (uint64_t i = 0; i < 4 * steps; ++i) ASSERT_TRUE(file->Add(i, AsBytes(record)));
}

TEST_F(SideFileTest, GoesAsAWholeWhenItWasNotUsedForLongest) {
  const ObjectId other = IdentifySideFile({"other"});
  auto cache = OpenCache(8 * kStep);
  auto old = Open(cache.get());
  Fill(old.get(), 2);
  clock_ += 1000;
  auto young = Open(cache.get(), other);
  Fill(young.get(), 2);
  // Looked at, but the count that makes room is that of another process.
  auto room = OpenCache(8 * kStep)->MakeRoom(5 * kStep);
  ASSERT_TRUE(room.ok()) << room.status().ToString();
  EXPECT_FALSE(old->usable());
  EXPECT_EQ(Find(old.get(), 1), std::nullopt);
  EXPECT_FALSE(Add(old.get(), 1));
  EXPECT_TRUE(young->usable());
  EXPECT_EQ(cache->used_bytes(), 2 * kStep + SideTableCost(kTableBytes));
  // It may be begun again.
  old = Open(cache.get());
  EXPECT_EQ(Find(old.get(), 1), std::nullopt);
  EXPECT_TRUE(Add(old.get(), 1));
  EXPECT_EQ(Find(old.get(), 1), RecordOf(1));
}

TEST_F(SideFileTest, AUsedOneStaysAndABlockGoes) {
  constexpr uint32_t kBlock = 256 << 10;
  const ObjectVersion version{"test://origin", "key", "v1", uint64_t{100} * kBlock};
  auto cache = OpenCache(12 * kStep);
  auto file = Open(cache.get());
  Fill(file.get(), 2);
  for (uint64_t number = 0; number < 40; ++number) {
    clock_ += 1000;
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(file->Find(1)) << number;
    auto id = BlockOf(IdentifyObject(version, kBlock), version.size_bytes, kBlock, number);
    auto claim = cache->ClaimBlock(id);
    ASSERT_TRUE(claim.ok());
    ASSERT_TRUE((*claim)->Admit(version, kBlock, AsBytes(std::string(kBlock, 'b')), {}).ok());
  }
  EXPECT_GT(cache->counters().evicted_blocks, 20u);
  EXPECT_TRUE(file->usable());
}

TEST_F(SideFileTest, MakesRoomForItselfByEvictingBlocks) {
  constexpr uint32_t kBlock = 256 << 10;
  const ObjectVersion version{"test://origin", "key", "v1", uint64_t{100} * kBlock};
  auto cache = OpenCache(12 * kStep);
  for (uint64_t number = 0; number < 20; ++number) {
    auto id = BlockOf(IdentifyObject(version, kBlock), version.size_bytes, kBlock, number);
    ASSERT_TRUE((*cache->ClaimBlock(id))
                    ->Admit(version, kBlock, AsBytes(std::string(kBlock, 'b')), {})
                    .ok());
  }
  const uint64_t before = cache->counters().evicted_blocks;
  clock_ += 1000;
  auto file = Open(cache.get());
  Fill(file.get(), 3);
  EXPECT_GT(cache->counters().evicted_blocks, before + 2);
  EXPECT_LE(cache->used_bytes(), 12 * kStep);
}

TEST_F(SideFileTest, ADiskThatFailsEndsItWithOneWarning) {
  auto cache = OpenCache();
  auto file = Open(cache.get());
  ASSERT_TRUE(Add(file.get(), 1));
  files_.LimitBytes(10);
  EXPECT_FALSE(Add(file.get(), 2));
  EXPECT_FALSE(file->usable());
  EXPECT_FALSE(cache->healthy());
  EXPECT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("going on without it"));
  EXPECT_EQ(TryOpen(cache.get()).status().code(), Code::kUnavailable);
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(SideFileTest, AReadFaultIsAMissAndEndsIt) {
  auto cache = OpenCache();
  auto file = Open(cache.get());
  ASSERT_TRUE(Add(file.get(), 1));
  files_.FailNth(FileOperation::kRead, 1, Error(Code::kIoError, "the disk is broken"));
  EXPECT_EQ(Find(file.get(), 1), std::nullopt);
  EXPECT_FALSE(file->usable());
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(SideFileTest, NothingIsMadeWhereTheCacheHasVanished) {
  auto cache = OpenCache();
  ASSERT_TRUE(memory_.RemoveTree("/cache").ok());
  ASSERT_TRUE(memory_.MakeDirectories("/cache").ok());
  EXPECT_FALSE(TryOpen(cache.get()).ok());
  EXPECT_THAT(memory_.List("/cache").value(), SizeIs(0));
  EXPECT_EQ(
      SideFile::Open([](const ObjectId&) -> NodeCache* { return nullptr; }, kId, 1).status().code(),
      Code::kUnavailable);
}

TEST_F(SideFileTest, ClearRemovesIt) {
  auto cache = OpenCache();
  auto file = Open(cache.get());
  Fill(file.get(), 2);
  auto admin = CacheAdmin::Open(&files_, "/cache");
  ASSERT_TRUE(admin.ok());
  EXPECT_EQ((*admin)->Clear(Context()).value(), 2 * kStep + SideTableCost(kTableBytes));
  EXPECT_FALSE(file->usable());
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(BytesOnDisk(), 0u);
}

// Opens, adds to slots 0 to 9 twice, removes and opens again.
void Work(NodeCache* cache) {
  for (uint64_t round = 0; round < 2; ++round) {
    auto file = SideFile::Open([cache](const ObjectId&) { return cache; }, kId, kSlots);
    if (!file.ok()) return;
    for (uint64_t slot = 0; slot < 10; ++slot) {
      (void)(*file)->Add(slot, AsBytes(RecordOf(slot)));
      (void)(*file)->Add(slot, AsBytes(RecordOf(slot, 1)));
    }
    if (round == 0) (void)RemoveSideFile(cache->files(), cache->paths(), kId);
  }
}

TEST_F(SideFileTest, APowerCutAtAnyPointLosesRecordsAndNothingElse) {
  for (Survival survival : {Survival::kNothing, Survival::kSome, Survival::kEverything}) {
    bool finished = false;
    for (uint64_t k = 1; !finished; ++k) {
      MemoryFileSystem memory;
      auto open = [&memory] {
        NodeCacheOptions options;
        options.directory = "/cache";
        options.limit_bytes = 64 * kStep;
        options.free_floor_bytes = 1;
        return NodeCache::Open(&memory, options, Context());
      };
      {
        auto cache = open();
        ASSERT_TRUE(cache.ok());
        memory.CutPowerAt(memory.boundaries() + k, survival, k);
        Work(cache->get());
        finished = !memory.power_is_off();
      }
      memory.PowerOn();
      auto cache = open();
      ASSERT_TRUE(cache.ok()) << cache.status().ToString();
      if (!(*cache)->healthy()) continue;  // the cut was in the cache's own making
      auto file = TryOpen(cache->get());
      ASSERT_TRUE(file.ok()) << k << " " << file.status().ToString();
      for (uint64_t slot = 0; slot < kSlots; ++slot) {
        auto found = Find(file->get(), slot);
        EXPECT_TRUE(!found || *found == RecordOf(slot) || *found == RecordOf(slot, 1)) << k;
      }
      for (uint64_t slot = 0; slot < 10; ++slot) {
        EXPECT_TRUE(Add(file->get(), slot, 2)) << k;
        EXPECT_EQ(Find(file->get(), slot), RecordOf(slot, 2)) << k;
      }
    }
  }
}

// The same when a process is killed between two steps that no file system sees.
TEST_F(SideFileTest, AKillAtAnyStepLeavesWhatTheNextOneGoesOnWith) {
  for (const char* point : {"cache.side.before_table", "cache.side.before_owner",
                            "cache.side.before_write", "cache.side.after_write"}) {
    for (int nth = 1; nth <= 3; ++nth) {
      MemoryFileSystem memory;
      NodeCacheOptions options;
      options.directory = "/cache";
      options.limit_bytes = 64 * kStep;
      options.free_floor_bytes = 1;
      auto cache = NodeCache::Open(&memory, options, Context()).value();
      ArmFault(point, nth, [] { return Error(Code::kIoError, "killed"); });
      Work(cache.get());
      EXPECT_GT(FaultPassages(point), 0u);
      DisarmFaults();
      cache.reset();
      cache = NodeCache::Open(&memory, options, Context()).value();
      auto file = Open(cache.get());
      for (uint64_t slot = 0; slot < 10; ++slot) {
        auto found = Find(file.get(), slot);
        EXPECT_TRUE(!found || *found == RecordOf(slot) || *found == RecordOf(slot, 1));
        EXPECT_TRUE(Add(file.get(), slot, 2));
        EXPECT_EQ(Find(file.get(), slot), RecordOf(slot, 2));
      }
    }
  }
}

// Opening while another one opens waits; a table that lies about where it ends does no harm.
TEST_F(SideFileTest, AnOldTableWithWildNumbersIsOfNoHarm) {
  for (uint64_t wild : {uint64_t{3}, uint64_t{1} << 42, UINT64_MAX, UINT64_MAX - 7}) {
    for (size_t word : {SideTable::kEnd, SideTable::kCounted}) {
      auto cache = OpenCache(64 * kStep);
      auto file = Open(cache.get());
      ASSERT_TRUE(Add(file.get(), 1));
      auto words = memory_.OpenSharedWords(cache->paths().Side(kId, "table"), kTableBytes / 8);
      (*words)->Store(word, wild);
      (void)Add(file.get(), 2);
      EXPECT_EQ(Find(file.get(), 1), RecordOf(1));
      auto second = Find(file.get(), 2);
      EXPECT_TRUE(!second || *second == RecordOf(2));
      EXPECT_LE(memory_.Stat(cache->paths().Side(kId, "records"))->size_bytes, 16 * kStep);
      for (uint64_t slot = 1; slot < 4; ++slot) (*words)->Store(SideTable::kFirstSlot + slot, wild);
      for (uint64_t slot = 1; slot < 4; ++slot) EXPECT_EQ(Find(file.get(), slot), std::nullopt);
      ASSERT_TRUE(RemoveSideFile(&memory_, cache->paths(), kId));
    }
  }
}

}  // namespace
}  // namespace headrace::cache
