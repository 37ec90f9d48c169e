// The blocks of a node on a disk: what is kept, what goes, and what happens when the disk does.
#include "headrace/cache/node_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/fault_point.h"
#include "headrace/base/keyed_random.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kBlock = 2 * kPageBytes;
const uint64_t kCost = BlockCost(kBlock);
const ObjectVersion kVersion{"test://origin", "key", "v1", 100 * uint64_t{kBlock} - 1000};

BlockId Id(uint64_t number) {
  return BlockOf(IdentifyObject(kVersion, kBlock), kVersion.size_bytes, kBlock, number);
}
std::string Content(const BlockId& id) {
  return CountingOrigin::Content("key", 1, id.number * kBlock, id.length);
}
MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

class NodeCacheTest : public ::testing::Test {
 protected:
  ~NodeCacheTest() override { DisarmFaults(); }

  std::unique_ptr<NodeCache> Open(uint64_t limit = 1 << 30, const std::string& dir = "/cache") {
    NodeCacheOptions options;
    options.directory = dir;
    options.limit_bytes = limit;
    options.free_floor_bytes = 1;
    options.warn = [this](const std::string& line) { warnings_.push_back(line); };
    options.steady_ms = [this] { return clock_; };
    auto cache = NodeCache::Open(&files_, options, Context());
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    return cache.ok() ? *std::move(cache) : nullptr;
  }
  Status Admit(NodeCache* cache, uint64_t number, const ExpectedUse& use = {}) {
    clock_ += 100;
    HR_ASSIGN_OR_RETURN(auto claim, cache->ClaimBlock(Id(number)));
    return claim->Admit(kVersion, kBlock, AsBytes(Content(Id(number))), use);
  }
  static Code Read(NodeCache* cache, uint64_t number) {
    std::string out(Id(number).length, '\0');
    Status status = cache->Read(Id(number), 0, Writable(&out), Context());
    if (status.ok()) {
      EXPECT_EQ(out, Content(Id(number)));
    }
    return status.code();
  }
  std::vector<uint64_t> Cached(NodeCache* cache, uint64_t up_to = 100) {
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < up_to; ++i)
      if (cache->Contains(Id(i))) numbers.push_back(i);
    return numbers;
  }
  // Bytes of blocks, temporary files and descriptors that lie in the directory.
  uint64_t BytesOnDisk(const CachePaths& paths) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kFanOut; ++i) {
      for (const std::string& folder :
           {paths.BlockFolder(FanOutName(i)), paths.DescriptorFolder(FanOutName(i))}) {
        auto entries = memory_.List(folder);
        if (!entries.ok()) continue;
        for (const DirectoryEntry& entry : *entries)
          bytes += memory_.Stat(JoinPath(folder, entry.name))->size_bytes;
      }
    }
    return bytes;
  }
  void Damage(const std::string& path, size_t offset, size_t cut_at = std::string::npos) {
    std::string content = *memory_.ReadWhole(path, 1 << 30);
    if (offset < content.size()) content[offset] = static_cast<char>(content[offset] ^ 1);
    content.resize(std::min(content.size(), cut_at));
    ASSERT_TRUE(memory_.WriteAtomically(path, AsBytes(content)).ok());
  }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::vector<std::string> warnings_;
  uint64_t clock_ = 1'000'000;
};

TEST_F(NodeCacheTest, GivesBackAnyRangeOfWhatWasAdmitted) {
  auto cache = Open();
  EXPECT_EQ(Read(cache.get(), 7), Code::kNotFound);
  for (uint64_t number : {0, 7, 99}) EXPECT_TRUE(Admit(cache.get(), number).ok());
  KeyedRandom random(1);
  for (int i = 0; i < 200; ++i) {
    BlockId id = Id(i % 2 ? 7 : 99);
    auto offset = static_cast<uint32_t>(random.NextBelow(id.length));
    std::string out(random.NextBelow(id.length - offset) + 1, '\0');
    ASSERT_TRUE(cache->Read(id, offset, Writable(&out), Context()).ok());
    ASSERT_EQ(out, Content(id).substr(offset, out.size()));
  }
  EXPECT_EQ(Admit(cache.get(), 7).code(), Code::kAlreadyExists);
  NodeCacheCounters counts = cache->counters();
  EXPECT_EQ(counts.admitted_blocks, 3u);
  EXPECT_EQ(cache->used_bytes(), 2 * kCost + BlockCost(Id(99).length) + kDescriptorCost);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(NodeCacheTest, IsThereAgainAfterAnotherOpen) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 3).ok());
  uint64_t used = cache->used_bytes();
  cache.reset();
  cache = Open(0);  // as it was
  EXPECT_EQ(cache->used_bytes(), used);
  EXPECT_EQ(cache->limit_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(Read(cache.get(), 3), Code::kOk);
  auto descriptor =
      ParseDescriptor(*memory_.ReadWhole(cache->paths().Descriptor(Id(3).object), 10000));
  ASSERT_TRUE(descriptor.ok());
  EXPECT_EQ(descriptor->version.key, "key");
}

