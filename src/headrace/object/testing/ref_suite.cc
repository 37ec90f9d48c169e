#include "headrace/object/testing/ref_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include "headrace/object/testing/conformance_bench.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;

void IsNotThereAtFirst(const RefUnderTest& t) {
  auto ref = t.open();
  EXPECT_FALSE(ref->name().empty());
  EXPECT_CODE(ref->Read(Context()).status(), kNotFound);
  EXPECT_CODE(ref->Swap("some version", AsBytes("x"), Context()).status(), kFailedPrecondition);
  EXPECT_CODE(ref->Read(Context()).status(), kNotFound);
}

void IsSetOnce(const RefUnderTest& t) {
  auto ref = t.open(), other = t.open();
  auto first = ref->Swap("", AsBytes("one"), Context());
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_NE(*first, "");
  auto value = other->Read(Context());
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(value->content, "one");
  EXPECT_EQ(value->version, *first);
  Status taken = other->Swap("", AsBytes("two"), Context()).status();
  EXPECT_CODE(taken, kFailedPrecondition);
  EXPECT_THAT(taken.ToString(), HasSubstr(other->name()));
  EXPECT_EQ(ref->Read(Context())->content, "one");
}

void SwapsWhatWasSeen(const RefUnderTest& t) {
  auto ref = t.open(), other = t.open();
  auto first = ref->Swap("", AsBytes("one"), Context());
  ASSERT_TRUE(first.ok());
  auto second = other->Swap(*first, AsBytes("two"), Context());
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_NE(*second, *first);
  EXPECT_CODE(ref->Swap(*first, AsBytes("three"), Context()).status(), kFailedPrecondition);
  EXPECT_EQ(ref->Read(Context())->content, "two");
  EXPECT_TRUE(ref->Swap(*second, AsBytes("three"), Context()).ok());
}

void HoldsAnyBytes(const RefUnderTest& t) {
  auto ref = t.open();
  std::string version;
  for (const std::string& content : {std::string("\0\n\xff", 3), std::string(),
                                     std::string(Ref::kMaxBytes, 'x'), std::string("end")}) {
    auto next = ref->Swap(version, AsBytes(content), Context());
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_TRUE(ref->Read(Context())->content == content);
    version = *next;
  }
  std::string large(Ref::kMaxBytes + 1, 'x');
  EXPECT_CODE(ref->Swap(version, AsBytes(large), Context()).status(), kInvalidArgument);
  EXPECT_EQ(ref->Read(Context())->content, "end");
}

// Each thread adds to a number as often as it succeeds; no addition may be lost.
void NoSwapIsLost(const RefUnderTest& t) {
  constexpr uint32_t kThreads = 4;
  constexpr int kSwaps = 10;
  ASSERT_TRUE(t.open()->Swap("", AsBytes("0"), Context()).ok());
  std::atomic<int> wrong{0};
  RunInThreads(kThreads, [&](uint32_t) {
    auto ref = t.open();
    for (int done = 0; done < kSwaps;) {
      auto now = ref->Read(Context());
      if (!now.ok()) return void(++wrong);
      std::string next = std::to_string(std::stoi(now->content) + 1);
      Code code = ref->Swap(now->version, AsBytes(next), Context()).status().code();
      if (code == Code::kOk)
        ++done;
      else if (code != Code::kFailedPrecondition)
        return void(++wrong);
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(t.open()->Read(Context())->content, std::to_string(kThreads * kSwaps));
}

void OneOfManyFirstWritersWins(const RefUnderTest& t) {
  constexpr uint32_t kThreads = 8;
  std::vector<Status> results(kThreads);
  RunInThreads(kThreads, [&](uint32_t i) {
    results[i] = t.open()->Swap("", AsBytes(std::to_string(i)), Context()).status();
  });
  int winners = 0;
  for (uint32_t i = 0; i < kThreads; ++i) {
    if (!results[i].ok()) {
      EXPECT_CODE(results[i], kFailedPrecondition);
      continue;
    }
    ++winners;
    EXPECT_EQ(t.open()->Read(Context())->content, std::to_string(i));
  }
  EXPECT_EQ(winners, 1);
}

void HonorsItsContext(const RefUnderTest& t) {
  auto ref = t.open();
  Context late;
  late.deadline = Context::Clock::now() - std::chrono::seconds(1);
  EXPECT_CODE(ref->Read(late).status(), kDeadlineExceeded);
  EXPECT_CODE(ref->Swap("", AsBytes("x"), late).status(), kDeadlineExceeded);
  EXPECT_CODE(ref->Read(Context()).status(), kNotFound);
}

struct RefTestRow {
  const char* name;
  void (*run)(const RefUnderTest&);
};
#define HR_TEST_ROW_(function) {#function, function}
constexpr RefTestRow kTests[] = {
    HR_TEST_ROW_(IsNotThereAtFirst), HR_TEST_ROW_(IsSetOnce),
    HR_TEST_ROW_(SwapsWhatWasSeen),  HR_TEST_ROW_(HoldsAnyBytes),
    HR_TEST_ROW_(NoSwapIsLost),      HR_TEST_ROW_(OneOfManyFirstWritersWins),
    HR_TEST_ROW_(HonorsItsContext),
};

class RefSuiteTest : public ::testing::Test {
 public:
  RefSuiteTest(void (*run)(const RefUnderTest&), std::function<RefUnderTest()> make)
      : run_(run), make_(std::move(make)) {}
  void TestBody() override { run_(make_()); }

 private:
  void (*run_)(const RefUnderTest&);
  std::function<RefUnderTest()> make_;
};

}  // namespace

bool RegisterRefSuite(const std::string& name, const std::function<RefUnderTest()>& make) {
  std::string suite = "RefSuite/" + name;
  for (const RefTestRow& test : kTests)
    ::testing::RegisterTest(
        suite.c_str(), test.name, nullptr, nullptr, __FILE__, __LINE__,
        [run = test.run, make]() -> ::testing::Test* { return new RefSuiteTest(run, make); });
  return true;
}

}  // namespace headrace::object
