// Seek points on their way through a dataset: made by pack and index, kept in the index, given to
// readers. What they are worth is tested in the codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "headrace/base/crc32c.h"
#include "headrace/codec/image.h"
#include "headrace/codec/seek_points.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/pack.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/dataset/verify.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

using codec::SeekRefusal;
using testing::HasSubstr;

std::string Jpeg(uint32_t width, uint32_t height, uint64_t seed, bool progressive = false) {
  codec::JpegOptions options;
  options.progressive = progressive;
  return codec::EncodeJpeg(codec::MakePixels(width, height, 3, seed), options);
}

// Key and field to bytes: two baseline files (one not called jpg, one larger than a write buffer),
// a progressive one, and things that are no JPEG.
Members MixedSamples() {
  Members members = {{"a/0.jpg", Jpeg(64, 48, 1)},
                     {"a/0.json", "{}"},
                     {"a/1.img", Jpeg(1500, 1100, 2)},  // larger than the buffer of a test's pack
                     {"a/2.jpg", Jpeg(64, 48, 3, true)},
                     {"a/3.jpg", "no image"},
                     {"a/4.jpg", ""}};
  return members;
}

void MakeFolder(FileSystem* fs, const std::string& root) {
  for (const auto& [path, data] : MixedSamples()) Put(fs, JoinPath(root, path), data);
}

std::string RecordOf(const std::string& jpeg, uint32_t spacing) {
  std::string record;
  codec::SeekPointBuilder().Build(AsBytes(jpeg), Crc32c(AsBytes(jpeg)), spacing, &record);
  return record;
}

// Reads everything, and holds the seek points of each field against those that its bytes have.
void ExpectSeekPoints(FileSystem* fs, const std::string& path, uint32_t spacing) {
  auto dataset = Dataset::Open(fs, path, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  ReadOptions options;
  options.seek_points = true;
  auto reader = SampleReader::Create(*dataset, options);
  size_t with_record = 0;
  for (uint64_t i = 0; i < (*dataset)->num_samples(); ++i) {
    auto view = reader->Read(i, {}, Context());
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    for (const FieldView& field : view->fields) {
      std::string data(AsText(field.data));
      std::string expected = spacing == 0 ? "" : RecordOf(data, spacing);
      EXPECT_EQ(AsText(field.seek_points), expected) << view->key;
      with_record += !field.seek_points.empty();
      // A value in the index is not checked again; all else has a checksum by now.
      if ((*dataset)->fields()[field.field] == "cls") continue;
      EXPECT_TRUE(spacing == 0 || field.crc32c == Crc32c(AsBytes(data))) << view->key;
    }
  }
  EXPECT_EQ(with_record, spacing == 0 ? 0u : 3u);
}

void ExpectMixedTally(const SeekTally& tally) {
  EXPECT_EQ(tally.num_images(), 3u);
  EXPECT_EQ(tally.num_with_points(), 2u);
  EXPECT_EQ(tally.images[static_cast<size_t>(SeekRefusal::kProgressive)], 1u);
  uint64_t bytes = 0, records = 0;
  for (const auto& [path, data] : MixedSamples()) {
    std::string record = RecordOf(data, 8);
    if (!record.empty()) bytes += data.size();
    records += record.size();
  }
  EXPECT_EQ(tally.image_bytes, bytes);
  EXPECT_EQ(tally.record_bytes, records);
}

Result<IndexReport> IndexWith(FileSystem* fs, const std::string& path, uint32_t spacing,
                              uint32_t threads = 2) {
  IndexOptions options;
  options.build.seek_spacing = spacing;
  options.build.threads = threads;
  return IndexDataset(fs, std::vector<std::string>{path}, options, Context());
}

SeekTally TallyOf(const IndexReport& report) {
  SeekTally all;
  for (const ShardReport& shard : report.shards) all.Add(shard.seek);
  return all;
}

TEST(SeekPoints, PackKeepsThemForWhatIsAJpegByItsBytes) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  for (uint32_t spacing : {8u, 4u, 0u}) {
    PackOptions options;
    options.seek_spacing = spacing;
    options.overwrite = true;
    auto report = Pack(&fs, {"/f"}, "/packed", options, Context());
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    if (spacing == 8) ExpectMixedTally(report->seek);
    EXPECT_TRUE(spacing != 0 || report->seek.num_images() == 0);
    ExpectSeekPoints(&fs, "/packed", spacing);
  }
}