TEST_F(NodeCacheTest, EveryFlippedBitAndEveryCutIsFoundAndDropped) {
  auto cache = Open();
  std::string path = cache->paths().Block(Id(4), BlockFileKind::kBlock);
  uint64_t file_bytes = BlockHeaderBytes(kBlock) + kBlock;
  std::vector<std::pair<size_t, size_t>> damages;  // bit, cut
  for (size_t at : {size_t{0}, size_t{9}, size_t{20}, size_t{33}, size_t{41}, size_t{64},
                    size_t{75}, size_t{4096}, size_t{4096 + 65536}, file_bytes - 1})
    damages.emplace_back(at, std::string::npos);
  for (size_t cut : {size_t{0}, size_t{63}, size_t{4095}, size_t{4096}, file_bytes - 1})
    damages.emplace_back(std::string::npos, cut);
  for (auto [at, cut] : damages) {
    ASSERT_TRUE(Admit(cache.get(), 4).ok()) << at << " " << cut;
    uint64_t used = cache->used_bytes();
    Damage(path, at, cut);
    EXPECT_EQ(Read(cache.get(), 4), Code::kDataLoss) << at << " " << cut;
    EXPECT_EQ(Read(cache.get(), 4), Code::kNotFound);
    EXPECT_EQ(cache->used_bytes(), used - kCost);
  }
  EXPECT_EQ(cache->counters().dropped_blocks, damages.size());
  EXPECT_TRUE(cache->healthy());
}

TEST_F(NodeCacheTest, AReadOfAPartChecksThePagesItTouches) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 4).ok());
  Damage(cache->paths().Block(Id(4), BlockFileKind::kBlock), BlockHeaderBytes(kBlock) + 70'000);
  std::string out(100, '\0');
  EXPECT_TRUE(cache->Read(Id(4), 10, Writable(&out), Context()).ok());  // page 0 is good
  EXPECT_EQ(cache->Read(Id(4), kPageBytes + 60'000, Writable(&out), Context()).code(),
            Code::kDataLoss);  // the damage is in another part of the same page
}

TEST_F(NodeCacheTest, ABlockUnderAnotherNameIsDropped) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 4).ok());
  ASSERT_TRUE(memory_
                  .Rename(cache->paths().Block(Id(4), BlockFileKind::kBlock),
                          cache->paths().Block(Id(5), BlockFileKind::kBlock))
                  .ok());
  EXPECT_EQ(Read(cache.get(), 5), Code::kDataLoss);
}

TEST_F(NodeCacheTest, NeverHoldsMoreThanItsLimit) {
  const uint64_t limit = 3 * kCost + kDescriptorCost;
  auto cache = Open(limit);
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(Admit(cache.get(), i % 20).ok() || i >= 20);
    EXPECT_LE(cache->used_bytes(), limit);
    EXPECT_LE(BytesOnDisk(cache->paths()), limit);
  }
  EXPECT_GT(cache->counters().evicted_blocks, 10u);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(NodeCacheTest, EvictsWhatWasNotUsedForLongest) {
  auto cache = Open(3 * kCost + kDescriptorCost);
  for (uint64_t i : {1, 2, 3}) ASSERT_TRUE(Admit(cache.get(), i).ok());
  clock_ += 1000;
  EXPECT_EQ(Read(cache.get(), 1), Code::kOk);
  ASSERT_TRUE(Admit(cache.get(), 4).ok());
  EXPECT_THAT(Cached(cache.get()), ElementsAre(1, 3, 4));
}

