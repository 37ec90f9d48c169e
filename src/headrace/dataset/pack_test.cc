// Packing: layout, determinism, what is refused, and going on after a stop.
#include "headrace/dataset/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "headrace/base/fault_point.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/pack_layout.h"
#include "headrace/dataset/tar.h"
#include "headrace/dataset/testing/small_pack.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::dataset {
namespace {

using testing::HasSubstr;

TEST(Pack, FolderBecomesShardsWithIndexAndManifest) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  auto report = PackInto(&fs, SmallShards());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->samples, 5u);
  EXPECT_EQ(report->shards, 3u);
  EXPECT_EQ(ReadSamples(&fs, kTarget), ExpectedSamples());
  auto manifest = Manifest::Load(&fs, kTarget + "/headrace.json");
  ASSERT_TRUE(manifest.ok());
  EXPECT_THAT(manifest->classes, testing::ElementsAre("cat", "dog"));
  EXPECT_THAT(manifest->fields, testing::ElementsAre("cls", "jpg", "json"));
  EXPECT_EQ(manifest->ComputeVersion(), report->version);
  std::set<std::string> names;
  for (const auto& [path, content] : Snapshot(&fs, kTarget)) names.insert(path);
  EXPECT_EQ(names.size(), 7u) << "three tars, three indexes, a manifest, and no stray file";
}

TEST(Pack, TarReadsBackMemberByMemberAndHasNoExtraHeader) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  PackOptions options;
  ASSERT_TRUE(PackInto(&fs, options).ok());
  auto tar = fs.OpenForRead(kTarget + "/shard-000000.tar");
  ASSERT_TRUE(tar.ok());
  std::vector<std::string> paths;
  auto scanned = ScanTar(**tar, Context(), [&](const TarMember& member) {
    EXPECT_EQ(member.data_offset - member.header_offset, 512u);
    paths.push_back(member.path);
    return OkStatus();
  });
  ASSERT_TRUE(scanned.ok()) << scanned.status().ToString();
  EXPECT_TRUE(scanned->has_end_blocks);
  EXPECT_EQ(paths.size(), ExpectedSamples().size());
  EXPECT_EQ(paths.front(), "cat/a.jpg");
  EXPECT_EQ(paths.back(), "dog/b.cls");
}

TEST(Pack, BytesDoNotDependOnThreads) {
  Tree first;
  for (uint32_t threads : {1u, 2u, 3u, 8u}) {
    MemoryFileSystem fs;
    MakeSource(&fs);
    for (unsigned i = 0; i < 60; ++i)
      WriteFile(&fs, kSource + "/ewe/" + std::to_string(i) + ".jpg", Pattern(i * 97, i));
    PackOptions options = SmallShards();
    options.threads = threads;
    ASSERT_TRUE(PackInto(&fs, options).ok());
    Tree packed = Snapshot(&fs, kTarget);
    if (first.empty()) first = packed;
    EXPECT_EQ(packed, first) << threads << " threads";
  }
}

TEST(Pack, ShuffleMixesAndKeepsEverySample) {
  Tree orders[3];
  uint64_t seeds[3] = {1, 1, 2};
  for (int i = 0; i < 3; ++i) {
    MemoryFileSystem fs;
    MakeSource(&fs);
    PackOptions options = SmallShards();
    options.shuffle_seed = seeds[i];
    ASSERT_TRUE(PackInto(&fs, options).ok());
    EXPECT_EQ(ReadSamples(&fs, kTarget), ExpectedSamples());
    orders[i] = Snapshot(&fs, kTarget);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
}

TEST(Pack, ShardIsClosedBeforeItsSizeIsPassed) {
  PackList list;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(list.BeginSample(std::to_string(i)).ok());
    ASSERT_TRUE(list.AddText("x", std::string(i == 4 ? 5000 : 100, 'x')).ok());
  }
  std::vector<PackSpan> spans = CutIntoShards(list, 1024 + 3 * 1024, 0);
  uint64_t next = 0;
  for (const PackSpan& span : spans) {
    EXPECT_EQ(span.first_sample, next);
    EXPECT_TRUE(span.tar_bytes <= 4096 || span.num_samples == 1);
    next += span.num_samples;
  }
  EXPECT_EQ(next, 10u);
  EXPECT_EQ(spans[0].num_samples, 3u);
  EXPECT_EQ(spans[2].num_samples, 1u) << "the large sample has a shard of its own";
}

