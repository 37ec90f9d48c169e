// Seek points that an index lacks: built once, found by everybody from then on, never trusted, and
// no failure whatever becomes of their file. What they are worth is tested in the codec.
#include "headrace/dataset/learned_seek_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/mds_maker.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/dataset/testing/tfrecord_maker.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kImages = 4;  // JPEGs of each dataset below, one of them progressive

std::string Jpeg(uint64_t seed, bool progressive = false) {
  codec::JpegOptions options;
  options.progressive = progressive;
  return codec::EncodeJpeg(codec::MakePixels(320, 240, 3, seed), options);
}

std::vector<std::string> Images() { return {Jpeg(1), Jpeg(2), Jpeg(3, true), Jpeg(4)}; }

std::string RecordOf(Bytes file) {
  std::string record;
  codec::SeekPointBuilder().Build(file, Crc32c(file), kLearnedSpacing, &record);
  return record;
}

class LearnedSeekPointsTest : public ::testing::Test {
 protected:
  LearnedSeekPointsTest() { OpenCache(); }

  void OpenCache(uint64_t limit = 1 << 30) {
    cache_.reset();
    cache::NodeCacheOptions options;
    options.directory = "/cache";
    options.limit_bytes = limit;
    options.free_floor_bytes = 1;
    cache_ = cache::NodeCache::Open(&disk_, options, Context()).value();
  }
  std::shared_ptr<const Dataset> Open(const std::string& path, FileSystem* fs = nullptr) {
    OpenOptions options;
    options.side = [this](const cache::ObjectId&) { return cache_.get(); };
    auto dataset = Dataset::Open(fs ? fs : &files_, path, options);
    EXPECT_TRUE(dataset.ok()) << path << ": " << dataset.status().ToString();
    return dataset.ok() ? *dataset : nullptr;
  }
  // Reads everything with a reader of its own. Each JPEG's record must be its own or missing;
  // returns how many were there.
  uint64_t ReadAll(const std::shared_ptr<const Dataset>& dataset, bool verify = true) {
    counters_ = std::make_shared<SeekPointCounters>();
    ReadOptions options;
    options.verify_checksums = verify;
    options.seek_points = true;
    options.learn_seek_points = counters_;
    auto reader = SampleReader::Create(dataset, options);
    uint64_t there = 0;
    for (uint64_t i = 0; i < dataset->num_samples(); ++i) {
      auto view = reader->Read(i, {}, Context());
      EXPECT_TRUE(view.ok()) << view.status().ToString();
      if (!view.ok()) continue;
      for (const FieldView& field : view->fields) {
        if (field.seek_points.empty()) continue;
        ++there;
        EXPECT_EQ(AsText(field.seek_points), RecordOf(field.data)) << view->key;
        EXPECT_EQ(field.crc32c, Crc32c(field.data)) << view->key;
      }
    }
    EXPECT_GT(reader->memory_bytes(), 0u);
    return there;
  }
  uint64_t used() const { return counters_->Load().used; }
  uint64_t added() const { return counters_->Load().added; }
  void ExpectLearnedOnce(const std::string& path, FileSystem* fs = nullptr) {
    EXPECT_EQ(ReadAll(Open(path, fs)), kImages) << path;
    EXPECT_EQ(added(), kImages) << path;
    EXPECT_EQ(used(), 0u) << path;
    EXPECT_GT(counters_->Load().build_ns, 0u);
    for (bool verify : {true, false}) {
      EXPECT_EQ(ReadAll(Open(path, fs), verify), kImages) << path;
      EXPECT_EQ(added(), 0u) << path;
      EXPECT_EQ(used(), kImages) << path;
    }
  }

  void MakeFolder(const std::string& root) {
    for (uint64_t i = 0; i < kImages; ++i)
      Put(&files_, fmt::format("{}/class/{}.jpg", root, i), Images()[i]);
    Put(&files_, root + "/class/4.txt", "no image");
    Put(&files_, root + "/class/5.jpg", "");
  }
  Members TarMembers() {
    Members members;
    for (uint64_t i = 0; i < kImages; ++i)
      members.emplace_back(fmt::format("{}.jpg", i), Images()[i]);
    members.emplace_back("4.txt", "no image");
    return members;
  }
  // The paths of the side files' records and tables.
  std::vector<std::string> SideFiles(std::string_view suffix) {
    std::vector<std::string> paths;
    auto entries = disk_memory_.List("/cache/side");
    if (!entries.ok()) return paths;
    for (const DirectoryEntry& entry : *entries)
      if (entry.name.ends_with(suffix)) paths.push_back("/cache/side/" + entry.name);
    return paths;
  }