TEST_F(NodeCacheTest, EvictsWhatAPlanNeedsLast) {
  auto cache = Open(3 * kCost + kDescriptorCost);
  auto slot = cache->JoinPlans();
  ASSERT_TRUE(slot.ok());
  cache->SetProgress(*slot, 10, 1'000'000);
  ASSERT_TRUE(Admit(cache.get(), 1, {slot->plan, 20}).ok());
  ASSERT_TRUE(Admit(cache.get(), 2, {slot->plan, 9000}).ok());
  ASSERT_TRUE(Admit(cache.get(), 3, {slot->plan, 30}).ok());
  EXPECT_EQ(Read(cache.get(), 2), Code::kOk);  // a read does not change what the plan says
  ASSERT_TRUE(Admit(cache.get(), 4, {slot->plan, 11}).ok());
  EXPECT_THAT(Cached(cache.get()), ElementsAre(1, 3, 4));
  cache->SetProgress(*slot, 25, 1'000'000);  // past block 1
  ASSERT_TRUE(Admit(cache.get(), 5, {slot->plan, 40}).ok());
  EXPECT_THAT(Cached(cache.get()), ElementsAre(3, 4, 5));
  auto other = cache->JoinPlans();
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->plan, slot->plan);
}

TEST_F(NodeCacheTest, PinnedObjectsStayAndNothingElseFits) {
  auto cache = Open(2 * kCost + kDescriptorCost);
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  ASSERT_TRUE(Admit(cache.get(), 2).ok());
  ASSERT_TRUE(
      memory_.WriteAtomically(cache->paths().Pin(Id(1).object), AsBytes(std::string_view())).ok());
  EXPECT_EQ(Admit(cache.get(), 3).code(), Code::kResourceExhausted);
  EXPECT_EQ(Admit(cache.get(), 4).code(), Code::kResourceExhausted);
  EXPECT_THAT(Cached(cache.get()), ElementsAre(1, 2));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("takes nothing more")));
  EXPECT_EQ(Read(cache.get(), 1), Code::kOk);
  EXPECT_TRUE(cache->healthy());
}

TEST_F(NodeCacheTest, SmallBlocksThatFitDoNotEndAFullCache) {
  const ObjectVersion small{"test://origin", "small", "v1", 1000};
  const BlockId small_id = BlockOf(IdentifyObject(small, kBlock), small.size_bytes, kBlock, 0);
  auto cache = Open(kCost + BlockCost(small_id.length) + 2 * kDescriptorCost);
  const std::string pin = cache->paths().Pin(Id(1).object);
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  ASSERT_TRUE(memory_.WriteAtomically(pin, AsBytes(std::string_view())).ok());
  for (int i = 0; i < 3; ++i) {
    clock_ += 100'000;
    EXPECT_EQ(Admit(cache.get(), 2).code(), Code::kResourceExhausted);
    auto claim = cache->ClaimBlock(small_id);
    ASSERT_TRUE(claim.ok());
    EXPECT_TRUE((*claim)->Admit(small, kBlock, AsBytes(std::string(1000, 'x')), {}).ok());
    EXPECT_TRUE(cache->Drop(small_id));
  }
  EXPECT_THAT(warnings_, SizeIs(1));
  // It takes as large ones again, for a while; then it is full once more.
  ASSERT_TRUE(memory_.Remove(pin).ok());
  clock_ += 100'000;
  EXPECT_TRUE(Admit(cache.get(), 3).ok());
  ASSERT_TRUE(memory_.WriteAtomically(pin, AsBytes(std::string_view())).ok());
  EXPECT_EQ(Admit(cache.get(), 4).code(), Code::kResourceExhausted);
  EXPECT_THAT(warnings_, SizeIs(2));
}

