#include "headrace/codec/exif.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "headrace/codec/image.h"
#include "headrace/codec/orientation.h"
#include "headrace/codec/testing/golden_files.h"
#include "headrace/codec/testing/test_images.h"

namespace headrace::codec {
namespace {

std::string Number(uint64_t value, size_t bytes, bool big) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i)
    text += static_cast<char>(value >> 8 * (big ? bytes - 1 - i : i));
  return text;
}

struct Entry {
  uint32_t tag, type, count;
  std::string value;
};

std::string TiffOf(const std::vector<Entry>& entries, bool big, uint32_t directory = 8) {
  std::string text = big ? std::string("MM\0*", 4) : std::string("II*\0", 4);
  text += Number(directory, 4, big);
  text.resize(directory, 'x');
  text += Number(entries.size(), 2, big);
  for (const Entry& e : entries) {
    std::string value = e.value;
    value.resize(4, '\0');
    text += Number(e.tag, 2, big) + Number(e.type, 2, big) + Number(e.count, 4, big) + value;
  }
  return text + std::string(4, '\0');
}

int Read(const std::string& exif) { return ReadExifOrientation(AsBytes(exif)); }

TEST(Exif, ReadsEachValueInBothByteOrders) {
  for (bool big : {false, true})
    for (uint32_t o = 1; o <= 8; ++o) {
      std::string shorter = TiffOf({{0x10f, 2, 1, "a"}, {0x112, 3, 1, Number(o, 2, big)}}, big);
      EXPECT_EQ(Read(shorter), static_cast<int>(o));
      EXPECT_EQ(Read(std::string("Exif\0\0", 6) + shorter), static_cast<int>(o));
      EXPECT_EQ(Read(TiffOf({{0x112, 4, 1, Number(o, 4, big)}}, big, 90)), static_cast<int>(o));
    }
}

TEST(Exif, NonsenseIsUpright) {
  auto six = Number(6, 2, false);
  for (uint32_t value : {0u, 9u, 256u, 65535u})
    EXPECT_EQ(Read(TiffOf({{0x112, 3, 1, Number(value, 2, false)}}, false)), 1) << value;
  EXPECT_EQ(Read(TiffOf({{0x112, 3, 2, six}}, false)), 1);  // two values
  EXPECT_EQ(Read(TiffOf({{0x112, 2, 1, six}}, false)), 1);  // a text
  EXPECT_EQ(Read(TiffOf({}, false)), 1);
  EXPECT_EQ(Read("II+"), 1);
  EXPECT_EQ(Read(""), 1);
  std::string good = TiffOf({{0x112, 3, 1, six}}, false);
  EXPECT_EQ(Read(good), 6);
  for (size_t size = 0; size < 8 + 2 + 12; ++size) EXPECT_EQ(Read(good.substr(0, size)), 1) << size;
  for (uint64_t far : {uint64_t{good.size()}, uint64_t{0xfffffff0}, uint64_t{0xffffffff}}) {
    std::string lying = good;
    lying.replace(4, 4, Number(far, 4, false));
    EXPECT_EQ(Read(lying), 1);
  }
  // More entries claimed than there are: those that are there count.
  std::string many = good;
  many.replace(8, 2, Number(65535, 2, false));
  EXPECT_EQ(Read(many), 6);
}

TEST(Exif, TheLastOfTwoTagsCounts) {
  EXPECT_EQ(
      Read(TiffOf({{0x112, 3, 1, Number(6, 2, true)}, {0x112, 3, 1, Number(8, 2, true)}}, true)),
      8);
}

TEST(FindExif, StopsAtTheImageData) {
  std::string six = std::string("Exif\0\0", 6) + TiffOf({{0x112, 3, 1, Number(6, 2, true)}}, true);
  std::string segment = "\xff\xe1" + Number(six.size() + 2, 2, true) + six;
  std::string jpeg = EncodeJpeg(MakePixels(20, 10, 3, 1), {}), before = jpeg, after = jpeg;
  before.insert(2, segment);
  after.insert(jpeg.find("\xff\xda"), "\xff\xda" + Number(2, 2, true) + segment);
  EXPECT_EQ(AsText(FindExif(ImageFormat::kJpeg, AsBytes(before))), six);
  EXPECT_TRUE(FindExif(ImageFormat::kJpeg, AsBytes(after)).empty());
  // Other APP1 segments and padding come before it.
  std::string xmp = jpeg;
  xmp.insert(2, std::string("\xff\xe1\0\6http\xff\xff", 10) + segment);
  EXPECT_EQ(AsText(FindExif(ImageFormat::kJpeg, AsBytes(xmp))), six);
  for (size_t size = 2; size < 2 + segment.size(); ++size)
    EXPECT_TRUE(FindExif(ImageFormat::kJpeg, AsBytes(before.substr(0, size))).empty());
}

TEST(FindExif, WebpMustAnnounceIt) {
  std::string file = ReadGolden("turned_6.webp");
  EXPECT_EQ(ReadExifOrientation(FindExif(ImageFormat::kWebp, AsBytes(file))), 6);
  file[20] = static_cast<char>(file[20] & ~0x08);
  EXPECT_TRUE(FindExif(ImageFormat::kWebp, AsBytes(file)).empty());
}

TEST(ExifOrientation, TheHeaderIsReadUpright) {
  Scratch scratch;
  for (int o = 1; o <= 8; ++o) {
    std::string file = ReadGolden("turned_" + std::to_string(o) + ".jpg");
    auto upright = ReadImageInfo(AsBytes(file), 1 << 20, &scratch);
    auto stored = ReadImageInfo(AsBytes(file), 1 << 20, &scratch, ExifOrientation::kIgnore);
    ASSERT_TRUE(upright.ok() && stored.ok());
    EXPECT_EQ(upright->orientation, o);
    EXPECT_EQ(upright->width, o < 5 ? 37u : 26u);
    EXPECT_EQ(upright->height, o < 5 ? 26u : 37u);
    EXPECT_EQ(stored->orientation, 1);
    EXPECT_EQ(stored->width, 37u);
  }
}

// A region of the upright image equals that part of the whole upright image.
RC_GTEST_PROP(ExifOrientation, RegionsAreOfTheUprightImage, ()) {
  static Scratch scratch, other;
  const char* kind = *rc::gen::element(".jpg", ".png", ".webp");
  int o = *rc::gen::element(3, 6, 8);
  std::string file = ReadGolden("turned_" + std::to_string(o) + kind);
  auto info = ReadImageInfo(AsBytes(file), 1 << 20, &scratch);
  RC_ASSERT(info.ok());
  Rect r;
  r.x = *rc::gen::inRange(0u, info->width);
  r.y = *rc::gen::inRange(0u, info->height);
  r.width = *rc::gen::inRange(1u, info->width - r.x + 1);
  r.height = *rc::gen::inRange(1u, info->height - r.y + 1);
  uint32_t channels = *rc::gen::element(1u, 3u);
  Rect all{0, 0, info->width, info->height};
  auto part = DecodeRegion(AsBytes(file), r, channels, 1 << 20, {}, &scratch);
  auto whole = DecodeRegion(AsBytes(file), all, channels, 1 << 20, {}, &other);
  RC_ASSERT(part.ok() && whole.ok());
  RC_ASSERT(part->width == r.width && part->height == r.height);
  for (uint32_t y = 0; y < r.height; ++y)
    for (uint32_t i = 0; i < r.width * channels; ++i)
      RC_ASSERT(part->data[y * part->stride + i] ==
                whole->data[(r.y + y) * whole->stride + r.x * channels + i]);
}

}  // namespace
}  // namespace headrace::codec
