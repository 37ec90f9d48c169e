#include "headrace/checkpoint/tensor_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::checkpoint {
namespace {

TEST(TensorPath, IsAJsonPointer) {
  std::string path;
  for (std::string_view key : {"model", "a/b", "~", "", "layers.0.weight"}) AppendKey(key, &path);
  EXPECT_EQ(path, "/model/a~1b/~0//layers.0.weight");
  EXPECT_THAT(*SplitPath(path), testing::ElementsAre("model", "a/b", "~", "", "layers.0.weight"));
  EXPECT_TRUE(SplitPath("")->empty());
  for (std::string_view wrong : {"model", "/a~", "/a~2"})
    EXPECT_EQ(SplitPath(wrong).status().code(), Code::kInvalidArgument) << wrong;
}

RC_GTEST_PROP(TensorPathProperty, AnyKeysComeBack, (const std::vector<std::string>& keys)) {
  std::string path;
  for (const std::string& key : keys) AppendKey(key, &path);
  RC_ASSERT(*SplitPath(path) == keys);
}

TEST(TensorPath, NamesEntriesAsOtherToolsDo) {
  EXPECT_EQ(*EntryName("/model/layers.0.weight"), "layers.0.weight");
  EXPECT_EQ(*EntryName("/optimizer/state/0/exp_avg"), "state.0.exp_avg");
  EXPECT_EQ(*EntryName("/step"), "step");
  EXPECT_EQ(*EntryName(""), "tensor");
  EXPECT_EQ(*GroupOf("/optimizer/state/0"), "optimizer");
  EXPECT_EQ(*GroupOf(""), "");
  EXPECT_EQ(*GroupOf("/w"), "");
  const std::vector<uint64_t> shape = {4, 6};
  EXPECT_EQ(*EntryName("/model/w", Box::Whole(shape), shape), "w");
  EXPECT_EQ(*EntryName("/model/w", Box({2, 0}, {2, 6}), shape), "w@2,0");
  EXPECT_EQ(*EntryName("/model/w", Box(), {}), "w");
  EXPECT_FALSE(EntryName("w").ok());
}

}  // namespace
}  // namespace headrace::checkpoint