// Of two writers that find a disk full, one may see it at its space and one at its write.
TEST_F(NodeCacheTest, AFullDiskIsToldOfOnceHoweverItShows) {
  auto cache = Open(2 * kCost + kDescriptorCost);
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  ASSERT_TRUE(
      memory_.WriteAtomically(cache->paths().Pin(Id(1).object), AsBytes(std::string_view())).ok());
  ASSERT_TRUE(Admit(cache.get(), 2).ok());
  EXPECT_EQ(Admit(cache.get(), 3).code(), Code::kResourceExhausted);
  EXPECT_TRUE(cache->Drop(Id(2)));
  files_.FailNth(FileOperation::kAppend, 1, Error(Code::kResourceExhausted, "no space left"), 1000);
  EXPECT_EQ(Admit(cache.get(), 4).code(), Code::kResourceExhausted);
  EXPECT_EQ(cache->counters().degraded, 1u);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("takes nothing more")));
}

TEST_F(NodeCacheTest, ACacheFullOfWhatPlansNeedIsNoNews) {
  auto cache = Open(2 * kCost + kDescriptorCost);
  auto slot = cache->JoinPlans();
  ASSERT_TRUE(slot.ok());
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_TRUE(Admit(cache.get(), i, {slot->plan, 100}).ok());
  auto claim = cache->ClaimBlock(Id(3));
  ASSERT_TRUE(claim.ok());
  const std::string content = Content(Id(3));
  EXPECT_EQ((*claim)
                ->Admit(kVersion, kBlock, AsBytes(content), {slot->plan, 100}, Displace::kUnclaimed)
                .code(),
            Code::kResourceExhausted);
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_THAT(Cached(cache.get()), ElementsAre(1, 2));
}

TEST_F(NodeCacheTest, ADiskThatCanOnlyBeReadIsNoticedWhileNothingIsWritten) {
  auto cache = Open(2 * kCost + kDescriptorCost);
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_TRUE(Admit(cache.get(), i).ok());
  files_.FailNth(FileOperation::kFreeBytes, 1, Error(Code::kPermissionDenied, "Read-only"), 1000);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cache->HasRoom(1));
  EXPECT_FALSE(cache->healthy());
  EXPECT_EQ(Read(cache.get(), 1), Code::kOk);
  const uint64_t written = files_.count(FileOperation::kLock);
  clock_ += 100'000;
  EXPECT_EQ(Admit(cache.get(), 3).code(), Code::kUnavailable);
  EXPECT_EQ(files_.count(FileOperation::kLock), written);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be written (Read-only)")));
  files_.Heal();
  EXPECT_TRUE(Admit(cache.get(), 3).ok());
  EXPECT_TRUE(cache->healthy());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be written"), HasSubstr("works again")));
  EXPECT_EQ(cache->counters().degraded, 1u);
}

TEST_F(NodeCacheTest, ALimitBelowOneBlockOnlyStreams) {
  auto cache = Open(kCost - 1);
  EXPECT_EQ(Admit(cache.get(), 1).code(), Code::kUnavailable);
  EXPECT_EQ(Admit(cache.get(), 2).code(), Code::kUnavailable);
  EXPECT_EQ(Read(cache.get(), 1), Code::kNotFound);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("less than a block")));
  EXPECT_EQ(cache->used_bytes(), 0u);
}

TEST_F(NodeCacheTest, LeavesTheFloorOfFreeSpace) {
  files_.LimitBytes(10 * kCost);
  NodeCacheOptions options;
  options.directory = "/cache";
  options.limit_bytes = 1 << 30;
  options.free_floor_bytes = 8 * kCost;
  auto cache = NodeCache::Open(&files_, options, Context());
  ASSERT_TRUE(cache.ok());
  EXPECT_TRUE(Admit(cache->get(), 1).ok());
  // The double never gives space back, so eviction cannot help: refused, and nothing is written.
  EXPECT_EQ(Admit(cache->get(), 2).code(), Code::kResourceExhausted);
  EXPECT_GE(*files_.FreeBytes("/"), 8 * kCost);
}

