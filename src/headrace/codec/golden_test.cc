// Pixels against Pillow's, for files of every kind: see tests/compat/codec/make_golden.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/codec/npy.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

std::string ReadGolden(const std::string& name) {
  std::string path = HEADRACE_GOLDEN_DIR;
  path.append("/").append(name);
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

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
