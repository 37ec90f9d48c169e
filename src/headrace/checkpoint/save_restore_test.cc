#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/publisher.h"
#include "headrace/checkpoint/safetensors.h"
#include "headrace/checkpoint/testing/random_state.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::checkpoint {
namespace {

using ::testing::HasSubstr;

// A store in a folder, and the calls that save to it and read from it.
class SaveRestoreTest : public ::testing::Test {
 protected:
  SaveRestoreTest() : files_(FilesInFolder(&faulty_, "/ckpt")) {
    auto place = StoreInFolder(&faulty_, "/ckpt");
    EXPECT_TRUE(place.ok()) << place.status().ToString();
    store_ = std::make_unique<CatalogStore>(*place);
    auto epoch = store_->TakeOver("test", {});
    EXPECT_TRUE(epoch.ok()) << epoch.status().ToString();
    epoch_ = *epoch;
  }

  SaveId Id(uint64_t step, uint64_t attempt = 1) const { return {step, epoch_, attempt}; }

  // Writes all ranks and publishes.
  Result<Manifest> Save(const TestState& state, uint64_t step, uint32_t world = 1,
                        const Manifest* before = nullptr, WriteReport* report = nullptr,
                        const WriteOptions& options = {}) {
    WriteReport own;
    SaveInfo info;
    for (uint32_t rank = 0; rank < world; ++rank) {
      TestRankSave made = SaveOf(state, rank, world, Id(step));
      info = made.save.info;
      HR_RETURN_IF_ERROR(RankWriter(files_.get(), options)
                             .Write(made.save, before, {}, report ? report : &own)
                             .status());
    }
    return PublishRanks(store_.get(), info, Level::kLocal, {});
  }

  void ExpectSame(const TestState& state, const Manifest& manifest, uint64_t seed) {
    DataFiles* place = files_.get();
    RestoreReport report;
    auto wrong = CountWrong(state, {&place, 1}, manifest, seed, &report);
    ASSERT_TRUE(wrong.ok()) << wrong.status().ToString();
    EXPECT_EQ(*wrong, 0u);
  }

  std::set<std::string> DataKeys() {
    std::set<std::string> keys;
    auto entries = memory_.List("/ckpt/data");
    if (entries.ok())
      for (const DirectoryEntry& entry : *entries) keys.insert(entry.name);
    return keys;
  }

  MemoryFileSystem memory_;
  FaultyFileSystem faulty_{&memory_};
  std::unique_ptr<DataFiles> files_;
  std::unique_ptr<CatalogStore> store_;
  uint64_t epoch_ = 0;
};

TEST_F(SaveRestoreTest, AnyCutToAnyCutIsTheSameBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    uint32_t world = 1 + seed % 5;
    TestState state = RandomState(1 + seed % 9, world, seed % 7 == 0 ? 300 : 12, seed);
    WriteOptions options;
    options.max_file_bytes = seed % 3 == 0 ? 500 : uint64_t{1} << 30;
    auto manifest = Save(state, seed, world, nullptr, nullptr, options);
    ASSERT_TRUE(manifest.ok()) << "seed " << seed << ": " << manifest.status().ToString();
    ExpectSame(state, *manifest, seed + 1000);
    // As another program finds it.
    auto catalog = store_->Read({});
    ASSERT_TRUE(catalog.ok());
    auto read = store_->ReadManifest(*catalog->Latest(), {});
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    ExpectSame(state, *read, seed + 2000);
  }
}

TEST_F(SaveRestoreTest, DataFilesAreSafetensorsWithTheNamesOfTheModel) {
  TestState state;
  std::mt19937_64 random(3);
  state.tensors.push_back(
      {"/model/layers.0.weight", DType::kF32, {3, 5}, RandomBytes(60, &random)});
  state.cuts.push_back({{Box::Whole(state.tensors[0].shape), 0}});
  auto manifest = Save(state, 1);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  ASSERT_EQ(manifest->files.size(), 1u);
  std::string path = JoinPath("/ckpt", manifest->files[0].DataKey());
  auto bytes = memory_.ReadWhole(path, 1 << 20);
  ASSERT_TRUE(bytes.ok());
  auto header = ParseSafetensors(AsBytes(*bytes), bytes->size(), path);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  ASSERT_EQ(header->entries.size(), 1u);
  EXPECT_EQ(header->entries[0].name, "layers.0.weight");
  EXPECT_EQ(header->data_start % kDataAlignment, 0u);
}

