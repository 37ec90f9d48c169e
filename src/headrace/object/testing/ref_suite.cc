#include "headrace/object/testing/ref_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/object/testing/conformance_bench.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

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

// What threads wanted to append, by whether they were told that it was done.
struct Appended {
  Mutex mu;
  std::vector<std::string> done HR_GUARDED_BY(mu), refused HR_GUARDED_BY(mu);
  std::vector<std::string> failures HR_GUARDED_BY(mu);
};

// Appends words to the ref until `times` of them were told to be there. A new word for each try.
void AppendWords(Ref* ref, uint32_t thread, int times, Appended* words) {
  for (int number = 0; times > 0; ++number) {
    auto now = ref->Read(Context());
    std::string word = std::to_string(thread) + "-" + std::to_string(number);
    Status swapped = now.status();
    if (now.ok())
      swapped = ref->Swap(now->version, AsBytes(now->content + word + " "), Context()).status();
    const bool refused = now.ok() && swapped.code() == Code::kFailedPrecondition;
    MutexLock lock(&words->mu);
    if (!swapped.ok() && !refused) return words->failures.push_back(swapped.ToString());
    (refused ? words->refused : words->done).push_back(word);
    times -= refused ? 0 : 1;
  }
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What was told to be done is there, each once; and nothing else, unless answers may be lost: then
// what was refused may be there too.
void NoSwapIsLost(const RefUnderTest& t) {
  constexpr uint32_t kThreads = 4;
  constexpr int kSwaps = 10;
  ASSERT_TRUE(t.open()->Swap("", AsBytes("first "), Context()).ok());
  Appended words;
  RunInThreads(kThreads, [&](uint32_t i) { AppendWords(t.open().get(), i, kSwaps, &words); });
  auto end = t.open()->Read(Context());
  ASSERT_TRUE(end.ok()) << end.status().ToString();
  MutexLock lock(&words.mu);
  EXPECT_THAT(words.failures, IsEmpty());
  EXPECT_EQ(words.done.size(), kThreads * kSwaps);
  std::vector<std::string> there = WordsOf(end->content), expected = {"first"};
  expected.insert(expected.end(), words.done.begin(), words.done.end());
  for (const std::string& word : words.refused)
    if (t.answers_may_be_lost && std::find(there.begin(), there.end(), word) != there.end())
      expected.push_back(word);
  EXPECT_THAT(there, UnorderedElementsAreArray(expected));
}

// Writers of the same bytes are told apart.
void OneOfManyEqualSwapsSucceeds(const RefUnderTest& t) {
  constexpr uint32_t kThreads = 4, kRounds = 3;
  auto version = t.open()->Swap("", AsBytes("0"), Context());
  for (uint32_t round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(version.ok()) << version.status().ToString();
    std::vector<Result<std::string>> results(kThreads, Status(Code::kInternal, "not tried"));
    RunInThreads(kThreads, [&](uint32_t i) {
      results[i] = t.open()->Swap(*version, AsBytes(std::to_string(round)), Context());
    });
    int winners = 0;
    for (const Result<std::string>& result : results) {
      winners += result.ok();
      if (!result.ok()) EXPECT_CODE(result.status(), kFailedPrecondition);
    }
    EXPECT_EQ(winners, 1) << "round " << round;
    auto now = t.open()->Read(Context());
    ASSERT_TRUE(now.ok()) << now.status().ToString();
    EXPECT_EQ(now->content, std::to_string(round));
    version = now->version;
  }
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
    HR_TEST_ROW_(NoSwapIsLost),      HR_TEST_ROW_(OneOfManyEqualSwapsSucceeds),
    HR_TEST_ROW_(HonorsItsContext),  HR_TEST_ROW_(OneOfManyFirstWritersWins),
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
