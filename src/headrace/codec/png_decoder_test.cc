#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "headrace/codec/image.h"
#include "headrace/codec/testing/draw_region.h"
#include "headrace/codec/testing/golden_files.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kMaxPixels = 1 << 20;

Result<PixelView> Decode(const std::string& file, const Rect& region, uint32_t channels,
                         Scratch* scratch) {
  return DecodeRegion(AsBytes(file), region, channels, kMaxPixels, {}, scratch);
}

RC_GTEST_PROP(PngRegion, EqualsTheSamePartOfTheWhole, ()) {
  static Scratch scratch, whole_scratch;
  std::string file = ReadGolden(*rc::gen::element<std::string>(
      "rgb.png", "rgba.png", "gray.png", "gray_4bit.png", "bilevel.png", "palette_2bit.png",
      "rgb_16bit.png", "gray_alpha.png", "interlaced.png"));
  uint32_t channels = *rc::gen::element(1u, 3u);
  auto info = ReadImageInfo(AsBytes(file), kMaxPixels, &scratch);
  RC_ASSERT(info.ok());
  Rect r = DrawRegion(info->width, info->height);
  auto whole = Decode(file, {0, 0, info->width, info->height}, channels, &whole_scratch);
  auto part = Decode(file, r, channels, &scratch);
  RC_ASSERT(whole.ok() && part.ok());
  for (uint32_t y = 0; y < r.height; ++y)
    RC_ASSERT(std::memcmp(part->data + y * part->stride,
                          whole->data + (r.y + y) * whole->stride + r.x * channels,
                          size_t{r.width} * channels) == 0);
}

std::string Fails(const std::string& file, Code code) {
  Scratch scratch;
  auto view = Decode(file, {0, 0, 29, 23}, 3, &scratch);
  EXPECT_EQ(view.status().code(), code) << view.status().ToString();
  return std::string(view.status().message());
}

TEST(BadPng, EveryTruncationIsNamed) {
  std::string file = ReadGolden("rgb.png");
  for (size_t size = 8; size < file.size(); ++size) {
    std::string message = Fails(file.substr(0, size), Code::kDataLoss);
    EXPECT_NE(message.find(size < 33 ? "no image header" : "truncated"), std::string::npos)
        << message;
  }
}

TEST(BadPng, EveryChangedByteOfTheDataIsFound) {
  std::string file = ReadGolden("rgb.png");
  size_t data = file.find("IDAT");
  for (size_t at = data; at + 12 < file.size(); at += 7) {
    std::string broken = file;
    broken[at] = static_cast<char>(broken[at] ^ 0x10);
    Fails(broken, Code::kDataLoss);
  }
}

TEST(BadPng, BombsAreRefusedByTheHeader) {
  std::string file = ReadGolden("rgb.png");
  file.replace(16, 8, std::string("\0\0\xff\xff\0\0\xff\xff", 8));
  EXPECT_NE(Fails(file, Code::kResourceExhausted).find("65535 x 65535"), std::string_view::npos);
  file.replace(16, 8, std::string("\xff\xff\xff\xff\0\0\0\1", 8));
  Fails(file, Code::kDataLoss);
  file.replace(16, 8, std::string("\0\0\0\0\0\0\0\1", 8));
  Fails(file, Code::kDataLoss);
}

TEST(BadPng, ALengthPastTheEndIsNamed) {
  std::string file = ReadGolden("rgb.png");
  file.replace(file.find("IDAT") - 4, 4, "\x7f\xff\xff\xff");
  EXPECT_NE(Fails(file, Code::kDataLoss).find("chunk IDAT at byte"), std::string_view::npos);
}

}  // namespace
}  // namespace headrace::codec