TEST(SeekPoints, PackRefusesAnotherSpacing) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  PackOptions options;
  options.seek_spacing = 5;
  EXPECT_EQ(Pack(&fs, {"/f"}, "/packed", options, Context()).status().code(),
            Code::kInvalidArgument);
}

TEST(SeekPoints, TheVersionOfAPackDoesNotDependOnThem) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  std::set<std::string> versions;
  for (uint32_t spacing : {8u, 4u, 0u}) {
    PackOptions options;
    options.seek_spacing = spacing;
    std::string target = fmt::format("/packed-{}", spacing);
    auto report = Pack(&fs, {"/f"}, target, options, Context());
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    versions.insert(report->version);
    versions.insert(Dataset::Open(&fs, target, {}).value()->version());
    // Without the manifest the indexes alone give the same version.
    ASSERT_TRUE(fs.Remove(target + "/headrace.json").ok());
    auto alone = Dataset::Open(&fs, target, {}).value();
    EXPECT_EQ(alone->shards().size(), 1u);
  }
  EXPECT_EQ(versions.size(), 1u);
}

TEST(SeekPoints, IndexOfAFolderKeepsThemAndTheVersion) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  std::string in_place = Dataset::Open(&fs, "/f", {}).value()->version();
  auto report = IndexWith(&fs, "/f", 8);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectMixedTally(TallyOf(*report));
  EXPECT_EQ(report->manifest.ComputeVersion(), in_place);
  EXPECT_EQ(Dataset::Open(&fs, "/f", {}).value()->version(), in_place);
  ExpectSeekPoints(&fs, "/f", 8);
  auto verified = Verify(Dataset::Open(&fs, "/f", {}).value(), {}, Context());
  EXPECT_EQ(verified->num_faults, 0u);
  EXPECT_EQ(verified->shards[0].unverified, 0u);
}

TEST(SeekPoints, IndexOfTarsKeepsThemAndTheVersion) {
  MemoryFileSystem fs;
  Put(&fs, "/t/0.tar", MakeTar(MixedSamples()));
  Put(&fs, "/t/1.tar", MakeTar(MakeSamples("x", 30)));
  std::string in_place = Dataset::Open(&fs, "/t", {}).value()->version();
  auto report = IndexWith(&fs, "/t", 8);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectMixedTally(TallyOf(*report));
  EXPECT_EQ(report->manifest.ComputeVersion(), in_place);
  ExpectSeekPoints(&fs, "/t", 8);
  ASSERT_TRUE(fs.Remove("/t/headrace.json").ok());
  EXPECT_EQ(Dataset::Open(&fs, "/t", {}).value()->version(), in_place);
}

TEST(SeekPoints, IndexOfAListKeepsThem) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/l");
  Put(&fs, "/l/t.csv", "path,label\na/0.jpg,x\na/1.img,y\na/2.jpg,z\n");
  auto report = IndexWith(&fs, "/l/t.csv", 8);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectMixedTally(TallyOf(*report));
  auto dataset = Dataset::Open(&fs, "/l/t.csv", {}).value();
  ReadOptions options;
  options.seek_points = true;
  auto reader = SampleReader::Create(dataset, options);
  FieldId file = dataset->FindField("file").value();
  auto view = reader->Read(1, std::span(&file, 1), Context()).value();
  EXPECT_EQ(AsText(view.fields[0].seek_points), RecordOf(MixedSamples()[2].second, 8));
}

TEST(SeekPoints, TheIndexDoesNotDependOnThreads) {
  MemoryFileSystem fs;
  Members members = MixedSamples();
  for (int i = 0; i < 3000; ++i)
    members.emplace_back(fmt::format("b/{:05}.jpg", i), Jpeg(16, 16, static_cast<uint64_t>(i)));
  Put(&fs, "/t/0.tar", MakeTar(members));
  std::set<std::string> indexes;
  for (uint32_t threads : {1u, 2u, 5u}) {
    ASSERT_TRUE(IndexWith(&fs, "/t", 4, threads).ok());
    indexes.insert(fs.ReadWhole("/t/0.tar.hridx", 1 << 26).value());
  }
  EXPECT_EQ(indexes.size(), 1u);
}

TEST(SeekPoints, ChecksumsOfAWholeTarAreJoinedFromThoseOfItsParts) {
  MemoryFileSystem fs;
  std::string tar = MakeTar(MakeSamples("x", 5000));
  Put(&fs, "/t/0.tar", tar);
  IndexOptions options;
  options.build.checksums = true;
  options.build.threads = 3;
  auto report = IndexDataset(&fs, std::vector<std::string>{"/t"}, options, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->manifest.shards[0].crc32c, Crc32c(AsBytes(tar)));
}