TEST(Pack, LargeFileIsStreamed) {
  TemporaryDirectory folder;
  FileSystem* fs = PosixFileSystem();
  std::string large = Pattern((3 << 20) + 77, 5);
  ASSERT_TRUE(fs->MakeDirectories(folder / "in/a").ok());
  ASSERT_TRUE(fs->WriteAtomically(folder / "in/a/big.bin", AsBytes(large)).ok());
  ASSERT_TRUE(fs->WriteAtomically(folder / "in/a/big.txt", AsBytes("text")).ok());
  auto report = Pack(fs, {folder / "in"}, folder / "out", PackOptions(), Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  Tree expected = {{"a/big.bin", large}, {"a/big.txt", "text"}, {"a/big.cls", "0"}};
  EXPECT_EQ(ReadSamples(fs, folder / "out"), expected);
}

// A tar whose members of one key do not stand together, and keys with any bytes.
TEST(Pack, TarsAreRepackedAndTheirMembersJoined) {
  MemoryFileSystem fs;
  std::string tar, long_key(4000, 'k'), odd_key = "a\nb\xff/..";
  for (const std::string& member :
       {std::string("x.jpg"), std::string("y.jpg"), std::string("x.cls"), odd_key + "/q.txt",
        long_key + ".jpg", std::string("y.cls")}) {
    AppendTarHeader(member, member.size(), &tar);
    tar += member + std::string(TarPaddedBytes(member.size()) - member.size(), '\0');
  }
  tar += std::string(kTarEndBytes, '\0');
  WriteFile(&fs, "/in/one.tar", tar);
  auto report = Pack(&fs, {"/in/one.tar"}, kTarget, SmallShards(), Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->samples, 4u);
  Tree samples = ReadSamples(&fs, kTarget);
  EXPECT_EQ(samples.size(), 6u);
  for (const auto& [member, content] : samples) EXPECT_EQ(member, content);
  // Packed again, the bytes are the same.
  ASSERT_TRUE(Pack(&fs, {kTarget}, "/again", SmallShards(), Context()).ok());
  EXPECT_EQ(*fs.ReadWhole("/again/headrace.json", 1 << 20),
            *fs.ReadWhole(kTarget + "/headrace.json", 1 << 20));
}

TEST(Pack, OneFieldTwiceInOneKeyIsRefused) {
  MemoryFileSystem fs;
  std::string tar;
  for (const char* member : {"x.jpg", "y.jpg", "x.jpg"}) AppendTarHeader(member, 0, &tar);
  WriteFile(&fs, "/in/one.tar", tar + std::string(kTarEndBytes, '\0'));
  auto report = Pack(&fs, {"/in/one.tar"}, kTarget, SmallShards(), Context());
  EXPECT_EQ(report.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(report.status().ToString(), HasSubstr("'x'"));
  EXPECT_FALSE(fs.Exists("/packed"));
}

TEST(Pack, ExistingDatasetIsRefusedUnlessOverwritten) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  ASSERT_TRUE(PackInto(&fs, SmallShards()).ok());
  Tree before = Snapshot(&fs, kTarget);
  EXPECT_EQ(PackInto(&fs, SmallShards()).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(Snapshot(&fs, kTarget), before);

  WriteFile(&fs, "/other/x/1.png", "new");
  PackOptions options = SmallShards();
  options.overwrite = true;
  for (int round = 0; round < 3; ++round) {
    auto report = PackInto(&fs, options, round == 1 ? kSource : "/other");
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    Tree other = {{"x/1.png", "new"}, {"x/1.cls", "0"}};
    EXPECT_EQ(ReadSamples(&fs, kTarget), round == 1 ? ExpectedSamples() : other);
    EXPECT_EQ(Snapshot(&fs, kTarget).size(), round == 1 ? 7u : 3u) << "no file of the old version";
  }
}

TEST(Pack, ForeignFilesAreNeverTouched) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  WriteFile(&fs, kTarget + "/thesis.tex", "years of work");
  Tree before = Snapshot(&fs, kTarget);
  PackOptions options = SmallShards();
  for (bool overwrite : {false, true}) {
    options.overwrite = overwrite;
    auto report = PackInto(&fs, options);
    EXPECT_EQ(report.status().code(), Code::kAlreadyExists);
    EXPECT_THAT(report.status().ToString(), HasSubstr("thesis.tex"));
    EXPECT_EQ(Snapshot(&fs, kTarget), before);
  }
  WriteFile(&fs, "/file", "a file");
  EXPECT_EQ(Pack(&fs, {kSource}, "/file", options, Context()).status().code(),
            Code::kAlreadyExists);
}

TEST(Pack, DestinationInsideTheSourceIsRefused) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  auto report = Pack(&fs, {kSource}, kSource + "/cat/packed", SmallShards(), Context());
  EXPECT_EQ(report.status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(fs.Exists(kSource + "/cat/packed"));
}

TEST(Pack, SecondPackAtOnceIsRefused) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  ASSERT_TRUE(fs.MakeDirectories(kTarget + "/.headrace-pack").ok());
  auto held = fs.Lock(kTarget + "/.headrace-pack/lock");
  ASSERT_TRUE(held.ok());
  auto report = PackInto(&fs, SmallShards());
  EXPECT_EQ(report.status().code(), Code::kUnavailable);
  EXPECT_THAT(report.status().ToString(), HasSubstr("another pack"));
  held->reset();
  EXPECT_TRUE(PackInto(&fs, SmallShards()).ok());
}

