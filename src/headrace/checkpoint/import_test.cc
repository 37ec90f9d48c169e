#include "headrace/checkpoint/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/checkpoint/testing/test_run.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ImportTest : public ::testing::Test {
 protected:
  ImportTest() : run_(TestRun::Start(&memory_, "/ckpt").value()) {
    EXPECT_TRUE(memory_.MakeDirectories("/in").ok());
  }

  Status Write(const std::string& name, const std::vector<TestTensor>& tensors) {
    return WriteForeignFile(&memory_, "/in/" + name, tensors);
  }
  Status WriteIndex(const std::string& text) {
    return memory_.WriteAtomically("/in/model.safetensors.index.json", AsBytes(text));
  }
  // Two files and their index, each with half of the state.
  TestState TwoFiles() {
    TestState state = ModelState(6, 24, 11);
    const auto middle = state.tensors.begin() + 3;
    EXPECT_TRUE(Write("a.safetensors", {state.tensors.begin(), middle}).ok());
    EXPECT_TRUE(Write("b.safetensors", {middle, state.tensors.end()}).ok());
    EXPECT_TRUE(WriteIndex(R"({"metadata": {}, "weight_map": {
        "layer.0": "a.safetensors", "layer.1": "a.safetensors", "layer.2": "a.safetensors",
        "layer.3": "b.safetensors", "layer.4": "b.safetensors", "layer.5": "b.safetensors"}})")
                    .ok());
    return state;
  }
  void ExpectRefused(const std::string& path, Code code, const std::string& what) {
    auto report = run_.Import(path, 9);
    EXPECT_EQ(report.status().code(), code) << report.status().ToString();
    EXPECT_THAT(report.status().ToString(), HasSubstr(what));
    EXPECT_TRUE(run_.store()->Read({})->entries.empty());
  }

  MemoryFileSystem memory_;
  TestRun run_;
};

TEST_F(ImportTest, TakesAFileWhateverTheMemory) {
  uint64_t step = 0;
  StatesByStep states;
  for (uint64_t memory_bytes : {64u, 300u, 1000u, 1u << 20}) {
    ++step;
    states[step] = ModelState(8, 24, step);
    ASSERT_TRUE(Write("model.safetensors", states[step].tensors).ok());
    auto report = run_.Import("/in/model.safetensors", step, memory_bytes);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->tensors, 8u);
    auto newest = run_.Check(states);
    ASSERT_TRUE(newest.ok()) << newest.status().ToString();
    EXPECT_EQ(*newest, step);
  }
  // With room for all it is one file, whose names are those of the file that was read.
  EXPECT_EQ((*run_.Newest())->files.size(), 1u);
}

TEST_F(ImportTest, TakesSeveralFilesByTheirIndexOrFolder) {
  const TestState state = TwoFiles();
  const StatesByStep states{{1, state}, {2, state}};
  ASSERT_TRUE(run_.Import("/in/model.safetensors.index.json", 1).ok());
  auto report = run_.Import("/in", 2);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->files, 2u);
  EXPECT_EQ(report->reused_bytes, report->bytes);  // step 1 holds them
  auto newest = run_.Check(states);
  ASSERT_TRUE(newest.ok()) << newest.status().ToString();
  EXPECT_EQ(*newest, 2u);
}

TEST_F(ImportTest, TheSameStepAgainIsAnotherAttempt) {
  const TestState state = TwoFiles();
  ASSERT_TRUE(run_.Import("/in", 1).ok());
  auto again = run_.Import("/in", 1);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->id.attempt, 2u);
}

TEST_F(ImportTest, TheTreeNamesAllTensors) {
  TwoFiles();
  ASSERT_TRUE(run_.Import("/in", 1).ok());
  const std::string tree = (*run_.Newest())->trees.Of(0);
  EXPECT_THAT(tree, AllOf(HasSubstr("\"model\""), HasSubstr("\"layer.5\""),
                          HasSubstr("\"/model/layer.5\"")));
}

TEST_F(ImportTest, RefusesWhatDoesNotFitTogether) {
  const TestState state = TwoFiles();
  ASSERT_TRUE(WriteIndex(R"({"weight_map": {"layer.0": "a.safetensors"}})").ok());
  ExpectRefused("/in/model.safetensors.index.json", Code::kInvalidArgument,
                "layer.1 is in /in/a.safetensors and not in the index");
  ASSERT_TRUE(WriteIndex(R"({"weight_map": {"layer.0": "a.safetensors", "x": "a.safetensors",
      "layer.1": "a.safetensors", "layer.2": "a.safetensors"}})")
                  .ok());
  ExpectRefused("/in/model.safetensors.index.json", Code::kInvalidArgument,
                "x is in the index and not in /in/a.safetensors");
  ASSERT_TRUE(WriteIndex(R"({"weight_map": {"layer.0": "../a.safetensors"}})").ok());
  ExpectRefused("/in", Code::kInvalidArgument, "beside it");
  ASSERT_TRUE(WriteIndex("[]").ok());
  ExpectRefused("/in", Code::kInvalidArgument, "weight_map");
  ASSERT_TRUE(memory_.Remove("/in/model.safetensors.index.json").ok());
  ASSERT_TRUE(Write("c.safetensors", {state.tensors[0]}).ok());
  ExpectRefused("/in", Code::kInvalidArgument,
                "layer.0 is in /in/a.safetensors and in /in/c.safetensors");
}

TEST_F(ImportTest, RefusesWhatIsNoSafetensorsFile) {
  ASSERT_TRUE(memory_.WriteAtomically("/in/x.safetensors", AsBytes(std::string("hello"))).ok());
  ExpectRefused("/in/x.safetensors", Code::kDataLoss, "/in/x.safetensors");
  ExpectRefused("/in/none.safetensors", Code::kNotFound, "none");
  ASSERT_TRUE(memory_.WriteAtomically("/in/x.txt", AsBytes(std::string("hello"))).ok());
  ExpectRefused("/in/x.txt", Code::kInvalidArgument, "none of what can be imported");
}

TEST_F(ImportTest, RefusesElementsThatNoStateHolds) {
  TestTensor packed{"/model/packed", DType::kF4, {16}, std::vector<std::byte>(8)};
  ASSERT_TRUE(Write("x.safetensors", {packed}).ok());
  ExpectRefused("/in/x.safetensors", Code::kInvalidArgument, "packed has elements of type F4");
}

TEST_F(ImportTest, AZombieImportsNothing) {
  TwoFiles();
  ASSERT_TRUE(run_.store()->TakeOver("its successor", {}).ok());
  ExpectRefused("/in", Code::kFailedPrecondition, "its successor");
}

}  // namespace
}  // namespace headrace::checkpoint