TEST(SeekPoints, ProgressCountsEverySampleAndByte) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  IndexOptions options;
  IndexProgress progress;
  options.build.seek_spacing = 8;
  options.build.progress = &progress;
  ASSERT_TRUE(IndexDataset(&fs, std::vector<std::string>{"/f"}, options, Context()).ok());
  EXPECT_EQ(progress.samples.load(), 5u);
  EXPECT_EQ(progress.total_samples.load(), 5u);
  EXPECT_EQ(progress.bytes.load(), progress.total_bytes.load());
  EXPECT_GT(progress.bytes.load(), 0u);
}

TEST(SeekPoints, ProgressOfTarsEndsAtTheirSize) {
  MemoryFileSystem fs;
  std::string tars[] = {MakeTar(MixedSamples()), MakeTar(MakeSamples("x", 3000))};
  Put(&fs, "/t/0.tar", tars[0]);
  Put(&fs, "/t/1.tar", tars[1]);
  for (uint32_t spacing : {0u, 8u}) {
    IndexOptions options;
    IndexProgress progress;
    options.build.seek_spacing = spacing;
    options.build.progress = &progress;
    ASSERT_TRUE(IndexDataset(&fs, std::vector<std::string>{"/t"}, options, Context()).ok());
    EXPECT_EQ(progress.samples.load(), 3005u);
    EXPECT_EQ(progress.total_samples.load(), 3005u);
    EXPECT_EQ(progress.bytes.load(), tars[0].size() + tars[1].size());
    EXPECT_EQ(progress.total_bytes.load(), progress.bytes.load());
  }
}

TEST(SeekPoints, AnIndexThatIsBrokenOffLeavesTheOneBefore) {
  MemoryFileSystem fs;
  Put(&fs, "/t/0.tar", MakeTar(MixedSamples()));
  Put(&fs, "/t/1.tar", MakeTar(MakeSamples("x", 30)));
  ASSERT_TRUE(IndexWith(&fs, "/t", 0).ok());
  std::string before = fs.ReadWhole("/t/0.tar.hridx", 1 << 26).value();
  // The second tar cannot be read as one.
  Put(&fs, "/t/1.tar", std::string(4096, 'x'));
  EXPECT_FALSE(IndexWith(&fs, "/t", 8).ok());
  EXPECT_EQ(fs.ReadWhole("/t/0.tar.hridx", 1 << 26).value(), before);
  auto entries = fs.List("/t").value();
  for (const DirectoryEntry& entry : entries)
    EXPECT_FALSE(entry.name.starts_with(kTemporaryPrefix)) << entry.name;
  std::atomic<bool> cancelled{true};
  IndexOptions options;
  options.build.seek_spacing = 8;
  auto stopped = IndexDataset(&fs, std::vector<std::string>{"/t/0.tar"}, options,
                              Context(Context::Clock::time_point::max(), &cancelled));
  EXPECT_EQ(stopped.status().code(), Code::kCancelled);
  EXPECT_EQ(fs.ReadWhole("/t/0.tar.hridx", 1 << 26).value(), before);
}

// Reads every sample; the first fault.
Status ReadAll(FileSystem* fs, const std::string& path) {
  HR_ASSIGN_OR_RETURN(auto dataset, Dataset::Open(fs, path, {}));
  auto reader = SampleReader::Create(dataset, {});
  for (uint64_t i = 0; i < dataset->num_samples(); ++i)
    HR_RETURN_IF_ERROR(reader->Read(i, {}, Context()).status());
  return OkStatus();
}

// Between the first rename and the manifest nothing can be read; then the error says what to do.
TEST(SeekPoints, AnIndexThatFailsAtAnyStepLeavesNoTemporaryAndIsMadeAgain) {
  for (FileOperation step : {FileOperation::kMakeDirectories, FileOperation::kWriteAtomically,
                             FileOperation::kRename, FileOperation::kSyncDirectory}) {
    bool done = false;
    for (uint64_t nth = 1; !done; ++nth) {
      MemoryFileSystem memory;
      Put(&memory, "/t/0.tar", MakeTar(MixedSamples()));
      Put(&memory, "/t/1.tar", MakeTar(MakeSamples("x", 30)));
      ASSERT_TRUE(IndexWith(&memory, "/t", 0).ok());
      FaultyFileSystem fs(&memory);
      fs.FailNth(step, nth, Error(Code::kIoError, "the disk is broken"));
      auto failed = IndexWith(&fs, "/t", 8);
      done = failed.ok();
      if (!done) {
        EXPECT_THAT(failed.status().ToString(), HasSubstr("the disk is broken"));
      }
      auto entries = memory.List("/t").value();
      for (const DirectoryEntry& entry : entries)
        EXPECT_FALSE(entry.name.starts_with(kTemporaryPrefix)) << entry.name;
      Status read = ReadAll(&memory, "/t");
      if (!read.ok()) {
        EXPECT_THAT(read.ToString(), HasSubstr("`headrace index`"));
      }
      ASSERT_TRUE(IndexWith(&memory, "/t", 8).ok());
      ExpectSeekPoints(&memory, "/t", 8);
    }
  }
}

