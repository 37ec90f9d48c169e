// Encoders, lossless transcodes and the check of pixels: libjpeg's own decode is the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "headrace/base/crc32c.h"
#include "headrace/codec/image_encoder.h"
#include "headrace/codec/jpeg_transcode.h"
#include "headrace/codec/pixel_check.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/codec/thumbnail.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kMaxPixels = 1 << 24;

std::string Encode(uint32_t width, uint32_t height, uint32_t channels, const JpegOptions& options) {
  return EncodeJpeg(MakePixels(width, height, channels, width * 7 + height), options);
}

// Places a segment right behind the SOI.
std::string WithSegment(const std::string& jpeg, int marker, const std::string& data) {
  std::string segment = {'\xff', static_cast<char>(marker),
                         static_cast<char>((data.size() + 2) >> 8),
                         static_cast<char>((data.size() + 2) & 0xff)};
  return jpeg.substr(0, 2) + segment + data + jpeg.substr(2);
}

// Number of SOS markers; entropy-coded data never holds them.
size_t NumScans(const std::string& jpeg) {
  size_t scans = 0;
  for (size_t i = 0; i + 1 < jpeg.size(); ++i) scans += jpeg[i] == '\xff' && jpeg[i + 1] == '\xda';
  return scans;
}

void ExpectSamePixels(const std::string& a, const std::string& b) {
  TestPixels x = ReferenceDecode(a, false), y = ReferenceDecode(b, false);
  EXPECT_EQ(std::tuple(x.width, x.height, x.channels), std::tuple(y.width, y.height, y.channels));
  EXPECT_TRUE(x.data == y.data);
}

TEST(JpegTranscode, RewritesKeepEveryPixel) {
  for (auto [h, v] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2), std::pair(1, 2)}) {
    for (uint32_t channels : {1u, 3u, 4u}) {
      for (auto [width, height] : {std::pair(1u, 1u), std::pair(67u, 43u), std::pair(200u, 120u)}) {
        JpegOptions options;
        options.h = channels == 1 ? 1 : h;
        options.v = channels == 1 ? 1 : v;
        options.progressive = true;
        std::string file = Encode(width, height, channels, options), rewritten;
        ASSERT_EQ(TranscodeJpeg(AsBytes(file), JpegTranscode::kSequential, kMaxPixels, &rewritten),
                  TranscodeResult::kRewritten)
            << h << v << channels << width;
        EXPECT_EQ(NumScans(rewritten), 1u);
        ExpectSamePixels(file, rewritten);
      }
    }
  }
}

TEST(JpegTranscode, SequentialTouchesFilesOfSeveralScansOnly) {
  JpegOptions options;
  std::string out = "before";
  std::string baseline = Encode(64, 64, 3, options);
  EXPECT_EQ(TranscodeJpeg(AsBytes(baseline), JpegTranscode::kSequential, kMaxPixels, &out),
            TranscodeResult::kUnchanged);
  EXPECT_EQ(out, "");
  EXPECT_EQ(TranscodeJpeg(AsBytes(baseline), JpegTranscode::kKeep, kMaxPixels, &out),
            TranscodeResult::kUnchanged);
  options.multi_scan = true;
  std::string scans = Encode(64, 64, 3, options);
  EXPECT_EQ(TranscodeJpeg(AsBytes(scans), JpegTranscode::kSequential, kMaxPixels, &out),
            TranscodeResult::kRewritten);
  EXPECT_EQ(NumScans(out), 1u);
  ExpectSamePixels(scans, out);
}

TEST(JpegTranscode, OptimizedTablesAreSmaller) {
  std::string file = Encode(320, 240, 3, {}), out;
  ASSERT_EQ(TranscodeJpeg(AsBytes(file), JpegTranscode::kOptimize, kMaxPixels, &out),
            TranscodeResult::kRewritten);
  EXPECT_LT(out.size(), file.size());
  ExpectSamePixels(file, out);
  std::string again;
  EXPECT_EQ(TranscodeJpeg(AsBytes(out), JpegTranscode::kOptimize, kMaxPixels, &again),
            TranscodeResult::kUnchanged);
}