  MemoryFileSystem files_, disk_memory_;
  FaultyFileSystem disk_{&disk_memory_};
  std::unique_ptr<cache::NodeCache> cache_;
  std::shared_ptr<SeekPointCounters> counters_;
};

TEST_F(LearnedSeekPointsTest, OfAFolderAndItsCopyInABucket) {
  MakeFolder("/f");
  ExpectLearnedOnce("/f");
  // The same content anywhere is the same version: it is known already.
  auto store = object::MakeMemoryStore();
  for (const char* name : {"0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.txt", "5.jpg"}) {
    const std::string path = std::string("/f/class/") + name;
    ASSERT_TRUE(
        store->Put(path.substr(1), AsBytes(*files_.ReadWhole(path, 1 << 30)), {}, Context()).ok());
  }
  auto bucket = object::MakeObjectFileSystem(store);
  EXPECT_EQ(ReadAll(Open("mem://test/f", bucket.get())), kImages);
  EXPECT_EQ(used(), kImages);
}

TEST_F(LearnedSeekPointsTest, OfAList) {
  MakeFolder("/f");
  Put(&files_, "/f/l.csv",
      "path,label\nclass/0.jpg,a\nclass/1.jpg,b\nclass/2.jpg,c\nclass/3.jpg,d\nclass/4.txt,e\n");
  ExpectLearnedOnce("/f/l.csv");
}

TEST_F(LearnedSeekPointsTest, OfTarsWithAndWithoutAnIndex) {
  Put(&files_, "/t/0.tar", MakeTar(TarMembers()));
  Put(&files_, "/t/1.tar", MakeTar({{"x.cls", "1"}}));
  ExpectLearnedOnce("/t");
  IndexOptions options;
  options.build.checksums = true;
  ASSERT_TRUE(IndexDataset(&files_, std::vector<std::string>{"/t"}, options, Context()).ok());
  ExpectLearnedOnce("/t");  // checksums make another version
}

TEST_F(LearnedSeekPointsTest, OfTfRecords) {
  std::vector<std::string> messages;
  for (const std::string& image : Images())
    messages.push_back(
        MakeExample({{"image", BytesFeature({image})}, {"label", Int64Feature({7})}}));
  Put(&files_, "/r/a.tfrecord", MakeTfRecord(messages));
  ExpectLearnedOnce("/r");
}

TEST_F(LearnedSeekPointsTest, OfMds) {
  const std::vector<MdsTestColumn> columns = {{"image", "jpeg"}};
  std::vector<std::vector<std::string>> samples;
  for (const std::string& image : Images()) samples.push_back({image});
  MdsTestShard shard;
  const std::string bytes = MakeMdsShard(columns, samples);
  shard.samples = samples.size();
  shard.bytes = bytes.size();
  Put(&files_, "/m/" + shard.name, bytes);
  Put(&files_, "/m/index.json", MakeMdsIndex(columns, {shard}));
  ExpectLearnedOnce("/m");
}

TEST_F(LearnedSeekPointsTest, EachFieldHasItsOwn) {
  Put(&files_, "/t/0.tar",
      MakeTar({{"0.jpg", Jpeg(1)}, {"0.png", Jpeg(2)}, {"1.jpg", Jpeg(3)}, {"1.png", Jpeg(4)}}));
  ExpectLearnedOnce("/t");
  EXPECT_EQ(SideFiles(".table").size(), 2u);
}

TEST_F(LearnedSeekPointsTest, AnIndexThatHasSomeIsTheWord) {
  Put(&files_, "/t/0.tar", MakeTar(TarMembers()));
  IndexOptions options;
  options.build.seek_spacing = 4;
  ASSERT_TRUE(IndexDataset(&files_, std::vector<std::string>{"/t"}, options, Context()).ok());
  auto dataset = Open("/t");
  counters_ = std::make_shared<SeekPointCounters>();
  ReadOptions read;
  read.seek_points = true;
  read.learn_seek_points = counters_;
  auto reader = SampleReader::Create(dataset, read);
  for (uint64_t i = 0; i < kImages; ++i) {
    auto view = reader->Read(i, {}, Context()).value();
    std::string record;
    codec::SeekPointBuilder().Build(view.fields[0].data, Crc32c(view.fields[0].data), 4, &record);
    EXPECT_EQ(AsText(view.fields[0].seek_points), record);
  }
  EXPECT_EQ(added() + used(), 0u);
  EXPECT_TRUE(SideFiles("").empty());
}

