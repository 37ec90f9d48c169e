#include "headrace/codec/webp_decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string>

#include "headrace/codec/image.h"
#include "headrace/codec/testing/draw_region.h"
#include "headrace/codec/testing/golden_files.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kMaxPixels = 1 << 20;

// libwebp is told the part to decode; its upsampling and loop filters look around it.
RC_GTEST_PROP(WebpRegion, EqualsTheSamePartOfTheWhole, ()) {
  static Scratch scratch, whole_scratch;
  std::string file = ReadGolden(*rc::gen::element<std::string>(
      "lossy.webp", "lossy_alpha.webp", "lossy_coarse.webp", "lossy_simple_filter.webp",
      "lossless.webp", "lossless_alpha.webp", "lossless_palette.webp", "one_pixel.webp"));
  uint32_t channels = *rc::gen::element(1u, 3u);
  auto info = ReadImageInfo(AsBytes(file), kMaxPixels, &scratch);
  RC_ASSERT(info.ok());
  Rect r = DrawRegion(info->width, info->height), all{0, 0, info->width, info->height};
  auto whole = DecodeRegion(AsBytes(file), all, channels, kMaxPixels, {}, &whole_scratch);
  auto part = DecodeRegion(AsBytes(file), r, channels, kMaxPixels, {}, &scratch);
  RC_ASSERT(whole.ok() && part.ok());
  for (uint32_t y = 0; y < r.height; ++y)
    RC_ASSERT(std::memcmp(part->data + y * part->stride,
                          whole->data + (r.y + y) * whole->stride + r.x * channels,
                          size_t{r.width} * channels) == 0);
}

TEST(WebpInfo, ReadsTheHeader) {
  Scratch scratch;
  auto info = ReadImageInfo(AsBytes(ReadGolden("lossy.webp")), kMaxPixels, &scratch);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->format, ImageFormat::kWebp);
  EXPECT_EQ(info->width, 45u);
  EXPECT_EQ(info->height, 35u);
  EXPECT_EQ(info->channels, 3u);
  EXPECT_EQ(
      ReadImageInfo(AsBytes(ReadGolden("lossless_alpha.webp")), kMaxPixels, &scratch)->channels,
      4u);
}

std::string Fails(const std::string& file, Code code, uint64_t max_pixels = kMaxPixels) {
  Scratch scratch;
  auto view = DecodeRegion(AsBytes(file), {0, 0, 1, 1}, 3, max_pixels, {}, &scratch);
  EXPECT_EQ(view.status().code(), code) << view.status().ToString();
  return std::string(view.status().message());
}

TEST(BadWebp, EveryTruncationFailsForEveryRegion) {
  for (const char* name : {"lossy.webp", "lossless.webp", "lossy_alpha.webp"}) {
    std::string file = ReadGolden(name);
    for (size_t size = 12; size < file.size(); ++size)
      EXPECT_NE(Fails(file.substr(0, size), Code::kDataLoss).find("truncated"), std::string::npos);
  }
}

TEST(BadWebp, TruncatedDataInAWholeContainer) {
  std::string file = ReadGolden("lossy.webp");
  file.resize(file.size() / 2 & ~size_t{1});
  uint32_t riff = static_cast<uint32_t>(file.size() - 8), chunk = riff - 12;
  std::memcpy(&file[4], &riff, 4);
  std::memcpy(&file[16], &chunk, 4);
  Scratch scratch;
  auto view = DecodeRegion(AsBytes(file), {0, 0, 45, 35}, 3, kMaxPixels, {}, &scratch);
  EXPECT_EQ(view.status().code(), Code::kDataLoss) << view.status().ToString();
}

TEST(BadWebp, AnimationsAreRefused) {
  EXPECT_NE(Fails(ReadGolden("animated.webp"), Code::kUnimplemented).find("animated"),
            std::string::npos);
}

TEST(BadWebp, BombsAreRefusedByTheHeader) {
  for (const char* name : {"lossy.webp", "lossless.webp"})
    EXPECT_NE(Fails(ReadGolden(name), Code::kResourceExhausted, 45 * 35 - 1).find("45 x 35"),
              std::string::npos);
  // 16383 x 16383 in the frame header of lossy data: 20 bytes of RIFF and chunk headers, frame tag,
  // start code.
  std::string file = ReadGolden("lossy.webp");
  file.replace(26, 4, "\xff\x3f\xff\x3f");
  EXPECT_NE(Fails(file, Code::kResourceExhausted).find("16383 x 16383"), std::string::npos);
}

TEST(BadWebp, BytesBehindTheFileAreHarmless) {
  Scratch scratch;
  std::string file = ReadGolden("lossy.webp") + std::string(33, 'x');
  EXPECT_TRUE(DecodeRegion(AsBytes(file), {0, 0, 45, 35}, 3, kMaxPixels, {}, &scratch).ok());
}

RC_GTEST_PROP(BadWebp, DamageIsHarmless, ()) {
  static Scratch scratch;
  std::string file = ReadGolden(
      *rc::gen::element<std::string>("lossy.webp", "lossless_alpha.webp", "lossy_alpha.webp"));
  int changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes; ++i)
    file[*rc::gen::inRange<size_t>(12, file.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
  auto info = ReadImageInfo(AsBytes(file), kMaxPixels, &scratch);
  if (!info.ok()) return;
  Rect all{0, 0, info->width, info->height};
  (void)DecodeRegion(AsBytes(file), all, 3, kMaxPixels, {}, &scratch).ok();  // either way
}

}  // namespace
}  // namespace headrace::codec