TEST(JpegTranscode, MarkersAreKept) {
  JpegOptions options;
  options.progressive = true;
  std::string file = Encode(40, 30, 3, options);
  const std::string exif("Exif\0\0MM\0*", 10), icc("ICC_PROFILE\0\1\1data", 18);
  file = WithSegment(file, 0xe1, exif + std::string(60000, 'x'));
  file = WithSegment(file, 0xe2, icc);
  file = WithSegment(file, 0xfe, "a comment");
  std::string out;
  ASSERT_EQ(TranscodeJpeg(AsBytes(file), JpegTranscode::kSequential, kMaxPixels, &out),
            TranscodeResult::kRewritten);
  for (const std::string& kept : {exif + std::string(60000, 'x'), icc, std::string("a comment")})
    EXPECT_NE(out.find(kept), std::string::npos) << kept.substr(0, 10);
  EXPECT_EQ(out.find("JFIF"), out.rfind("JFIF"));
}

TEST(JpegTranscode, RgbByAdobesMarkerStaysRgb) {
  JpegOptions options;
  options.rgb = options.progressive = true;
  options.h = options.v = 1;
  std::string file = Encode(40, 30, 3, options), out;
  ASSERT_EQ(TranscodeJpeg(AsBytes(file), JpegTranscode::kSequential, kMaxPixels, &out),
            TranscodeResult::kRewritten);
  ExpectSamePixels(file, out);
}

TEST(JpegTranscode, WhatCannotBeRewrittenIsKept) {
  JpegOptions options;
  options.progressive = true;
  const std::string file = Encode(100, 80, 3, options);
  std::string out;
  auto run = [&](const std::string& bytes, uint64_t max_pixels = kMaxPixels) {
    TranscodeResult result =
        TranscodeJpeg(AsBytes(bytes), JpegTranscode::kSequential, max_pixels, &out);
    EXPECT_EQ(out, "");
    return result;
  };
  EXPECT_EQ(run(file, 7999), TranscodeResult::kCannot);
  EXPECT_EQ(run(file + "trailing"), TranscodeResult::kCannot);
  EXPECT_EQ(run("no image"), TranscodeResult::kNotJpeg);
  EXPECT_EQ(run(""), TranscodeResult::kNotJpeg);
  for (size_t size = 3; size < file.size(); size += 64)
    EXPECT_EQ(run(file.substr(0, size)), TranscodeResult::kCannot) << size;
}

PixelView ViewOf(const TestPixels& pixels) {
  return {pixels.data.data(), size_t{pixels.width} * pixels.channels, pixels.width, pixels.height,
          pixels.channels};
}

TEST(ImageEncoder, PngGivesBackThePixels) {
  for (uint32_t channels : {1u, 3u}) {
    TestPixels pixels = MakePixels(37, 21, channels, 5);
    auto file = EncodeImage(ViewOf(pixels), EncodedFormat::kPng);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    Scratch scratch;
    auto view = DecodeRegion(AsBytes(*file), {0, 0, 37, 21}, channels, kMaxPixels, {}, &scratch);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    for (uint32_t y = 0; y < 21; ++y)
      EXPECT_TRUE(std::equal(view->data + y * view->stride,
                             view->data + y * view->stride + size_t{37} * channels,
                             &pixels.data[size_t{y} * 37 * channels]));
  }
}

TEST(ImageEncoder, JpegIsThatOfLibjpeg) {
  TestPixels pixels = MakePixels(37, 21, 3, 5);
  JpegOptions options;
  options.quality = 90;
  options.h = options.v = 1;
  EXPECT_EQ(EncodeImage(ViewOf(pixels), EncodedFormat::kJpeg, 90).value(),
            EncodeJpeg(pixels, options));
}

TEST(ImageEncoder, PpmIsAHeaderAndThePixels) {
  TestPixels pixels = MakePixels(3, 2, 3, 5);
  EXPECT_EQ(EncodeImage(ViewOf(pixels), EncodedFormat::kPpm).value(),
            "P6\n3 2\n255\n" + std::string(pixels.data.begin(), pixels.data.end()));
  TestPixels grey = MakePixels(3, 2, 1, 5);
  EXPECT_EQ(EncodeImage(ViewOf(grey), EncodedFormat::kPpm).value().substr(0, 3), "P5\n");
}

// The reference is the transform of the same description.
TEST(Thumbnail, IsTheResizeOfTheTransforms) {
  std::string file = Encode(200, 120, 3, {});
  auto transform = CreateTransform(
      R"({"type": "image", "ops": [{"op": "resize", "size": [48, 80]}], "layout": "NHWC"})");
  ASSERT_TRUE(transform.ok()) << transform.status().ToString();
  std::vector<std::byte> expected((*transform)->output().bytes());
  Scratch scratch;
  ASSERT_TRUE((*transform)->Apply(AsBytes(file), {}, {}, &scratch, expected).ok());
  ThumbnailOptions options;
  options.long_side = 80;
  AlignedBuffer memory;
  auto thumbnail = MakeThumbnail(AsBytes(file), {}, options, &scratch, &memory);
  ASSERT_TRUE(thumbnail.ok()) << thumbnail.status().ToString();
  ASSERT_EQ(thumbnail->pixels.width, 80u);
  ASSERT_EQ(thumbnail->pixels.height, 48u);
  EXPECT_EQ(memcmp(thumbnail->pixels.data, expected.data(), expected.size()), 0);
}