// Names of hidden files in a folder.
std::vector<std::string> HiddenNames(FileSystem* fs, const std::string& folder) {
  std::vector<std::string> names;
  const auto entries = fs->List(folder).value();
  for (const DirectoryEntry& entry : entries)
    if (entry.name.starts_with('.')) names.push_back(entry.name);
  return names;
}

TEST(SeekPoints, AnIndexThatIsKilledAtAnyStepLeavesNothingBehindTheNextOne) {
  bool finished = false;
  for (uint64_t k = 1; !finished; ++k) {
    MemoryFileSystem fs;
    Put(&fs, "/t/a/0.tar", MakeTar(MakeSamples("x", 3)));
    Put(&fs, "/t/b/1.tar", MakeTar(MakeSamples("y", 3)));
    IndexOptions options;
    options.output = "/out";
    const std::vector<std::string> paths = {"/t/a", "/t/b"};
    fs.CutPowerAt(fs.boundaries() + k, Survival::kEverything);
    (void)IndexDataset(&fs, paths, options, Context());
    finished = !fs.power_is_off();
    fs.PowerOn();
    auto again = IndexDataset(&fs, paths, options, Context());
    ASSERT_TRUE(again.ok()) << k << ": " << again.status().ToString();
    for (const char* folder : {"/out", "/out/a", "/out/b"})
      EXPECT_THAT(HiddenNames(&fs, folder), testing::IsEmpty()) << k << " " << folder;
    EXPECT_TRUE(ReadAll(&fs, "/out").ok()) << k;
  }
}

TEST(SeekPoints, OneIndexRunAtATimeInAFolder) {
  MemoryFileSystem fs;
  Put(&fs, "/t/0.tar", MakeTar(MixedSamples()));
  ASSERT_TRUE(IndexWith(&fs, "/t", 0).ok());
  const std::string before = fs.ReadWhole("/t/0.tar.hridx", 1 << 26).value();
  {
    auto other = fs.Lock("/t/.headrace-index-lock");
    ASSERT_TRUE(other.ok());
    Put(&fs, "/t/.headrace-tmp-of-the-other", "half an index");
    Status refused = IndexWith(&fs, "/t", 8).status();
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.ToString(), HasSubstr("another run is indexing into /t"));
    EXPECT_THAT(HiddenNames(&fs, "/t"), testing::SizeIs(2));
    EXPECT_EQ(fs.ReadWhole("/t/0.tar.hridx", 1 << 26).value(), before);
  }
  ASSERT_TRUE(IndexWith(&fs, "/t", 8).ok());
  EXPECT_THAT(HiddenNames(&fs, "/t"), testing::IsEmpty());
}

// Where there are no locks two runs have temporary names of their own.
TEST(SeekPoints, RunsWithoutLocksDoNotShareNames) {
  MemoryFileSystem memory;
  Put(&memory, "/t/0.tar", MakeTar(MixedSamples()));
  std::set<std::string> names;
  for (int i = 0; i < 2; ++i) {
    FaultyFileSystem fs(&memory);
    fs.FailNth(FileOperation::kLock, 1, Error(Code::kUnimplemented, "no locks here"));
    fs.FailNth(FileOperation::kRename, 1, Error(Code::kIoError, "the disk is broken"));
    fs.FailNth(FileOperation::kRemove, 1, Error(Code::kIoError, "the disk is broken"), 100);
    EXPECT_FALSE(IndexWith(&fs, "/t", 8).ok());
    for (const std::string& name : HiddenNames(&memory, "/t")) names.insert(name);
  }
  EXPECT_EQ(names.size(), 2u);
  ASSERT_TRUE(IndexWith(&memory, "/t", 8).ok());
  EXPECT_THAT(HiddenNames(&memory, "/t"), testing::IsEmpty());
}

