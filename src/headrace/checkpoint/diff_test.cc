#include "headrace/checkpoint/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "headrace/checkpoint/testing/test_run.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {
namespace {

using ::testing::IsEmpty;

class DiffTest : public ::testing::Test {
 protected:
  DiffTest() : run_(TestRun::Start(&memory_, "/ckpt").value()) {}

  Manifest Save(const TestState& state, uint64_t step) {
    EXPECT_TRUE(run_.Save(state, step).ok());
    return **run_.Newest();
  }
  DiffReport Diff(const Manifest& a, const Manifest& b, uint64_t memory_bytes = 100) {
    DiffProgress progress;
    auto report = DiffCheckpoints({run_.files(), &a}, {run_.files(), &b},
                                  {.memory_bytes = memory_bytes, .threads = 1}, {}, &progress);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(progress.bytes, progress.total_bytes);
    return report.ok() ? *report : DiffReport();
  }

  MemoryFileSystem memory_;
  TestRun run_;
};

// A tensor of ones, cut among two ranks.
void AddOnes(const std::string& path, uint64_t rows, TestState* state) {
  TestTensor tensor{path, DType::kF32, {rows, 3}, std::vector<std::byte>(rows * 12)};
  const float one = 1;
  for (size_t i = 0; i < tensor.bytes.size(); i += 4) std::memcpy(tensor.bytes.data() + i, &one, 4);
  state->cuts.push_back(
      {{Box({0, 0}, {rows / 2, 3}), 0}, {Box({rows / 2, 0}, {rows - rows / 2, 3}), 1}});
  state->tensors.push_back(std::move(tensor));
}

TEST_F(DiffTest, OfTheSameStateReadsNothing) {
  const TestState state = RandomState(20, 2, 24, 3);
  const Manifest a = Save(state, 1), b = Save(state, 2);
  const DiffReport report = Diff(a, b);
  EXPECT_THAT(report.rows, IsEmpty());
  EXPECT_EQ(report.same, 20u);
  EXPECT_EQ(report.read_bytes, 0u);
}

TEST_F(DiffTest, SaysWhichAndByHowMuch) {
  TestState state;
  AddOnes("/model/a", 50, &state);
  AddOnes("/model/b", 50, &state);
  const Manifest a = Save(state, 1);
  const float three = 3;
  std::memcpy(state.tensors[1].bytes.data() + 100, &three, 4);
  std::memcpy(state.tensors[1].bytes.data() + 500, &three, 4);
  const Manifest b = Save(state, 2);
  const DiffReport report = Diff(a, b);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].path, "/model/b");
  EXPECT_EQ(report.rows[0].kind, TensorDiff::Kind::kChanged);
  EXPECT_EQ(report.rows[0].difference.elements, 150u);
  EXPECT_EQ(report.rows[0].difference.changed, 2u);
  EXPECT_DOUBLE_EQ(report.rows[0].difference.max_abs, 2);
  EXPECT_NEAR(report.rows[0].difference.relative(), std::sqrt(8.0 / 150), 1e-12);
  EXPECT_EQ(report.same, 1u);
  EXPECT_EQ(report.read_bytes, 1200u);  // of the one that changed, on both sides
}

TEST_F(DiffTest, AnotherCutIsNoDifference) {
  TestState state;
  AddOnes("/model/a", 50, &state);
  const Manifest a = Save(state, 1);
  state.cuts[0] = {{Box({0, 0}, {50, 1}), 1}, {Box({0, 1}, {50, 2}), 0}};
  const Manifest b = Save(state, 2);
  const DiffReport report = Diff(a, b);
  EXPECT_THAT(report.rows, IsEmpty());
  EXPECT_EQ(report.same, 1u);
  EXPECT_GT(report.read_bytes, 0u);
}

TEST_F(DiffTest, NamesWhatOneSideLacksOrHasAsAnotherType) {
  TestState state;
  AddOnes("/model/a", 10, &state);
  AddOnes("/model/c", 10, &state);
  const Manifest a = Save(state, 1);
  state = {};
  AddOnes("/model/a", 12, &state);
  AddOnes("/model/b", 10, &state);
  const Manifest b = Save(state, 2);
  const DiffReport report = Diff(a, b);
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].kind, TensorDiff::Kind::kOtherType);
  EXPECT_EQ(report.rows[0].a, "F32 [10, 3]");
  EXPECT_EQ(report.rows[0].b, "F32 [12, 3]");
  EXPECT_EQ(report.rows[1].kind, TensorDiff::Kind::kOnlyInB);
  EXPECT_EQ(report.rows[1].path, "/model/b");
  EXPECT_EQ(report.rows[2].kind, TensorDiff::Kind::kOnlyInA);
}

TEST_F(DiffTest, DoesNotTrustDamagedBytes) {
  TestState state;
  AddOnes("/model/a", 5000, &state);
  const Manifest a = Save(state, 1);
  state.tensors[0].bytes[9] ^= std::byte{1};
  const Manifest b = Save(state, 2);
  const std::string path = "/ckpt/" + a.files[0].DataKey();
  std::string bytes = memory_.ReadWhole(path, 1 << 20).value();
  bytes[bytes.size() - 3] ^= 1;
  ASSERT_TRUE(memory_.WriteAtomically(path, AsBytes(bytes)).ok());
  DiffProgress progress;
  EXPECT_EQ(
      DiffCheckpoints({run_.files(), &a}, {run_.files(), &b}, {}, {}, &progress).status().code(),
      Code::kDataLoss);
}

}  // namespace
}  // namespace headrace::checkpoint