TEST_F(SaveRestoreTest, WhatIsUnchangedIsNotWrittenAgain) {
  TestState state = RandomState(12, 1, 30, 5);
  for (TestTensor& tensor : state.tensors) {
    tensor = {tensor.path, DType::kF32, {4096}, std::vector<std::byte>(16384, std::byte{1})};
    size_t i = static_cast<size_t>(&tensor - state.tensors.data());
    tensor.bytes[0] = std::byte(i);
    state.cuts[i] = {{Box::Whole(tensor.shape), 0}};
  }
  auto first = Save(state, 1);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  state.tensors[4].bytes[7] = std::byte{99};
  WriteReport report;
  auto second = Save(state, 2, 1, &*first, &report);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(report.reused_boxes, 11u);
  EXPECT_EQ(report.reused_bytes, 11u * 16384);
  EXPECT_EQ(report.files, 1u);
  ExpectSame(state, *second, 9);
  // Most of the first file gone: what is left of it is written anew.
  for (size_t i = 0; i < 12; i += 2) state.tensors[i].bytes[9] = std::byte{77};
  for (size_t i = 1; i < 9; i += 2) state.tensors[i].bytes[9] = std::byte{77};
  auto third = Save(state, 3, 1, &*second, &(report = {}));
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_EQ(report.reused_boxes, 0u);
  ExpectSame(state, *third, 10);
}

// One that has seen the save before writes at once what has surely changed. What it cannot be sure
// of it looks at first.
TEST_F(SaveRestoreTest, AKeptWriterFindsWhatIsUnchangedToo) {
  TestState state = RandomState(8, 1, 30, 6);
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    TestTensor& tensor = state.tensors[i];
    tensor = {tensor.path, DType::kF32, {4096}, std::vector<std::byte>(16384, std::byte(i))};
    state.cuts[i] = {{Box::Whole(tensor.shape), 0}};
  }
  RankWriter writer(files_.get(), {});
  std::optional<Manifest> before;
  auto save = [&](uint64_t step, WriteReport* report) {
    TestRankSave made = SaveOf(state, 0, 1, Id(step));
    auto rank = writer.Write(made.save, before ? &*before : nullptr, {}, report);
    ASSERT_TRUE(rank.ok()) << rank.status().ToString();
    auto manifest = PublishRanks(store_.get(), made.save.info, Level::kLocal, {});
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    before = std::move(*manifest);
    ExpectSame(state, *before, step);
  };
  WriteReport first, second, third, fourth;
  save(1, &first);
  EXPECT_EQ(first.reused_boxes, 0u);
  state.tensors[0].bytes[7] = std::byte{99};      // at its start
  state.tensors[1].bytes[5000] = std::byte{99};   // where nobody looks first
  state.tensors[2].bytes[16383] = std::byte{99};  // at its end
  save(2, &second);
  EXPECT_EQ(second.reused_boxes, 5u);
  // Nothing has changed since; the boxes lie in files of both saves.
  save(3, &third);
  EXPECT_EQ(third.reused_boxes, 8u);
  EXPECT_EQ(third.files, 0u);
  for (TestTensor& tensor : state.tensors) tensor.bytes[0] = std::byte{77};
  save(4, &fourth);
  EXPECT_EQ(fourth.reused_boxes, 0u);
}

