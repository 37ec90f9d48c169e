// Packing: layout, determinism, going on after a stop, and what faults leave behind. The tests with
// doubles run at every write boundary.
#include "headrace/dataset/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "headrace/base/crc32c.h"
#include "headrace/base/fault_point.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/pack_layout.h"
#include "headrace/dataset/tar.h"
#include "headrace/env/file.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::dataset {
namespace {

using testing::HasSubstr;
using Tree = std::map<std::string, std::string>;  // path -> content or what tells it

const std::string kSource = "/source";
const std::string kTarget = "/packed/set";

std::string Pattern(size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 131 + seed * 29) >> 3);
  return bytes;
}

void WriteFile(FileSystem* fs, const std::string& path, const std::string& content) {
  std::string folder(DirectoryName(path));
  ASSERT_TRUE(fs->MakeDirectories(folder).ok());
  ASSERT_TRUE(fs->WriteAtomically(path, AsBytes(content)).ok());
  for (; folder != "/"; folder = std::string(DirectoryName(folder)))
    ASSERT_TRUE(fs->SyncDirectory(folder).ok());
  ASSERT_TRUE(fs->SyncDirectory("/").ok());
}

// Two classes, sizes around the borders of a tar block, a sample with two files.
void MakeSource(FileSystem* fs, const std::string& root = kSource) {
  WriteFile(fs, root + "/cat/a.jpg", Pattern(700, 1));
  WriteFile(fs, root + "/cat/a.json", "{}");
  WriteFile(fs, root + "/cat/b.jpg", Pattern(512, 2));
  WriteFile(fs, root + "/cat/deep/c.jpg", Pattern(511, 3));
  WriteFile(fs, root + "/dog/a.jpg", "");
  WriteFile(fs, root + "/dog/b.jpg", Pattern(513, 4));
}

PackOptions SmallShards() {
  PackOptions options;
  options.shard_samples = 2;
  options.threads = 1;
  return options;
}

void AddTree(FileSystem* fs, const std::string& path, Tree* tree) {
  auto entries = fs->List(path);
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  for (const DirectoryEntry& entry : *entries) {
    std::string child = JoinPath(path, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      (*tree)[child + "/"] = "";
      AddTree(fs, child, tree);
    } else {
      std::string content = *fs->ReadWhole(child, 1 << 26);
      (*tree)[child] = fmt::format("{} bytes, {:08x}", content.size(), Crc32c(AsBytes(content)));
    }
  }
}

// Everything below `path`, files by size and checksum; empty when it is not there.
Tree Snapshot(FileSystem* fs, const std::string& path) {
  Tree tree;
  if (fs->Exists(path)) AddTree(fs, path, &tree);
  return tree;
}

// Reads every field of a data set through its indexes and checks every checksum there is.
Tree ReadSamples(FileSystem* fs, const std::string& path) {
  Tree samples;
  auto manifest = Manifest::Load(fs, JoinPath(path, kManifestName));
  EXPECT_TRUE(manifest.ok()) << manifest.status().ToString();
  if (!manifest.ok()) return samples;
  for (const ManifestShard& shard : manifest->shards) {
    auto tar = fs->ReadWhole(JoinPath(path, shard.name), 1 << 26);
    auto bytes = fs->ReadWhole(JoinPath(path, shard.index), 1 << 26);
    EXPECT_TRUE(tar.ok() && bytes.ok()) << shard.name;
    if (!tar.ok() || !bytes.ok()) continue;
    EXPECT_EQ(Crc32c(AsBytes(*tar)), *shard.crc32c) << shard.name;
    auto index = IndexReader::FromBytes(*bytes, shard.index);
    EXPECT_TRUE(index.ok()) << index.status().ToString();
    if (!index.ok()) continue;
    EXPECT_EQ((*index)->header_crc32c(), shard.index_header_crc32c);
    EXPECT_EQ((*index)->num_samples(), shard.samples);
    EXPECT_TRUE((*index)->fully_checksummed());
    IndexSample sample;
    for (uint64_t i = 0; i < (*index)->num_samples(); ++i) {
      EXPECT_TRUE((*index)->Get(i, &sample).ok());
      for (const IndexField& field : sample.fields) {
        std::string data = tar->substr(field.offset, field.length);
        EXPECT_EQ(Crc32c(AsBytes(data)), *field.crc32c);
        samples[std::string(sample.key) + "." + (*index)->field_names()[field.name]] = data;
      }
    }
  }
  return samples;
}

Result<PackReport> PackInto(FileSystem* fs, const PackOptions& options,
                            const std::string& source = kSource) {
  return Pack(fs, {source}, kTarget, options, Context());
}