TEST(Thumbnail, OfARegionAndNeverEnlarged) {
  std::string file = Encode(200, 120, 3, {});
  Scratch scratch;
  AlignedBuffer memory;
  ThumbnailOptions options;
  options.region = Rect{10, 20, 30, 40};
  auto thumbnail = MakeThumbnail(AsBytes(file), {}, options, &scratch, &memory);
  ASSERT_TRUE(thumbnail.ok());
  EXPECT_EQ(thumbnail->pixels.width, 30u);
  EXPECT_EQ(thumbnail->pixels.height, 40u);
  EXPECT_EQ(thumbnail->image.width, 200u);
  TestPixels whole = ReferenceDecode(file, false);
  for (uint32_t y = 0; y < 40; ++y)
    EXPECT_EQ(memcmp(thumbnail->pixels.data + y * thumbnail->pixels.stride,
                     &whole.data[((20 + y) * 200 + 10) * 3], 90),
              0);
  options.region = Rect{190, 0, 11, 1};
  EXPECT_EQ(MakeThumbnail(AsBytes(file), {}, options, &scratch, &memory).status().code(),
            Code::kOutOfRange);
  options.region = Rect{0, 0, 200, 1};
  options.long_side = 10;
  EXPECT_EQ(MakeThumbnail(AsBytes(file), {}, options, &scratch, &memory)->pixels.height, 1u);
}

std::string RecordOf(const std::string& file, uint32_t crc32c) {
  std::string record;
  SeekPointBuilder().Build(AsBytes(file), crc32c, 8, &record);
  return record;
}

TEST(PixelCheck, SeekDecodeEqualsLibjpeg) {
  PixelChecker checker;
  for (uint32_t channels : {1u, 3u}) {
    for (auto [h, v] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
      JpegOptions options;
      options.h = channels == 1 ? 1 : h;
      options.v = channels == 1 ? 1 : v;
      std::string file = Encode(333, 217, channels, options);
      std::string record = RecordOf(file, Crc32c(AsBytes(file)));
      auto verdict = checker.Check(AsBytes(file), {AsBytes(record), Crc32c(AsBytes(file))}, 1);
      ASSERT_TRUE(verdict.ok()) << verdict.status().ToString();
      EXPECT_EQ(verdict->refusal, SeekRefusal::kNone);
      EXPECT_GE(verdict->num_regions, PixelChecker::kRegions);
      EXPECT_FALSE(verdict->difference.has_value());
    }
  }
}

TEST(PixelCheck, SaysWhyNothingWasCompared) {
  PixelChecker checker;
  JpegOptions options;
  options.progressive = true;
  std::string file = Encode(64, 64, 3, options);
  const uint32_t crc = Crc32c(AsBytes(file));
  std::string record = RecordOf(file, crc);
  auto verdict = checker.Check(AsBytes(file), {AsBytes(record), crc}, 1);
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->refusal, SeekRefusal::kProgressive);
  EXPECT_EQ(verdict->num_regions, 0u);
  EXPECT_EQ(checker.Check(AsBytes(Encode(64, 64, 3, {})), {}, 1)->refusal, SeekRefusal::kNoRecord);
  EXPECT_EQ(checker.Check(AsBytes("\xff\xd8\xff"), {}, 1).status().code(), Code::kDataLoss);
}

TEST(PixelCheck, AnImageBeyondTheLimitIsTooLargeAndNoFailure) {
  std::string file = Encode(64, 64, 3, {});
  std::string record = RecordOf(file, Crc32c(AsBytes(file)));
  auto verdict = PixelChecker(64 * 64 - 1).Check(AsBytes(file), {AsBytes(record), {}}, 1);
  ASSERT_TRUE(verdict.ok()) << verdict.status().ToString();
  EXPECT_EQ(verdict->refusal, SeekRefusal::kTooLarge);
  EXPECT_EQ(verdict->num_regions, 0u);
  EXPECT_EQ(PixelChecker(64 * 64).Check(AsBytes(file), {AsBytes(record), {}}, 1)->refusal,
            SeekRefusal::kNone);
}

}  // namespace
}  // namespace headrace::codec
