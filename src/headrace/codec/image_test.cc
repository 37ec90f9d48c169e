// Regions against whole images, for every file whose pixels golden_test.cc holds to Pillow's.
#include "headrace/codec/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/keyed_random.h"
#include "headrace/codec/testing/golden_files.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kMaxPixels = 1 << 20;

Rect DrawRect(KeyedRandom* random, const ImageInfo& info) {
  auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random->NextBelow(bound)); };
  Rect r{below(info.width), below(info.height), 0, 0};
  r.width = 1 + below(info.width - r.x);
  r.height = 1 + below(info.height - r.y);
  return r;
}

void CheckRegions(const std::string& file, uint32_t channels) {
  Scratch scratch, whole_scratch;
  auto info = ReadImageInfo(AsBytes(file), kMaxPixels, &scratch);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  Rect all{0, 0, info->width, info->height};
  auto whole = DecodeRegion(AsBytes(file), all, channels, kMaxPixels, {}, &whole_scratch);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  KeyedRandom random(HashKey(channels, file.size()));
  for (int i = 0; i < 60; ++i) {
    Rect r = DrawRect(&random, *info);
    auto part = DecodeRegion(AsBytes(file), r, channels, kMaxPixels, {}, &scratch);
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    for (uint32_t y = 0; y < r.height; ++y)
      ASSERT_EQ(std::memcmp(part->data + y * part->stride,
                            whole->data + (r.y + y) * whole->stride + r.x * channels,
                            size_t{r.width} * channels),
                0)
          << r.width << " x " << r.height << " at " << r.x << ", " << r.y << ": row " << y;
  }
}

TEST(Region, EqualsTheSamePartOfTheWholeForEveryKindOfFile) {
  auto list = Json::Parse(ReadGolden("cases.json"));
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  std::set<std::string> names;
  for (const Json& c : list->Find("cases")->items()) names.emplace(c.Find("file")->AsString());
  EXPECT_GE(names.size(), 90u);
  for (const std::string& name : names)
    for (uint32_t channels : {1u, 3u}) {
      SCOPED_TRACE(name);
      CheckRegions(ReadGolden(name), channels);
    }
}

}  // namespace
}  // namespace headrace::codec