TEST_F(LearnedSeekPointsTest, WhoDoesNotAskForThemGetsAndMakesNone) {
  MakeFolder("/f");
  ReadOptions with_points;
  with_points.seek_points = true;
  for (const ReadOptions& options : {with_points, ReadOptions()}) {
    auto reader = SampleReader::Create(Open("/f"), options);
    for (uint64_t i = 0; i < kImages; ++i)
      EXPECT_TRUE(reader->Read(i, {}, Context())->fields[0].seek_points.empty());
  }
  EXPECT_TRUE(SideFiles("").empty());
  auto without_cache = Dataset::Open(&files_, "/f", {}).value();
  EXPECT_EQ(ReadAll(without_cache), 0u);
  cache_.reset();
  EXPECT_EQ(ReadAll(Open("/f")), 0u);
}

TEST_F(LearnedSeekPointsTest, ThoseOfAFileThatWasReplacedAreMadeAnew) {
  MakeFolder("/f");
  ExpectLearnedOnce("/f");
  // Other pixels, the same size and so the same version of a folder that is read in place.
  std::string image = Jpeg(1), other = Jpeg(77);
  const size_t size = std::max(image.size(), other.size());
  image.resize(size);
  other.resize(size);
  Put(&files_, "/f/class/0.jpg", image);
  (void)ReadAll(Open("/f"));
  const std::string version = Open("/f")->version();
  Put(&files_, "/f/class/0.jpg", other);
  ASSERT_EQ(Open("/f")->version(), version);
  EXPECT_EQ(ReadAll(Open("/f")), kImages);
  EXPECT_EQ(used(), kImages - 1);
  EXPECT_EQ(added(), 1u);
  EXPECT_EQ(ReadAll(Open("/f")), kImages);
  EXPECT_EQ(used(), kImages);
}

TEST_F(LearnedSeekPointsTest, DamagedOnesAreMadeAnew) {
  MakeFolder("/f");
  ExpectLearnedOnce("/f");
  const std::string path = SideFiles(".records").at(0);
  auto file = disk_memory_.OpenShared(path).value();
  const size_t bytes = disk_memory_.Stat(path)->size_bytes;
  uint64_t rebuilt = 0;
  for (size_t at = 0; at < bytes; at += 1 + bytes / 40) {
    std::byte byte;
    ASSERT_EQ(file->ReadSome(at, {&byte, 1}).value(), 1u);
    byte ^= std::byte{1};
    ASSERT_TRUE(file->WriteAt(at, {&byte, 1}).ok());
    EXPECT_EQ(ReadAll(Open("/f")), kImages) << at;
    EXPECT_EQ(used() + added(), kImages) << at;
    rebuilt += added();
  }
  EXPECT_EQ(rebuilt, kImages);  // each was hit once; its new place lies behind
}

TEST_F(LearnedSeekPointsTest, AFullOrBrokenDiskIsNoFailure) {
  MakeFolder("/f");
  disk_.LimitBytes(0);
  EXPECT_LE(ReadAll(Open("/f")), 1u);  // the first one was built before the disk was found full
  EXPECT_EQ(added(), 0u);
  disk_.Heal();
  OpenCache();
  ExpectLearnedOnce("/f");
  disk_.FailNth(FileOperation::kRead, 2, Error(Code::kIoError, "the disk is broken"), 1000);
  EXPECT_EQ(ReadAll(Open("/f")), 2u);  // one was found, one was built and not kept
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(added(), 0u);
  disk_.Heal();
  OpenCache();
  EXPECT_EQ(ReadAll(Open("/f")), kImages);
  EXPECT_EQ(used(), kImages);
}

TEST_F(LearnedSeekPointsTest, ACacheThatIsTooSmallKeepsNone) {
  MakeFolder("/f");
  OpenCache(300'000);                  // a quarter of it is less than a step
  EXPECT_EQ(ReadAll(Open("/f")), 1u);  // built and not kept; then no more are built for a while
  EXPECT_EQ(added(), 0u);
  EXPECT_LE(cache_->used_bytes(), 300'000u);
}

}  // namespace
}  // namespace headrace::dataset