// What a pack of MakeSource's files gives.
Tree ExpectedSamples() {
  return {{"cat/a.jpg", Pattern(700, 1)}, {"cat/a.json", "{}"}, {"cat/a.cls", "0"},
          {"cat/b.jpg", Pattern(512, 2)}, {"cat/b.cls", "0"},   {"cat/deep/c.jpg", Pattern(511, 3)},
          {"cat/deep/c.cls", "0"},        {"dog/a.jpg", ""},    {"dog/a.cls", "1"},
          {"dog/b.jpg", Pattern(513, 4)}, {"dog/b.cls", "1"}};
}

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

// --- at every write boundary -------------------------------------------------------------------

struct CutCase {
  Survival survival;
  uint64_t seed;
};

// After the cut the old version (or nothing) or the new one is there, whole; and the same pack once
// more ends with what an undisturbed one gives, without a stray file.
void CutPowerEverywhere(bool overwrite, CutCase cut) {
  PackOptions options = SmallShards();
  options.overwrite = overwrite;
  auto prepare = [&](MemoryFileSystem* fs) {
    MakeSource(fs);
    if (!overwrite) return;
    WriteFile(fs, "/other/x/1.png", "old");
    WriteFile(fs, "/other/x/2.png", "old too");
    WriteFile(fs, "/other/y/3.png", "and this");
    ASSERT_TRUE(PackInto(fs, SmallShards(), "/other").ok());
  };
  MemoryFileSystem undisturbed;
  prepare(&undisturbed);
  Tree before = overwrite ? ReadSamples(&undisturbed, kTarget) : Tree();
  ASSERT_TRUE(PackInto(&undisturbed, options).ok());
  Tree after = Snapshot(&undisturbed, kTarget);
  uint64_t cuts = 0;
  for (uint64_t k = 1;; ++k) {
    MemoryFileSystem fs;
    prepare(&fs);
    uint64_t start = fs.boundaries();
    fs.CutPowerAt(start + k, cut.survival, cut.seed * 1000 + k);
    auto packed = PackInto(&fs, options);
    bool finished = !fs.power_is_off();
    fs.PowerOn();
    SCOPED_TRACE(testing::Message() << "cut before boundary " << k << ": "
                                    << (fs.boundary_log().empty() ? "" : fs.boundary_log().back()));
    if (packed.ok()) {
      EXPECT_TRUE(fs.Exists(kTarget + "/headrace.json")) << "acknowledged, then lost";
    }
    if (fs.Exists(kTarget + "/headrace.json")) {
      Tree samples = ReadSamples(&fs, kTarget);
      EXPECT_TRUE(samples == before || samples == ExpectedSamples());
    } else {
      EXPECT_FALSE(overwrite) << "the version before is gone";
    }
    bool published = fs.Exists(kTarget + "/headrace.json");
    auto again = PackInto(&fs, options);
    // When the cut left nothing but the published version, there is nothing to go on with.
    bool refused = !overwrite && published && again.status().code() == Code::kAlreadyExists;
    EXPECT_TRUE(again.ok() || refused) << again.status().ToString();
    EXPECT_TRUE(ReadSamples(&fs, kTarget) == ExpectedSamples());
    if (!overwrite) {
      EXPECT_EQ(Snapshot(&fs, kTarget), after);
    }
    EXPECT_EQ(Snapshot(&fs, kTarget).size(), after.size()) << "a stray file";
    if (finished) break;
    ++cuts;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(cuts, 40u) << "the pack has that many write boundaries";
}

TEST(PackPowerCut, NewDatasetNothingSurvives) {
  CutPowerEverywhere(false, {Survival::kNothing, 0});
}
TEST(PackPowerCut, NewDatasetEverythingSurvives) {
  CutPowerEverywhere(false, {Survival::kEverything, 0});
}
TEST(PackPowerCut, NewDatasetSomeSurvives) {
  for (uint64_t seed = 1; seed <= 3; ++seed) CutPowerEverywhere(false, {Survival::kSome, seed});
}
TEST(PackPowerCut, OverwriteNothingSurvives) { CutPowerEverywhere(true, {Survival::kNothing, 0}); }
TEST(PackPowerCut, OverwriteEverythingSurvives) {
  CutPowerEverywhere(true, {Survival::kEverything, 0});
}
TEST(PackPowerCut, OverwriteSomeSurvives) {
  for (uint64_t seed = 1; seed <= 3; ++seed) CutPowerEverywhere(true, {Survival::kSome, seed});
}

// Prepares a target (empty or with a version), lets `spoil` set the fault, and checks that a pack
// which fails leaves the target as it was. Returns whether the pack failed.
template <typename Spoil>
bool FailsAndLeavesTargetAsBefore(bool overwrite, const Spoil& spoil) {
  MemoryFileSystem memory;
  MakeSource(&memory);
  WriteFile(&memory, "/other/x/1.png", "old");
  if (overwrite) {
    EXPECT_TRUE(PackInto(&memory, SmallShards(), "/other").ok());
  }
  Tree before = Snapshot(&memory, "/packed");
  FaultyFileSystem fs(&memory);
  spoil(&fs);
  PackOptions options = SmallShards();
  options.overwrite = overwrite;
  auto packed = PackInto(&fs, options);
  fs.Heal();
  if (!packed.ok()) {
    EXPECT_EQ(packed.status().code(), Code::kResourceExhausted) << packed.status().ToString();
    EXPECT_EQ(Snapshot(&memory, "/packed"), before) << packed.status().ToString();
    EXPECT_EQ(memory.Exists("/packed"), overwrite);
  }
  auto again = PackInto(&fs, options);
  if (!packed.ok()) {
    EXPECT_TRUE(again.ok()) << again.status().ToString();
  }
  EXPECT_EQ(ReadSamples(&memory, kTarget), ExpectedSamples());
  return !packed.ok();
}

TEST(PackFullDisk, AtEveryByteCountLeavesTargetAsBefore) {
  for (bool overwrite : {false, true}) {
    uint64_t limit = 0;
    while (FailsAndLeavesTargetAsBefore(overwrite,
                                        [&](FaultyFileSystem* fs) { fs->LimitBytes(limit); })) {
      ASSERT_FALSE(HasFailure()) << "limit " << limit;
      limit += 391;
    }
    EXPECT_GT(limit, 10000u);
  }
}

TEST(PackFullDisk, MessageSaysHowMuchIsMissing) {
  MemoryFileSystem memory;
  MakeSource(&memory);
  FaultyFileSystem fs(&memory);
  fs.LimitBytes(6000);
  auto packed = PackInto(&fs, SmallShards());
  EXPECT_THAT(packed.status().ToString(), HasSubstr("more are needed"));
}

TEST(PackFullDisk, AtEveryCallLeavesTargetAsBefore) {
  Status full = Error(Code::kResourceExhausted, "the disk is full");
  for (FileOperation operation :
       {FileOperation::kCreate, FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose,
        FileOperation::kWriteAtomically, FileOperation::kRename, FileOperation::kMakeDirectories,
        FileOperation::kSyncDirectory, FileOperation::kLock}) {
    for (bool overwrite : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << FileOperationName(operation) << (overwrite ? ", overwriting" : ""));
      uint64_t nth = 1;
      while (FailsAndLeavesTargetAsBefore(
          overwrite, [&](FaultyFileSystem* fs) { fs->FailNth(operation, nth, full); })) {
        ASSERT_FALSE(HasFailure()) << "call " << nth;
        ++nth;
      }
    }
  }
}

