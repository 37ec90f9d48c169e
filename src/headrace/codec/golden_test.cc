// Pixels against Pillow's, for files of every kind: see tests/compat/codec/make_golden.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/codec/npy.h"
#include "headrace/codec/seek_points.h"
#include "headrace/codec/testing/golden_files.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

void CheckCase(const Json& c, Scratch* scratch) {
  std::string file = ReadGolden(std::string(c.Find("file")->AsString()));
  std::string npy = ReadGolden(std::string(c.Find("expected")->AsString()));
  auto want = ParseNpy(AsBytes(npy));
  ASSERT_TRUE(want.ok()) << want.status().ToString();
  auto transform = CreateTransform(c.Find("transform")->Dump());
  ASSERT_TRUE(transform.ok()) << transform.status().ToString();
  std::vector<std::byte> out((*transform)->output().bytes());
  ASSERT_EQ(out.size(), want->data.size());
  DrawKey key;
  if (const Json* words = c.Find("key"))
    key = {words->items()[0].AsUint(), words->items()[1].AsUint(), words->items()[2].AsUint()};
  Status status = (*transform)->Apply(AsBytes(file), {}, key, scratch, out);
  ASSERT_TRUE(status.ok()) << status.ToString();
  int worst = 0;
  size_t different = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    int d = std::abs(std::to_integer<int>(out[i]) - std::to_integer<int>(want->data[i]));
    worst = std::max(worst, d);
    different += d != 0;
  }
  EXPECT_LE(worst, c.Find("max_difference")->AsInt())
      << different << " of " << out.size() << " bytes differ";
}

// NAME.jpg and its record NAME.seek8, made from the format page by make_seek_golden.py.
TEST(Golden, SeekPointsAreAsTheFormatSays) {
  SeekPointBuilder builder;
  size_t num_records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEADRACE_GOLDEN_DIR)) {
    std::string name = entry.path().filename(), extension = entry.path().extension();
    if (extension != ".seek8" && extension != ".seek4") continue;
    SCOPED_TRACE(name);
    std::string file = ReadGolden(entry.path().stem().string() + ".jpg"), record;
    builder.Build(AsBytes(file), Crc32c(AsBytes(file)), extension == ".seek8" ? 8 : 4, &record);
    EXPECT_TRUE(record == ReadGolden(name));
    ++num_records;
  }
  EXPECT_GE(num_records, 20u);
}

TEST(Golden, PixelsEqualPillows) {
  auto list = Json::Parse(ReadGolden("cases.json"));
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  ASSERT_GE(list->Find("cases")->items().size(), 40u);
  Scratch scratch;
  for (const Json& c : list->Find("cases")->items()) {
    SCOPED_TRACE(c.Find("expected")->AsString());
    CheckCase(c, &scratch);
  }
}

}  // namespace
}  // namespace headrace::codec