TEST(Pack, FileThatChangesSizeOrVanishesIsNamed) {
  MemoryFileSystem memory;
  MakeSource(&memory);
  FaultyFileSystem fs(&memory);
  fs.EndFilesAt("b.jpg", 100);
  auto report = PackInto(&fs, SmallShards());
  EXPECT_EQ(report.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(report.status().ToString(), HasSubstr("cat/b.jpg"));
  EXPECT_THAT(report.status().ToString(), HasSubstr("expected 512 bytes"));
  EXPECT_THAT(report.status().ToString(), HasSubstr("found 100"));
  fs.Heal();
  fs.FailNth(FileOperation::kReadInto, 2, Error(Code::kNotFound, "cannot read it: it is gone"));
  EXPECT_EQ(PackInto(&fs, SmallShards()).status().code(), Code::kNotFound);
  fs.Heal();
  EXPECT_TRUE(PackInto(&fs, SmallShards()).ok());
  EXPECT_EQ(ReadSamples(&memory, kTarget), ExpectedSamples());
}

TEST(Pack, UnreadableSampleCanBeLeftOut) {
  MemoryFileSystem memory;
  MakeSource(&memory);
  FaultyFileSystem fs(&memory);
  // The second file of the first sample: what was written of the sample is taken back.
  fs.FailNth(FileOperation::kReadInto, 2, Error(Code::kPermissionDenied, "no permission"));
  PackOptions options = SmallShards();
  options.skip_unreadable = true;
  auto report = PackInto(&fs, options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->skipped.size(), 1u);
  EXPECT_EQ(report->skipped[0].key, "cat/a");
  EXPECT_EQ(report->samples, 4u);
  Tree expected = ExpectedSamples();
  for (const char* gone : {"cat/a.jpg", "cat/a.json", "cat/a.cls"}) expected.erase(gone);
  EXPECT_EQ(ReadSamples(&memory, kTarget), expected);
}

TEST(Pack, CancelledPackKeepsFinishedShardsAndGoesOn) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  std::atomic<bool> cancelled{false};
  Context ctx;
  ctx.cancelled = &cancelled;
  ArmFault("pack.shard.sample", 4, [&] {  // in the second shard
    cancelled = true;
    return OkStatus();
  });
  auto stopped = Pack(&fs, {kSource}, kTarget, SmallShards(), ctx);
  DisarmFaults();
  EXPECT_EQ(stopped.status().code(), Code::kCancelled);
  EXPECT_FALSE(fs.Exists(kTarget + "/headrace.json"));
  Status unfinished = Dataset::Open(&fs, kTarget, {}).status();
  EXPECT_EQ(unfinished.code(), Code::kFailedPrecondition);
  EXPECT_THAT(unfinished.ToString(), HasSubstr("a pack that is not finished"));
  EXPECT_FALSE(fs.Exists(kTarget + "/.headrace-pack/shard-000001.tar")) << "half-written";
  auto report = PackInto(&fs, SmallShards());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->reused_shards, 1u);
  EXPECT_EQ(ReadSamples(&fs, kTarget), ExpectedSamples());
  EXPECT_EQ(Snapshot(&fs, kTarget).size(), 7u);
}

// Some of its shards have come to their place: they are no data set of their own.
TEST(Pack, IsNotReadWhileItPublishes) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  int looks = 0;
  ArmFault("pack.publish.between_renames", 2, [&] {
    EXPECT_TRUE(fs.Exists(kTarget + "/shard-000000.tar"));
    EXPECT_EQ(Dataset::Open(&fs, kTarget, {}).status().code(), Code::kFailedPrecondition);
    ++looks;
    return OkStatus();
  });
  EXPECT_TRUE(PackInto(&fs, SmallShards()).ok());
  DisarmFaults();
  EXPECT_EQ(looks, 2);
  EXPECT_TRUE(Dataset::Open(&fs, kTarget, {}).ok());
}

TEST(Pack, KeptShardThatWasDamagedIsWrittenAgain) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  ArmFault("pack.shard.sample", 4, [] { return Error(Code::kIoError, "stop"); });
  EXPECT_FALSE(PackInto(&fs, SmallShards()).ok());
  DisarmFaults();
  std::string kept = kTarget + "/.headrace-pack/shard-000000.tar";
  std::string bytes = *fs.ReadWhole(kept, 1 << 20);
  bytes[600] ^= 1;
  WriteFile(&fs, kept, bytes);
  auto report = PackInto(&fs, SmallShards());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->reused_shards, 0u);
  EXPECT_EQ(ReadSamples(&fs, kTarget), ExpectedSamples());
}

TEST(Pack, OtherInputDoesNotReuseShards) {
  MemoryFileSystem fs;
  MakeSource(&fs);
  ArmFault("pack.shard.sample", 4, [] { return Error(Code::kIoError, "stop"); });
  EXPECT_FALSE(PackInto(&fs, SmallShards()).ok());
  DisarmFaults();
  WriteFile(&fs, kSource + "/cat/a.jpg", Pattern(700, 9));  // same size, another time
  auto report = PackInto(&fs, SmallShards());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->reused_shards, 0u);
  EXPECT_EQ(ReadSamples(&fs, kTarget)["cat/a.jpg"], Pattern(700, 9));
}

}  // namespace
}  // namespace headrace::dataset