TEST_F(NodeCacheTest, OneClaimAtATime) {
  auto a = Open(), b = Open();
  auto claim = a->ClaimBlock(Id(1));
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(a->ClaimBlock(Id(1)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(b->ClaimBlock(Id(1)).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(b->ClaimBlock(Id(2)).ok());
  claim = Error(Code::kCancelled, "given up");
  claim = b->ClaimBlock(Id(1));
  ASSERT_TRUE(claim.ok());
  EXPECT_TRUE((*claim)->Admit(kVersion, kBlock, AsBytes(Content(Id(1))), {}).ok());
  EXPECT_EQ(a->ClaimBlock(Id(1)).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(Read(a.get(), 1), Code::kOk);
  // No lock file is left behind.
  claim = Error(Code::kCancelled, "done");
  EXPECT_THAT(ListCache(&files_, a->paths())->unfinished, IsEmpty());
}

TEST_F(NodeCacheTest, AFullDiskIsToldOnceAndTriedAgain) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  uint64_t used = cache->used_bytes();
  files_.FailNth(FileOperation::kAppend, 1, Error(Code::kResourceExhausted, "no space left"), 1000);
  EXPECT_EQ(Admit(cache.get(), 2).code(), Code::kResourceExhausted);
  EXPECT_FALSE(cache->healthy());
  EXPECT_EQ(Admit(cache.get(), 3).code(), Code::kUnavailable);
  EXPECT_LE(cache->used_bytes(), used);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no space left")));
  clock_ += 5'000;
  EXPECT_FALSE(Admit(cache.get(), 3).ok());  // a probe, which fails
  files_.Heal();
  clock_ += 500;
  EXPECT_EQ(Admit(cache.get(), 3).code(), Code::kUnavailable);  // not yet
  clock_ += 60'000;
  EXPECT_TRUE(Admit(cache.get(), 3).ok());
  EXPECT_TRUE(cache->healthy());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be written"), HasSubstr("works again")));
  EXPECT_EQ(cache->counters().degraded, 1u);
  EXPECT_THAT(ListCache(&files_, cache->paths())->unfinished, IsEmpty());
}

TEST_F(NodeCacheTest, EachOperationOfTheDiskMayFail) {
  for (size_t operation = 0; operation < kNumFileOperations; ++operation) {
    SCOPED_TRACE(FileOperationName(static_cast<FileOperation>(operation)));
    std::string dir = "/each" + std::to_string(operation);
    for (int nth = 1; nth <= 6; ++nth) {
      files_.FailNth(static_cast<FileOperation>(operation), nth,
                     Error(Code::kIoError, "the disk is broken"));
      auto cache = Open(4 * kCost, dir);
      ASSERT_TRUE(cache);
      for (uint64_t i = 0; i < 6; ++i) {
        (void)Admit(cache.get(), i);
        Code code = Read(cache.get(), i);
        EXPECT_TRUE(code == Code::kOk || code == Code::kNotFound || code == Code::kUnavailable)
            << CodeName(code);
      }
      files_.Heal();
      clock_ += 200'000;
      (void)Read(cache.get(), 0);  // the probes
      const auto fresh =
          uint64_t{10} + uint64_t{3} * static_cast<uint64_t>(nth);  // never admitted before
      (void)Admit(cache.get(), fresh);
      clock_ += 200'000;
      (void)Admit(cache.get(), fresh + 1);
      EXPECT_TRUE(Admit(cache.get(), fresh + 2).ok());
      EXPECT_TRUE(cache->healthy()) << nth << " " << ::testing::PrintToString(warnings_);
      warnings_.clear();
      EXPECT_LE(BytesOnDisk(cache->paths()), cache->limit_bytes());
    }
  }
}

TEST_F(NodeCacheTest, AVanishedDirectoryIsNotMadeAnew) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  ASSERT_TRUE(memory_.Rename("/cache", "/elsewhere").ok());
  EXPECT_EQ(Read(cache.get(), 1), Code::kNotFound);
  EXPECT_EQ(Admit(cache.get(), 2).code(), Code::kUnavailable);
  clock_ += 100'000;
  EXPECT_EQ(Admit(cache.get(), 2).code(), Code::kUnavailable);
  EXPECT_FALSE(memory_.Exists("/cache"));
  EXPECT_THAT(warnings_, SizeIs(1));
  ASSERT_TRUE(memory_.Rename("/elsewhere", "/cache").ok());
  clock_ += 100'000;
  EXPECT_TRUE(Admit(cache.get(), 2).ok());
  EXPECT_EQ(Read(cache.get(), 1), Code::kOk);
  EXPECT_THAT(warnings_, SizeIs(2));
}

TEST_F(NodeCacheTest, AnotherCacheInItsPlaceIsTakenAsItIs) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  Open(1 << 30, "/other").reset();
  ASSERT_TRUE(memory_.RemoveTree("/cache").ok());
  ASSERT_TRUE(memory_.Rename("/other", "/cache").ok());
  files_.FailNth(FileOperation::kCreate, 1, Error(Code::kIoError, "broken"));
  EXPECT_FALSE(Admit(cache.get(), 2).ok());
  clock_ += 100'000;
  EXPECT_TRUE(Admit(cache.get(), 2).ok());
  EXPECT_EQ(cache->used_bytes(), kCost + kDescriptorCost);
}

TEST_F(NodeCacheTest, ADirectoryWithOtherThingsIsRefused) {
  ASSERT_TRUE(memory_.MakeDirectories("/home").ok());
  ASSERT_TRUE(memory_.WriteAtomically("/home/thesis.txt", AsBytes(std::string_view("x"))).ok());
  NodeCacheOptions options;
  options.directory = "/home";
  auto cache = NodeCache::Open(&files_, options, Context());
  EXPECT_EQ(cache.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(cache.status().ToString(), HasSubstr("thesis.txt"));
  EXPECT_THAT(*memory_.List("/home"), SizeIs(1));
}

TEST_F(NodeCacheTest, ACacheOfANewerVersionIsRefused) {
  Open().reset();
  ASSERT_TRUE(memory_
                  .WriteAtomically("/cache/headrace-cache.json",
                                   AsBytes(std::string_view("{\"headrace_cache\": 2}")))
                  .ok());
  NodeCacheOptions options;
  options.directory = "/cache";
  EXPECT_EQ(NodeCache::Open(&files_, options, Context()).status().code(),
            Code::kFailedPrecondition);
}

TEST_F(NodeCacheTest, ADirectoryThatCannotBeMadeIsTriedLater) {
  files_.FailNth(FileOperation::kMakeDirectories, 1, Error(Code::kPermissionDenied, "no"), 1000);
  auto cache = Open();
  ASSERT_TRUE(cache);
  EXPECT_EQ(Read(cache.get(), 1), Code::kUnavailable);
  EXPECT_EQ(Admit(cache.get(), 1).code(), Code::kUnavailable);
  EXPECT_THAT(warnings_, SizeIs(1));
  files_.Heal();
  clock_ += 100'000;
  EXPECT_EQ(Read(cache.get(), 1), Code::kNotFound);
  EXPECT_TRUE(Admit(cache.get(), 1).ok());
  EXPECT_TRUE(cache->healthy());
}

TEST_F(NodeCacheTest, WhatAKilledFetcherLeavesIsCleanedAndNotCounted) {
  auto cache = Open();
  ASSERT_TRUE(Admit(cache.get(), 1).ok());
  uint64_t used = cache->used_bytes();
  // As a process leaves it that was killed while writing: counted, with its lock let go.
  auto leave = [&](uint64_t number) {
    std::string half = Content(Id(number)).substr(0, 5000);
    ASSERT_TRUE(memory_
                    .WriteAtomically(cache->paths().Block(Id(number), BlockFileKind::kTemporary),
                                     AsBytes(half))
                    .ok());
    ASSERT_TRUE(memory_
                    .WriteAtomically(cache->paths().Block(Id(number), BlockFileKind::kLock),
                                     AsBytes(std::string_view()))
                    .ok());
    auto state = CacheState::Open(&files_, "/cache/state/counters", "/cache/state/uses", 1 << 16,
                                  [] { return uint64_t{0}; });
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    (*state)->AddUsed(static_cast<int64_t>(kCost));
  };
  leave(2);
  EXPECT_EQ(cache->used_bytes(), used + kCost);
  EXPECT_TRUE(Admit(cache.get(), 2).ok());  // taken over
  EXPECT_EQ(cache->used_bytes(), used + kCost);
  leave(3);
  EXPECT_TRUE(cache->MakeRoom(uint64_t{1} << 30).ok());  // a walk cleans it
  EXPECT_EQ(cache->used_bytes(), 0u);
  leave(4);
  cache.reset();
  cache = Open();  // the first to open cleans it
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_THAT(ListCache(&files_, cache->paths())->unfinished, IsEmpty());
}

TEST_F(NodeCacheTest, WhatOthersRemovedIsNoticed) {
  auto cache = Open(20 * kCost);
  for (uint64_t i = 0; i < 18; ++i) ASSERT_TRUE(Admit(cache.get(), i).ok());
  for (uint64_t i = 0; i < 18; ++i)
    ASSERT_TRUE(memory_.Remove(cache->paths().Block(Id(i), BlockFileKind::kBlock)).ok());
  for (uint64_t i = 20; i < 36; ++i) ASSERT_TRUE(Admit(cache.get(), i).ok()) << i;
  EXPECT_THAT(Cached(cache.get()), SizeIs(16));
}

// Power fails at each write boundary; what was synced or more survives. Never wrong bytes.
TEST_F(NodeCacheTest, APowerCutAnywhereLosesBlocksAndNothingElse) {
  for (Survival survival : {Survival::kNothing, Survival::kSome, Survival::kEverything}) {
    for (uint64_t boundary = 1;; ++boundary) {
      MemoryFileSystem files;
      NodeCacheOptions options;
      options.directory = "/cache";
      options.limit_bytes = 3 * kCost + kDescriptorCost;
      options.free_floor_bytes = 1;
      auto run = [&](bool expect_ok) {
        auto cache = NodeCache::Open(&files, options, Context());
        if (!cache.ok()) return;
        for (uint64_t i = 0; i < 5; ++i) {
          auto claim = (*cache)->ClaimBlock(Id(i));
          if (!claim.ok()) continue;
          Status status = (*claim)->Admit(kVersion, kBlock, AsBytes(Content(Id(i))), {});
          if (expect_ok) {
            EXPECT_TRUE(status.ok()) << status.ToString();
          }
        }
      };
      files.CutPowerAt(boundary, survival, boundary);
      run(false);
      bool finished = !files.power_is_off();
      files.PowerOn();
      auto cache = NodeCache::Open(&files, options, Context());
      ASSERT_TRUE(cache.ok()) << boundary << ": " << cache.status().ToString();
      for (uint64_t i = 0; i < 5; ++i) {
        Code code = Read(cache->get(), i);
        EXPECT_TRUE(code == Code::kOk || code == Code::kNotFound || code == Code::kDataLoss)
            << boundary << " " << CodeName(code);
      }
      EXPECT_TRUE((*cache)->healthy()) << boundary;
      cache->reset();
      run(true);
      if (finished) break;
    }
  }
}

// Random work by two caches on one directory, against what must always hold.
TEST_F(NodeCacheTest, RandomWorkKeepsTheCountRight) {
  const uint64_t limit = 8 * kCost;
  std::unique_ptr<NodeCache> caches[2] = {Open(limit), Open(limit)};
  KeyedRandom random(3);
  for (int step = 0; step < 1500; ++step) {
    auto& cache = caches[random.NextBelow(2)];
    uint64_t number = random.NextBelow(20);
    clock_ += random.NextBelow(50);
    switch (random.NextBelow(10)) {
      case 0:
        cache->Drop(Id(number));
        break;
      case 1:
        if (cache->Contains(Id(number)))
          Damage(cache->paths().Block(Id(number), BlockFileKind::kBlock),
                 BlockHeaderBytes(kBlock) + random.NextBelow(kBlock - 1000));
        break;
      case 2:
        files_.FailNth(FileOperation::kRename, 1, Error(Code::kIoError, "broken"));
        (void)Admit(cache.get(), number);
        files_.Heal();
        clock_ += 100'000;
        break;
      case 3:
      case 4:
      case 5:
        (void)Read(cache.get(), number);
        break;
      default:
        (void)Admit(cache.get(), number);
    }
    ASSERT_LE(BytesOnDisk(cache->paths()), limit);
    ASSERT_LE(BytesOnDisk(cache->paths()), cache->used_bytes()) << step;
  }
  caches[0].reset();
  caches[1].reset();
  auto cache = Open(limit);
  uint64_t after = cache->used_bytes();
  auto contents = ListCache(&files_, cache->paths());
  EXPECT_EQ(after, contents->bytes);
  EXPECT_THAT(contents->unfinished, IsEmpty());
}

}  // namespace
}  // namespace headrace::cache