TEST(SeekPoints, AFileThatGrewAfterItWasIndexedIsNamed) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  ASSERT_TRUE(IndexWith(&fs, "/f", 8).ok());
  Put(&fs, "/f/a/0.jpg", MixedSamples()[0].second + "more");
  auto dataset = Dataset::Open(&fs, "/f", {}).value();
  auto reader = SampleReader::Create(dataset, {});
  EXPECT_EQ(reader->Read(0, {}, Context()).status().code(), Code::kDataLoss);
}

// Flips a byte among the seek points, which stand last.
TEST(SeekPoints, DamagedOnesCountAsNone) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  ASSERT_TRUE(IndexWith(&fs, "/f", 8).ok());
  const std::string path = "/f/.headrace/files.hridx";
  std::string index = fs.ReadWhole(path, 1 << 26).value();
  std::string record = RecordOf(MixedSamples()[2].second, 8);
  ASSERT_GT(record.size(), 4096u);  // so that its end lies in a chunk of its own
  size_t at = index.find(record);
  ASSERT_NE(at, std::string::npos);
  at += record.size() - 1;
  index[at] = static_cast<char>(index[at] ^ 1);
  Put(&fs, path, index);
  auto dataset = Dataset::Open(&fs, "/f", {}).value();
  ReadOptions options;
  options.seek_points = true;
  auto reader = SampleReader::Create(dataset, options);
  auto view = reader->Read(1, {}, Context());
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_TRUE(view->fields[0].seek_points.empty());
  EXPECT_EQ(AsText(view->fields[0].data), MixedSamples()[2].second);
  auto verified = Verify(dataset, {}, Context());
  EXPECT_GT(verified->num_faults, 0u);
}

TEST(SeekPoints, ReadersThatDoNotAskGetNone) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  ASSERT_TRUE(IndexWith(&fs, "/f", 8).ok());
  auto reader = SampleReader::Create(Dataset::Open(&fs, "/f", {}).value(), {});
  auto view = reader->Read(0, {}, Context()).value();
  for (const FieldView& field : view.fields) EXPECT_TRUE(field.seek_points.empty());
}

TEST(PackJpeg, SequentialMakesProgressiveFilesSeekable) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  PackOptions options;
  options.jpeg = codec::JpegTranscode::kSequential;
  options.threads = 1;
  auto report = Pack(&fs, {"/f"}, "/packed", options, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->jpeg.num_rewritten(), 1u);
  EXPECT_EQ(report->jpeg.files[static_cast<size_t>(codec::TranscodeResult::kUnchanged)], 2u);
  EXPECT_EQ(report->seek.num_with_points(), 3u);
  auto dataset = Dataset::Open(&fs, "/packed", {}).value();
  auto reader = SampleReader::Create(dataset, {});
  auto members = MixedSamples();
  for (uint64_t i = 0; i < dataset->num_samples(); ++i) {
    auto view = reader->Read(i, {}, Context());
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    for (const FieldView& field : view->fields) {
      std::string path = fmt::format("{}.{}", view->key, dataset->fields()[field.field]);
      auto member = std::find_if(members.begin(), members.end(),
                                 [&](const auto& m) { return m.first == path; });
      if (member == members.end()) continue;  // the label
      std::string packed(AsText(field.data));
      EXPECT_EQ(packed == member->second, path != "a/2.jpg") << path;
      if (path != "a/2.jpg") continue;
      EXPECT_TRUE(codec::ReferenceDecode(packed, false).data ==
                  codec::ReferenceDecode(member->second, false).data);
    }
  }
  auto verified = Verify(dataset, {}, Context());
  EXPECT_EQ(verified->num_faults, 0u);
}

TEST(PackJpeg, OptimizeMakesThemSmallerWhateverTheThreads) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  std::set<std::string> versions;
  for (uint32_t threads : {1u, 3u}) {
    PackOptions options;
    options.jpeg = codec::JpegTranscode::kOptimize;
    options.threads = threads;
    options.shard_samples = 2;
    auto report = Pack(&fs, {"/f"}, fmt::format("/packed-{}", threads), options, Context());
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->jpeg.num_rewritten(), 3u);
    EXPECT_LT(report->jpeg.bytes_after, report->jpeg.bytes_before);
    versions.insert(report->version);
  }
  EXPECT_EQ(versions.size(), 1u);
}