TEST_F(SaveRestoreTest, EveryFlippedBitIsNoticed) {
  TestState state = RandomState(6, 1, 40, 11);
  auto manifest = Save(state, 1);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  DataFiles* place = files_.get();
  size_t tried = 0;
  for (const FileEntry& file : manifest->files) {
    for (uint64_t offset = kDataAlignment; offset < file.bytes; offset += 37) {
      faulty_.FlipBit(file.DataKey(), offset);
      RestoreReport report;
      auto wrong = CountWrong(state, {&place, 1}, *manifest, 12, &report);
      ASSERT_FALSE(wrong.ok()) << file.DataKey() << " at " << offset;
      EXPECT_EQ(wrong.status().code(), Code::kDataLoss) << wrong.status().ToString();
      EXPECT_THAT(wrong.status().ToString(), HasSubstr(file.DataKey()));
      faulty_.Heal();
      ++tried;
    }
  }
  EXPECT_GT(tried, 50u);
}

TEST_F(SaveRestoreTest, WhatFailsAtOnePlaceComesFromTheNext) {
  TestState state = RandomState(8, 2, 60, 21);
  auto manifest = Save(state, 1, 2);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  auto near = FilesInFolder(&memory_, "/near");
  std::vector<DataFiles*> places{near.get(), files_.get()};
  // One file is missing there, one is damaged, the others are good.
  ASSERT_GE(manifest->files.size(), 3u);
  for (size_t i = 1; i < manifest->files.size(); ++i) {
    for (const std::string& key : {manifest->files[i].DataKey(), manifest->files[i].SumsKey()}) {
      std::string bytes = *memory_.ReadWhole(JoinPath("/ckpt", key), 1 << 30);
      if (i == 1 && key.ends_with(".safetensors")) bytes.back() ^= 1;
      Bytes part = AsBytes(bytes);
      ASSERT_TRUE(near->Write(key, {&part, 1}, {}).ok());
    }
  }
  RestoreReport report;
  auto wrong = CountWrong(state, places, *manifest, 22, &report);
  ASSERT_TRUE(wrong.ok()) << wrong.status().ToString();
  EXPECT_EQ(*wrong, 0u);
  EXPECT_GT(report.places[0].bytes, 0u);
  EXPECT_GT(report.places[1].bytes, 0u);
  EXPECT_EQ(report.places[0].refused, 2u);
}

TEST_F(SaveRestoreTest, ReadsEachByteOnceWhateverTheCut) {
  TestState state;
  std::mt19937_64 random(4);
  state.tensors.push_back(
      {"/model/w", DType::kF32, {4096, 1024}, RandomBytes(uint64_t{16} << 20, &random)});
  for (uint64_t rank = 0; rank < 2; ++rank) {
    if (state.cuts.empty()) state.cuts.emplace_back();
    state.cuts[0].push_back({Box({rank * 2048, 0}, {2048, 1024}), static_cast<uint32_t>(rank)});
  }
  auto manifest = Save(state, 1, 2);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  DataFiles* place = files_.get();
  // 2 -> 1, and 2 -> 4 by rows: each rank reads its rows and no others.
  for (uint64_t ranks : {1, 4}) {
    uint64_t read = 0;
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      Interval rows = EvenSplit(4096, ranks, rank);
      Box box({rows.offset, 0}, {rows.length, 1024});
      std::vector<std::byte> out(rows.length * 4096);
      WantedBox wanted{0, box, out};
      RestoreReport report;
      ASSERT_TRUE(Restore({&place, 1}, *manifest, {&wanted, 1}, {}, {}, &report).ok());
      EXPECT_EQ(out, CutOut(state.tensors[0], box));
      read += report.read_bytes;
    }
    EXPECT_LE(read, (uint64_t{16} << 20) * 102 / 100) << ranks << " ranks";
  }
}

