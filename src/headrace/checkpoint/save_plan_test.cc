#include "headrace/checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "headrace/checkpoint/safetensors.h"

namespace headrace::checkpoint {
namespace {

using ::testing::HasSubstr;

SavePlan::Item Item(const std::string& path, const std::string& dtype, uint64_t elements) {
  return {.path = path, .dtype = dtype, .shape = {elements}, .offset = {}, .length = {}};
}

TEST(SavePlan, LiesInMemoryAsInTheFiles) {
  const std::vector<SavePlan::Item> items = {
      Item("/model/a", "U8", 3),      Item("/optimizer/a", "F32", 1000), Item("/model/b", "F32", 5),
      Item("/model/empty", "F32", 0), Item("/model/c", "BF16", 7),       Item("/model/d", "F64", 2),
      Item("/step", "I64", 1)};
  auto plan = SavePlan::Create(items);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  std::vector<std::byte> memory((*plan)->total_bytes());
  const RankSave save = (*plan)->Make(memory);
  ASSERT_EQ(save.boxes.size(), items.size());
  std::vector<std::string> paths;
  const std::byte* end = nullptr;
  std::string group;
  for (const SavedBox& box : save.boxes) {
    const std::string path(save.tensors.path(box.tensor));
    paths.push_back(path);
    const std::string key = path.substr(0, path.find('/', 1));
    const auto offset = static_cast<uint64_t>(box.data.data() - memory.data());
    // Another file begins where direct writes do; inside one there are no holes.
    if (key != group) {
      EXPECT_EQ(offset % kDataAlignment, 0u) << path;
    } else {
      EXPECT_EQ(box.data.data(), end) << path;
    }
    EXPECT_EQ(offset % (BitsOf(save.tensors.dtype(box.tensor)) / 8), 0u) << path;
    group = key;
    end = box.data.data() + box.data.size();
    ASSERT_LE(offset + box.data.size(), memory.size());
  }
  EXPECT_THAT(paths, ::testing::ElementsAre("/step", "/model/d", "/model/b", "/model/empty",
                                            "/model/c", "/model/a", "/optimizer/a"));
}

TEST(SavePlan, LiesAsGivenWhereThatIsWanted) {
  const std::vector<SavePlan::Item> items = {Item("/m/a", "U8", 65), Item("/o/b", "F32", 1),
                                             Item("/m/c", "F64", 8)};
  auto plan = SavePlan::Create(items, SavePlan::Layout::kAsGiven);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->offset(0), 0u);
  EXPECT_EQ((*plan)->offset(1), 128u);
  EXPECT_EQ((*plan)->offset(2), 192u);
  EXPECT_EQ((*plan)->total_bytes(), 256u);
}

TEST(SavePlan, CopiesEachItemToItsPlace) {
  const std::vector<SavePlan::Item> items = {Item("/m/a", "U8", 3), Item("/m/b", "F32", 2),
                                             Item("/m/c", "U8", 2)};
  auto plan = SavePlan::Create(items);
  ASSERT_TRUE(plan.ok());
  const std::string a = "abc", b = "defghijk", c = "lm";
  const std::vector<uint64_t> addresses{reinterpret_cast<uint64_t>(a.data()),
                                        reinterpret_cast<uint64_t>(b.data()), 0};
  std::vector<std::byte> memory((*plan)->total_bytes());
  (*plan)->CopyIn(addresses, memory, 2);
  // The caller's own.
  std::memcpy(memory.data() + (*plan)->offset(2), c.data(), (*plan)->bytes(2));
  for (const auto& [item, text] : {std::pair(0, a), std::pair(1, b), std::pair(2, c)}) {
    const auto i = static_cast<size_t>(item);
    EXPECT_EQ(AsText(Bytes(memory).subspan((*plan)->offset(i), (*plan)->bytes(i))), text);
  }
}

TEST(SavePlan, RefusesWhatDoesNotFit) {
  for (const auto& [items, what] : std::vector<std::pair<std::vector<SavePlan::Item>, std::string>>{
           {{Item("/m/a", "F7", 1)}, "F7"},
           {{Item("no path", "F32", 1)}, "no path"},
           {{Item("/m/a", "F32", 1), Item("/m/a", "F32", 2)}, "twice"}}) {
    auto plan = SavePlan::Create(items);
    ASSERT_FALSE(plan.ok()) << what;
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(plan.status().ToString(), HasSubstr(what));
  }
}

}  // namespace
}  // namespace headrace::checkpoint
