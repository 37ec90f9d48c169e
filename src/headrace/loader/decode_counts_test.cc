// The loader's statistics of how images were decoded, over a dataset that has an image of each
// kind.
#include <gtest/gtest.h>

#include <thread>

#include "headrace/base/crc32c.h"
#include "headrace/codec/image_encoder.h"
#include "headrace/codec/seek_points.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/loader/loader.h"

namespace headrace::loader {
namespace {

using codec::SeekRefusal;

constexpr uint32_t kWidth = 64, kHeight = 48;
constexpr uint64_t kBatchesAhead = 8;  // as many as the loader makes, however small they are

struct Image {
  SeekRefusal expected;
  std::string bytes, record;
};

std::string Jpeg(uint64_t seed, const codec::JpegOptions& options = {}, uint32_t channels = 3) {
  return codec::EncodeJpeg(codec::MakePixels(kWidth, kHeight, channels, seed), options);
}

std::string Png() {
  codec::TestPixels pixels = codec::MakePixels(kWidth, kHeight, 3, 1);
  codec::PixelView view{pixels.data.data(), kWidth * 3, kWidth, kHeight, 3};
  return codec::EncodeImage(view, codec::EncodedFormat::kPng).value();
}

std::string RecordOf(const std::string& file) {
  std::string record;
  codec::SeekPointBuilder().Build(AsBytes(file), Crc32c(AsBytes(file)), 8, &record);
  return record;
}

// As many images of each kind as its number in SeekRefusal says, one with seek points, so that no
// two kinds can be mistaken for each other.
std::vector<Image> MixedImages() {
  codec::JpegOptions progressive, scans;
  progressive.progressive = true;
  scans.multi_scan = true;
  std::vector<Image> images = {{SeekRefusal::kNone, Jpeg(1), RecordOf(Jpeg(1))}};
  auto add = [&](SeekRefusal why, const std::string& bytes, const std::string& record) {
    for (size_t i = 0; i < static_cast<size_t>(why); ++i) images.push_back({why, bytes, record});
  };
  auto add_as_indexed = [&](SeekRefusal why, const std::string& bytes) {
    add(why, bytes, RecordOf(bytes));
  };
  add_as_indexed(SeekRefusal::kNotJpeg, Png());
  add(SeekRefusal::kNoRecord, Jpeg(2), "");
  add_as_indexed(SeekRefusal::kProgressive, Jpeg(3, progressive));
  add_as_indexed(SeekRefusal::kColorSpace, Jpeg(4, {}, 4));
  add_as_indexed(SeekRefusal::kNonInterleaved, Jpeg(6, scans));
  std::string newer = RecordOf(Jpeg(7));
  newer[0] = 99;
  add(SeekRefusal::kRecordUnknown, Jpeg(7), newer);
  add(SeekRefusal::kRecordForeign, Jpeg(8), RecordOf(Jpeg(9)));
  return images;
}

// One tar with a sample for each image; its index keeps the records that the images come with.
std::shared_ptr<const dataset::Dataset> MakeDataset(FileSystem* fs,
                                                    const std::vector<Image>& images) {
  dataset::Members members;
  dataset::IndexBuilder builder(dataset::ShardKind::kTar);
  for (const Image& image : images) {
    std::string key = fmt::format("{:04}", members.size());
    members.emplace_back(key + ".img", image.bytes);
    std::string tar = dataset::MakeTar(members, false);
    std::vector<dataset::IndexBuilder::Field> fields(1);
    fields[0].name = "img";
    fields[0].offset = tar.size() - dataset::TarPaddedBytes(image.bytes.size());
    fields[0].length = image.bytes.size();
    fields[0].crc32c = Crc32c(AsBytes(image.bytes));
    fields[0].seek_points = image.record;
    EXPECT_TRUE(builder.Add(key, fields).ok());
  }
  dataset::Put(fs, "/t/0.tar", dataset::MakeTar(members));
  auto tar = fs->OpenForRead("/t/0.tar").value();
  auto identity = dataset::IdentifyShard(*tar, Context()).value();
  dataset::Put(fs, "/t/0.tar.hridx", builder.Finish(identity).value());
  return dataset::Dataset::Open(fs, "/t", {}).value();
}

LoaderPtr MakeLoader(std::shared_ptr<const dataset::Dataset> data, uint64_t batch, int threads) {
  LoaderOptions options;
  options.global_batch = batch;
  options.threads = threads;
  options.on_error = OnError::kReplace;
  options.columns = {
      {"img", R"({"type": "image", "dtype": "uint8", "ops": [{"op": "resize", "size": [16, 16]}]})",
       true}};
  auto loader = Loader::Create(std::move(data), options);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  return std::move(loader).value();
}

void WaitUntilFull(Loader* loader) {
  while (loader->stats().ready_batches < kBatchesAhead) std::this_thread::yield();
}

// A batch is an epoch, so that every batch made, delivered or not, holds every image once.
TEST(DecodeCounts, SayExactlyWhatBecameOfEachImage) {
  MemoryFileSystem fs;
  const std::vector<Image> images = MixedImages();
  auto data = MakeDataset(&fs, images);
  for (int threads : {1, 3}) {
    auto loader = MakeLoader(data, images.size(), threads);
    ASSERT_TRUE(loader->Begin(0, 0).ok());
    for (uint64_t delivered : {0, 1, 2}) {
      WaitUntilFull(loader.get());
      codec::DecodeCounts expected{};
      for (const Image& image : images)
        expected[static_cast<size_t>(image.expected)] += kBatchesAhead + delivered;
      EXPECT_EQ(loader->stats().decodes, expected) << delivered;
      ASSERT_TRUE(loader->Begin(delivered, 0).ok());
      auto batch = loader->Next(Context());
      ASSERT_TRUE(batch.ok()) << batch.status().ToString();
      ASSERT_EQ((*batch)->num_rows, images.size());
    }
  }
}

// What the consumer asks for anew is decoded in its own thread.
TEST(DecodeCounts, SubstitutesCount) {
  MemoryFileSystem fs;
  auto data = MakeDataset(&fs, {{SeekRefusal::kNone, Jpeg(1), RecordOf(Jpeg(1))}});
  auto loader = MakeLoader(data, 1, 1);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  auto batch = loader->Next(Context());
  ASSERT_TRUE(batch.ok()) << batch.status().ToString();
  WaitUntilFull(loader.get());
  EXPECT_EQ(loader->stats().decodes[0], kBatchesAhead + 1);
  ASSERT_TRUE(
      loader->LoadSubstitute(batch->get(), 0, Status(Code::kDataLoss, "no good"), Context()).ok());
  EXPECT_EQ(loader->stats().decodes[0], kBatchesAhead + 2);
}

}  // namespace
}  // namespace headrace::loader