TEST(PackJpeg, CountsOnlyWhatIsPacked) {
  MemoryFileSystem memory;
  MakeFolder(&memory, "/f");
  FaultyFileSystem fs(&memory);
  fs.EndFilesAt("a/0.json", 1);  // is read after the JPEG of its sample
  PackOptions options;
  options.jpeg = codec::JpegTranscode::kOptimize;
  options.skip_unreadable = true;
  auto report = Pack(&fs, {"/f"}, "/packed", options, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->skipped.size(), 1u);
  EXPECT_EQ(report->jpeg.num_rewritten(), 2u);
  EXPECT_EQ(report->seek.num_images(), 2u);
}

TEST(VerifyPixels, ComparesWhatHasSeekPoints) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  ASSERT_TRUE(IndexWith(&fs, "/f", 8).ok());
  VerifyOptions options;
  options.pixels = true;
  auto report = Verify(Dataset::Open(&fs, "/f", {}).value(), options, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const PixelTally& pixels = report->shards[0].pixels;
  EXPECT_EQ(pixels.images[static_cast<size_t>(SeekRefusal::kNone)], 2u);
  EXPECT_EQ(pixels.images[static_cast<size_t>(SeekRefusal::kProgressive)], 1u);
  EXPECT_GT(pixels.regions, 2u);
  EXPECT_EQ(pixels.different, 0u);
  EXPECT_EQ(report->num_faults, 0u);
}

// Decodes the first field with what the reader gives along.
void ExpectPixelsOf(std::shared_ptr<const Dataset> dataset, const codec::TestPixels& expected) {
  ReadOptions options;
  options.seek_points = true;
  auto reader = SampleReader::Create(std::move(dataset), options);
  auto view = reader->Read(0, {}, Context()).value();
  const FieldView& field = view.fields[0];
  EXPECT_FALSE(field.seek_points.empty());
  codec::Scratch scratch;
  auto pixels = codec::DecodeRegion(field.data, {0, 0, expected.width, expected.height}, 3, 1 << 24,
                                    {field.seek_points, field.crc32c}, &scratch);
  ASSERT_TRUE(pixels.ok()) << pixels.status().ToString();
  for (uint32_t y = 0; y < expected.height; ++y)
    EXPECT_EQ(memcmp(pixels->data + y * pixels->stride, &expected.data[y * expected.width * 3],
                     expected.width * 3),
              0)
        << y;
}

// An index whose records belong to other files, are cut short, or are noise.
TEST(VerifyPixels, WrongRecordsAreNotUsed) {
  const std::string a = Jpeg(320, 240, 1), b = Jpeg(320, 240, 2);
  std::string noise(500, '\0'), other = RecordOf(b, 8), newer = RecordOf(a, 8);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 131 >> 2);
  noise[0] = newer[0];
  newer[0] = 99;
  std::string cut = RecordOf(a, 8);
  cut.resize(cut.size() / 2);
  for (const std::string& record : {other, noise, newer, cut}) {
    MemoryFileSystem fs;
    const std::string tar = MakeTar({{"0.jpg", a}});
    Put(&fs, "/t/0.tar", tar);
    IndexBuilder builder(ShardKind::kTar);
    std::vector<IndexBuilder::Field> fields(1);
    fields[0] = {"jpg", 512, a.size(), Crc32c(AsBytes(a)), false, {}, record};
    ASSERT_TRUE(builder.Add("0", fields).ok());
    auto identity = IdentifyShard(*fs.OpenForRead("/t/0.tar").value(), Context()).value();
    Put(&fs, "/t/0.tar.hridx", builder.Finish(identity).value());
    VerifyOptions options;
    options.pixels = true;
    auto report = Verify(Dataset::Open(&fs, "/t", {}).value(), options, Context());
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->shards[0].pixels.different, 0u);
    EXPECT_EQ(report->num_faults, 0u);
    EXPECT_EQ(report->shards[0].pixels.images[0], 0u) << "compared from a wrong record";
    ExpectPixelsOf(Dataset::Open(&fs, "/t", {}).value(), codec::ReferenceDecode(a, false));
  }
}

TEST(SeekPoints, APackOfSmallShardsCountsThemAll) {
  MemoryFileSystem fs;
  MakeFolder(&fs, "/f");
  PackOptions options;
  options.shard_samples = 1;
  options.threads = 1;
  auto first = Pack(&fs, {"/f"}, "/packed", options, Context());
  ASSERT_TRUE(first.ok());
  ExpectMixedTally(first->seek);
}

}  // namespace
}  // namespace headrace::dataset