// An I/O fault keeps finished shards; what readers see stays, and the next try gives the same
// bytes.
TEST(PackFault, AtEveryCallTheNextTryGivesTheSameBytes) {
  MemoryFileSystem undisturbed;
  MakeSource(&undisturbed);
  ASSERT_TRUE(PackInto(&undisturbed, SmallShards()).ok());
  Tree after = Snapshot(&undisturbed, kTarget);
  for (FileOperation operation :
       {FileOperation::kCreate, FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose,
        FileOperation::kWriteAtomically, FileOperation::kRename, FileOperation::kReadInto,
        FileOperation::kOpenForRead, FileOperation::kReadWhole, FileOperation::kList,
        FileOperation::kStat, FileOperation::kSyncDirectory, FileOperation::kRead}) {
    for (uint64_t nth = 1;; ++nth) {
      MemoryFileSystem memory;
      MakeSource(&memory);
      FaultyFileSystem fs(&memory);
      fs.FailNth(operation, nth, Error(Code::kIoError, "the disk is broken"));
      auto packed = PackInto(&fs, SmallShards());
      bool reached = fs.count(operation) >= nth;
      fs.Heal();
      SCOPED_TRACE(testing::Message() << FileOperationName(operation) << " " << nth);
      if (!packed.ok()) {
        EXPECT_FALSE(memory.Exists(kTarget + "/headrace.json"));
        auto again = PackInto(&fs, SmallShards());
        EXPECT_TRUE(again.ok()) << again.status().ToString();
      } else if (memory.Exists(kTarget + "/.headrace-pack")) {
        // A fault in the tidying after the publication fails nothing; the next pack tidies.
        (void)PackInto(&fs, SmallShards());
      }
      EXPECT_EQ(Snapshot(&memory, kTarget), after);
      ASSERT_FALSE(HasFailure());
      if (!reached) break;
    }
  }
}

}  // namespace
}  // namespace headrace::dataset