TEST_F(SaveRestoreTest, WhatIsWantedTwiceComesTwice) {
  TestState state;
  std::mt19937_64 random(8);
  state.tensors.push_back({"/model/w", DType::kU8, {300'000}, RandomBytes(300'000, &random)});
  state.cuts.push_back({{Box::Whole(state.tensors[0].shape), 0}});
  auto manifest = Save(state, 1);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  std::vector<Box> boxes;
  for (int i = 0; i < 20; ++i) {
    const uint64_t begin = random() % 300'000;
    boxes.push_back(Box({begin}, {random() % (300'000 - begin) + 1}));
  }
  boxes.push_back(Box::Whole(state.tensors[0].shape));
  boxes.push_back(boxes.back());
  std::vector<std::vector<std::byte>> memory;
  std::vector<WantedBox> wanted;
  for (const Box& box : boxes) memory.emplace_back(box.length[0], std::byte{0xee});
  for (size_t i = 0; i < boxes.size(); ++i) wanted.push_back({0, boxes[i], memory[i]});
  DataFiles* place = files_.get();
  RestoreReport report;
  ASSERT_TRUE(Restore({&place, 1}, *manifest, wanted, {}, {}, &report).ok());
  for (size_t i = 0; i < boxes.size(); ++i)
    EXPECT_EQ(memory[i], CutOut(state.tensors[0], boxes[i])) << BoxText(boxes[i]);
  EXPECT_LE(report.read_bytes, manifest->files[0].bytes);
}

TEST_F(SaveRestoreTest, RefusesDestinationsThatDoNotFit) {
  TestState state = RandomState(2, 1, 20, 31);
  auto manifest = Save(state, 1);
  ASSERT_TRUE(manifest.ok());
  DataFiles* place = files_.get();
  std::vector<std::byte> small(1);
  RestoreReport report;
  WantedBox wanted{0, Box::Whole(manifest->tensors.shape(0)), small};
  wanted.out = MutableBytes(small).first(0);
  wanted.box.length.push_back(3);
  wanted.box.offset.push_back(0);
  EXPECT_EQ(Restore({&place, 1}, *manifest, {&wanted, 1}, {}, {}, &report).code(),
            Code::kInvalidArgument);
  wanted.tensor = 99;
  EXPECT_EQ(Restore({&place, 1}, *manifest, {&wanted, 1}, {}, {}, &report).code(),
            Code::kInvalidArgument);
}

TEST_F(SaveRestoreTest, NamesTheRanksThatAreMissing) {
  TestState state = RandomState(5, 3, 20, 41);
  TestRankSave made = SaveOf(state, 1, 3, Id(7));
  WriteReport report;
  ASSERT_TRUE(RankWriter(files_.get(), {}).Write(made.save, nullptr, {}, &report).ok());
  // As much time as it takes to find the one that is there.
  Status late;
  for (std::chrono::milliseconds time(60);; time *= 2) {
    Context soon;
    soon.deadline = Context::Clock::now() + time;
    late = PublishRanks(store_.get(), made.save.info, Level::kLocal, soon).status();
    ASSERT_EQ(late.code(), Code::kDeadlineExceeded) << late.ToString();
    if (late.ToString().find("ranks 0, 1, 2") == std::string::npos) break;
  }
  EXPECT_THAT(late.ToString(), HasSubstr("ranks 0, 2"));
  EXPECT_TRUE(store_->Read({})->entries.empty());
  // The next save works.
  EXPECT_TRUE(Save(state, 8, 3).ok());
}

TEST_F(SaveRestoreTest, OtherRanksAreToldThatRankZeroDidNotPublish) {
  TestState state = RandomState(5, 2, 20, 41);
  const TestRankSave made = SaveOf(state, 1, 2, Id(7));
  Context soon;
  soon.deadline = Context::Clock::now() + std::chrono::milliseconds(20);
  const Status late = WaitForPublish(store_.get(), made.save.info, soon);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.ToString(), HasSubstr("rank 0 has not published"));
  ASSERT_TRUE(Save(state, 7, 2).ok());
  EXPECT_TRUE(WaitForPublish(store_.get(), made.save.info, {}).ok());
}

TEST_F(SaveRestoreTest, WaitsForRanksThatComeLate) {
  TestState state = RandomState(5, 2, 20, 42);
  TestRankSave first = SaveOf(state, 0, 2, Id(7)), second = SaveOf(state, 1, 2, Id(7));
  WriteReport report;
  ASSERT_TRUE(RankWriter(files_.get(), {}).Write(first.save, nullptr, {}, &report).ok());
  const uint64_t looks = faulty_.count(FileOperation::kStat);
  std::thread late([&] {
    // Once it has been looked for in vain, and more than once.
    while (faulty_.count(FileOperation::kStat) < looks + 5) std::this_thread::yield();
    WriteReport own;
    EXPECT_TRUE(RankWriter(files_.get(), {}).Write(second.save, nullptr, {}, &own).ok());
  });
  auto published = PublishRanks(store_.get(), first.save.info, Level::kLocal, {});
  late.join();
  ASSERT_TRUE(published.ok()) << published.status().ToString();
  ExpectSame(state, *published, 43);
}

TEST_F(SaveRestoreTest, AZombieCannotPublish) {
  TestState state = RandomState(3, 1, 20, 51);
  TestRankSave made = SaveOf(state, 0, 1, Id(7));
  WriteReport report;
  ASSERT_TRUE(RankWriter(files_.get(), {}).Write(made.save, nullptr, {}, &report).ok());
  ASSERT_TRUE(store_->TakeOver("its successor", {}).ok());
  auto published = PublishRanks(store_.get(), made.save.info, Level::kLocal, {});
  ASSERT_FALSE(published.ok());
  EXPECT_EQ(published.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(published.status().ToString(), HasSubstr("its successor"));
  EXPECT_TRUE(store_->Read({})->entries.empty());
}

TEST_F(SaveRestoreTest, PruneKeepsWhatOthersName) {
  TestState state = RandomState(6, 1, 30, 61);
  std::vector<TestState> states;
  std::optional<Manifest> before;
  for (uint64_t step = 1; step <= 5; ++step) {
    std::mt19937_64 random(step);
    TestTensor& changed = state.tensors[step % state.tensors.size()];
    changed.bytes = RandomBytes(changed.bytes.size(), &random);
    auto manifest = Save(state, step, 1, before ? &*before : nullptr);
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    before = std::move(*manifest);
    states.push_back(state);
  }
  auto plan =
      PlanPrune(store_.get(), {.keep_last = 2, .keep_every = 0, .level = Level::kLocal}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  size_t files = DataKeys().size();
  EXPECT_EQ(std::ranges::count_if(plan->rows, [](const auto& row) { return row.keep; }), 2);
  ASSERT_EQ(store_->Read({})->entries.size(), 5u);  // a plan changes nothing
  ASSERT_TRUE(Prune(store_.get(), epoch_, *plan, {}).ok());
  auto catalog = store_->Read({});
  ASSERT_EQ(catalog->entries.size(), 2u);
  EXPECT_EQ(DataKeys().size(), files - plan->data_files.size());
  for (size_t i = 0; i < 2; ++i) {
    auto manifest = store_->ReadManifest(catalog->entries[i], {});
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    ExpectSame(states[3 + i], *manifest, 62 + i);
  }
}

TEST_F(SaveRestoreTest, RemovalTakesJustWhatIsNamed) {
  TestState first = RandomState(4, 1, 30, 81), second = RandomState(4, 1, 30, 82);
  auto before = Save(first, 1);
  ASSERT_TRUE(before.ok()) << before.status().ToString();
  size_t files = DataKeys().size();
  ASSERT_TRUE(Save(second, 2, 1, &*before).ok());
  // One that is not there is left out; the newest goes, too, when it is named.
  auto plan = PlanRemoval(store_.get(), std::vector<SaveId>{Id(2), Id(9)}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_TRUE(Prune(store_.get(), epoch_, *plan, {}).ok());
  auto catalog = store_->Read({});
  ASSERT_EQ(catalog->entries.size(), 1u);
  EXPECT_EQ(catalog->entries[0].id, Id(1));
  EXPECT_EQ(DataKeys().size(), files);
  auto manifest = store_->ReadManifest(catalog->entries[0], {});
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  ExpectSame(first, *manifest, 83);
}

TEST_F(SaveRestoreTest, SweepRemovesWhatNothingNames) {
  TestState state = RandomState(4, 1, 30, 71), other = RandomState(4, 1, 30, 72);
  auto manifest = Save(state, 1);
  ASSERT_TRUE(manifest.ok());
  auto before = DataKeys();
  TestRankSave abandoned = SaveOf(other, 0, 1, Id(2));
  WriteReport report;
  ASSERT_TRUE(RankWriter(files_.get(), {}).Write(abandoned.save, nullptr, {}, &report).ok());
  ASSERT_GT(DataKeys().size(), before.size());
  auto dry = Sweep(store_.get(), epoch_, std::chrono::seconds(-3600), true, {});
  ASSERT_TRUE(dry.ok()) << dry.status().ToString();
  EXPECT_GT(dry->files, 0u);
  ASSERT_GT(DataKeys().size(), before.size());
  auto swept = Sweep(store_.get(), epoch_, std::chrono::seconds(-3600), false, {});
  ASSERT_TRUE(swept.ok()) << swept.status().ToString();
  EXPECT_EQ(swept->files, dry->files);
  EXPECT_EQ(DataKeys(), before);
  ExpectSame(state, *manifest, 73);
  ASSERT_TRUE(store_->TakeOver("another", {}).ok());
  EXPECT_EQ(Sweep(store_.get(), epoch_, {}, false, {}).status().code(), Code::kFailedPrecondition);
}

TEST(Sweep, LeavesWhatIsYoung) {
  TemporaryDirectory dir;
  CatalogStore store(*StoreInFolder(PosixFileSystem(), dir.path()));
  auto files = FilesInFolder(PosixFileSystem(), dir.path());
  uint64_t epoch = *store.TakeOver("test", {});
  Bytes bytes = AsBytes("what a save under way has written");
  ASSERT_TRUE(files->Write("data/00.safetensors", {&bytes, 1}, {}).ok());
  auto report = Sweep(&store, epoch, std::chrono::hours(1), false, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->files, 0u);
  EXPECT_EQ(report->young_files, 1u);
  report = Sweep(&store, epoch, std::chrono::seconds(-3600), false, {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->files, 1u);
}

TEST(Sweep, GivesUpPartsOfFilesThatNobodySendsAnyMore) {
  auto bucket = object::MakeMemoryStore();
  CatalogStore store(*StoreInBucket(bucket, "ckpt"));
  uint64_t epoch = *store.TakeOver("test", {});
  std::vector<std::unique_ptr<object::Upload>> killed;
  for (const char* key : {"ckpt/data/00.safetensors", "other/data/00.safetensors"})
    killed.push_back(*bucket->StartUpload(key, {}));
  auto report = Sweep(&store, epoch, std::chrono::hours(1), true, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(bucket->ListUploads("", {})->size(), 2u);
  report = Sweep(&store, epoch, std::chrono::hours(1), false, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->uploads, 1u);
  EXPECT_EQ(bucket->ListUploads("", {})->size(), 1u);
}

TEST_F(SaveRestoreTest, AFullDiskLeavesAllAsBefore) {
  TestState state = RandomState(6, 1, 60, 81), next = RandomState(6, 1, 60, 82);
  auto first = Save(state, 1);
  ASSERT_TRUE(first.ok());
  for (uint64_t room : {uint64_t{0}, uint64_t{5000}, uint64_t{3} << 20}) {
    faulty_.LimitBytes(room);
    auto second = Save(next, 2);
    faulty_.Heal();
    if (second.ok()) continue;
    EXPECT_EQ(second.status().code(), Code::kResourceExhausted) << second.status().ToString();
    auto catalog = store_->Read({});
    ASSERT_EQ(catalog->entries.size(), 1u);
    ExpectSame(state, *first, 83);
  }
}

// Wherever the disk turns out to be full although there seemed to be room: other programs write
// too.
TEST_F(SaveRestoreTest, ADiskThatFillsUpAtAnyPointLeavesAllAsBefore) {
  const TestState state = RandomState(6, 1, 60, 81);
  auto first = Save(state, 1);
  ASSERT_TRUE(first.ok());
  const Status full = Error(Code::kResourceExhausted, "no space left on the device");
  uint64_t failed = 0;
  for (FileOperation operation :
       {FileOperation::kCreate, FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose,
        FileOperation::kRename, FileOperation::kWriteAtomically, FileOperation::kMakeDirectories,
        FileOperation::kSyncDirectory, FileOperation::kFreeBytes}) {
    uint64_t step = 2;
    for (uint64_t nth = 1;; ++nth, ++step) {
      const TestState next = RandomState(6, 1, 60, 1000 + step);
      faulty_.FailNth(operation, nth, full);
      auto second = Save(next, step);
      faulty_.Heal();
      auto catalog = store_->Read({});
      ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
      // It may have been told after all was done.
      if (second.ok() || catalog->entries.back().id.step == step) {
        std::vector<SaveId> ids;
        for (size_t i = 1; i < catalog->entries.size(); ++i) ids.push_back(catalog->entries[i].id);
        ASSERT_TRUE(store_->Remove(epoch_, ids, {}).ok());
        if (second.ok()) break;
        continue;
      }
      ++failed;
      EXPECT_EQ(second.status().code(), Code::kResourceExhausted) << second.status().ToString();
      ASSERT_EQ(catalog->entries.size(), 1u);
      ExpectSame(state, *first, 83);
    }
  }
  EXPECT_GT(failed, 15u);
  EXPECT_TRUE(Save(RandomState(6, 1, 60, 5), 500).ok());
}

// Files that are large enough to be read around the page cache, on a real disk.
class RestoreFromDisk : public ::testing::Test {
 protected:
  RestoreFromDisk() {
    std::mt19937_64 random(5);
    for (auto [path, bytes] :
         {std::pair("/model/a", uint64_t{3'000'003}), std::pair("/model/b", uint64_t{1}),
          std::pair("/optimizer/c", uint64_t{2'500'000})}) {
      state_.tensors.push_back({path, DType::kU8, {bytes}, RandomBytes(bytes, &random)});
      state_.cuts.push_back({{Box::Whole(state_.tensors.back().shape), 0}});
    }
    auto epoch = store_.TakeOver("test", {});
    EXPECT_TRUE(epoch.ok());
    TestRankSave made = SaveOf(state_, 0, 1, {1, *epoch, 1});
    WriteReport report;
    EXPECT_TRUE(RankWriter(files_.get(), {}).Write(made.save, nullptr, {}, &report).ok());
    auto manifest = PublishRanks(&store_, made.save.info, Level::kLocal, {});
    EXPECT_TRUE(manifest.ok()) << manifest.status().ToString();
    manifest_ = *std::move(manifest);
  }

  Result<size_t> Wrong(const std::vector<DataFiles*>& places, RestoreReport* report,
                       RestoreOptions options = {}) {
    options.direct_from_bytes = 0;
    return CountWrong(state_, places, manifest_, 7, report, options);
  }
  // Of the largest file.
  void Flip(uint64_t offset) {
    auto file = PosixFileSystem()->OpenShared(LargestFile());
    ASSERT_TRUE(file.ok());
    std::byte byte{};
    ASSERT_TRUE((*file)->ReadSome(offset, {&byte, 1}).ok());
    byte ^= std::byte{4};
    ASSERT_TRUE((*file)->WriteAt(offset, {&byte, 1}).ok());
  }
  std::string LargestFile() {
    auto largest = std::ranges::max_element(manifest_.files, {}, &FileEntry::bytes);
    return JoinPath(dir_.path(), largest->DataKey());
  }

  TemporaryDirectory dir_;
  const std::unique_ptr<DataFiles> files_ = FilesInFolder(PosixFileSystem(), dir_.path());
  CatalogStore store_{*StoreInFolder(PosixFileSystem(), dir_.path())};
  TestState state_;
  Manifest manifest_;
};

TEST_F(RestoreFromDisk, IsTheSameHoweverItIsRead) {
  for (const RestoreOptions& options :
       {RestoreOptions{}, RestoreOptions{.threads = 1, .read_bytes = 65536, .depth = 1},
        RestoreOptions{.threads = 3, .read_bytes = 65536, .depth = 2},
        RestoreOptions{.threads = 2, .shared_whole = true},
        RestoreOptions{.threads = 2, .read_bytes = uint64_t{4} << 20, .depth = 64}}) {
    RestoreReport report;
    auto wrong = Wrong({files_.get()}, &report, options);
    ASSERT_TRUE(wrong.ok()) << wrong.status().ToString();
    EXPECT_EQ(*wrong, 0u);
    EXPECT_EQ(report.places[0].refused, 0u);
    EXPECT_LE(report.read_bytes, report.wanted_bytes + (uint64_t{64} << 10) * 4);
  }
}

TEST_F(RestoreFromDisk, NoticesAFlippedBit) {
  RestoreReport report;
  for (uint64_t offset : {uint64_t{5000}, uint64_t{1'048'577}, uint64_t{3'000'000}}) {
    Flip(offset);
    auto wrong = Wrong({files_.get()}, &report, {.depth = 4});
    ASSERT_FALSE(wrong.ok()) << offset;
    EXPECT_EQ(wrong.status().code(), Code::kDataLoss) << wrong.status().ToString();
    EXPECT_EQ(wrong.status().location().offset, offset / 65536 * 65536);
    Flip(offset);
  }
  auto wrong = Wrong({files_.get()}, &report);
  ASSERT_TRUE(wrong.ok()) << wrong.status().ToString();
  EXPECT_EQ(*wrong, 0u);
}

TEST_F(RestoreFromDisk, WhatIsDamagedComesFromTheNextPlace) {
  TemporaryDirectory other;
  auto far = FilesInFolder(PosixFileSystem(), other.path());
  for (const FileEntry& file : manifest_.files) {
    for (const std::string& key : {file.DataKey(), file.SumsKey()}) {
      std::string bytes = *PosixFileSystem()->ReadWhole(JoinPath(dir_.path(), key), 1 << 30);
      const Bytes part = AsBytes(bytes);
      ASSERT_TRUE(far->Write(key, {&part, 1}, {}).ok());
    }
  }
  Flip(2'000'000);
  RestoreReport report;
  auto wrong = Wrong({files_.get(), far.get()}, &report);
  ASSERT_TRUE(wrong.ok()) << wrong.status().ToString();
  EXPECT_EQ(*wrong, 0u);
  EXPECT_EQ(report.places[0].refused, 1u);
  EXPECT_GT(report.places[0].bytes, 0u);
  EXPECT_GT(report.places[1].bytes, 0u);
}

// A place that cannot be asked for anything, and how often it was.
class SilentFiles final : public DataFiles {
 public:
  const std::string& name() const override { return name_; }
  Status CheckRoom(uint64_t, const Context&) override { return Silent(); }
  Result<bool> Write(const std::string&, std::span<const Bytes>, const Context&) override {
    return Silent();
  }
  Result<bool> WriteFrom(const std::string&, uint64_t, const NextPiece&, const Context&) override {
    return Silent();
  }
  Status Sync(const Context&) override { return Silent(); }
  Result<std::unique_ptr<DataFile>> Open(const std::string&, uint64_t, const Context&) override {
    ++opened_;
    return Silent();
  }
  uint32_t opened() const { return opened_; }

 private:
  static Status Silent() { return Status(Code::kUnavailable, "it does not answer"); }

  const std::string name_ = "silent";
  std::atomic<uint32_t> opened_{0};
};

TEST_F(SaveRestoreTest, APlaceThatDoesNotAnswerIsNotAskedForEachFile) {
  TestState state = RandomState(8, 12, 60, 21);
  auto manifest = Save(state, 1, 12);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  ASSERT_GT(manifest->files.size(), 6u);
  SilentFiles silent;
  const std::vector<DataFiles*> places = {&silent, files_.get()};
  RestoreReport report;
  auto wrong = CountWrong(state, places, *manifest, 3, &report, {.threads = 2});
  ASSERT_TRUE(wrong.ok()) << wrong.status().ToString();
  EXPECT_EQ(*wrong, 0u);
  EXPECT_LE(silent.opened(), 3u);  // two, and one that was on its way
  // Where nobody else has the files, it is what the failure is about.
  const std::vector<DataFiles*> alone = {&silent, &silent};
  EXPECT_EQ(CountWrong(state, alone, *manifest, 3, &report).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace headrace::checkpoint
