#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "headrace/loader/plan/batch_plan.h"

namespace headrace::loader {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LoaderState Sample() {
  LoaderState state;
  state.dataset_version = "abc123";
  state.seed = 7;
  state.epoch = 3;
  state.next_position = 640;
  state.global_batch = 64;
  state.lanes = 8;
  state.window_shards = 4;
  return state;
}

auto Tie(const LoaderState& s) {
  return std::tie(s.dataset_version, s.seed, s.epoch, s.next_position, s.global_batch, s.shuffle,
                  s.lanes, s.window_shards, s.tail);
}

RC_GTEST_PROP(LoaderStateProperty, JsonRoundTrip, ()) {
  LoaderState state;
  state.dataset_version = fmt::format("v{}", *rc::gen::arbitrary<uint64_t>());
  state.seed = *rc::gen::arbitrary<uint64_t>();
  state.epoch = *rc::gen::arbitrary<uint64_t>();
  state.global_batch = *rc::gen::inRange<uint64_t>(1, 5000);
  state.next_position = state.global_batch * *rc::gen::inRange<uint64_t>(0, 1'000'000'000'000);
  state.shuffle = *rc::gen::arbitrary<bool>();
  state.lanes = *rc::gen::inRange<uint32_t>(1, UINT32_MAX);
  state.window_shards = *rc::gen::inRange<uint32_t>(1, UINT32_MAX);
  state.tail = *rc::gen::element(Tail::kDrop, Tail::kPad, Tail::kUneven);
  const auto read = LoaderState::FromJson(state.ToJson());
  RC_ASSERT(read.ok());
  RC_ASSERT(Tie(*read) == Tie(state));
}

TEST(LoaderState, ExtremesSurviveJson) {
  LoaderState state = Sample();
  state.seed = state.epoch = UINT64_MAX;
  const auto read = LoaderState::FromJson(state.ToJson());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->seed, UINT64_MAX);
  EXPECT_EQ(read->epoch, UINT64_MAX);
}

TEST(LoaderState, TheTextIsTheDocumentedOne) {
  EXPECT_EQ(Sample().ToJson(),
            R"({"format": "headrace-loader-state", "version": 1, "dataset_version": "abc123", )"
            R"("seed": 7, "epoch": 3, "next_position": 640, "global_batch": 64, "shuffle": true, )"
            R"("lanes": 8, "window_shards": 4, "tail": "drop"})");
}

TEST(LoaderState, FitsAnyWorldAndItsOwnSettings) {
  LoaderState here = Sample();
  here.epoch = 0;
  here.next_position = 0;
  EXPECT_TRUE(Sample().CheckFits(here).ok());
}

// Changes one setting; the message names both values.
template <typename Change>
std::string Refusal(Change change) {
  LoaderState here = Sample();
  change(&here);
  const Status status = Sample().CheckFits(here);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  return std::string(status.message());
}

TEST(LoaderState, EveryMismatchIsRefusedWithBothValues) {
  EXPECT_THAT(Refusal([](LoaderState* s) { s->dataset_version = "def"; }),
              HasSubstr("the dataset version is abc123 in the state and def here"));
  EXPECT_THAT(Refusal([](LoaderState* s) { s->seed = 9; }),
              HasSubstr("seed is 7 in the state and 9 here"));
  EXPECT_THAT(Refusal([](LoaderState* s) { s->shuffle = false; }),
              HasSubstr("shuffle is true in the state and false here"));
  EXPECT_THAT(Refusal([](LoaderState* s) { s->lanes = 16; }),
              HasSubstr("lanes is 8 in the state and 16 here"));
  EXPECT_THAT(Refusal([](LoaderState* s) { s->window_shards = 5; }),
              HasSubstr("window_shards is 4 in the state and 5 here"));
  EXPECT_THAT(Refusal([](LoaderState* s) { s->tail = Tail::kPad; }),
              HasSubstr("tail is drop in the state and pad here"));
  EXPECT_THAT(
      Refusal([](LoaderState* s) { s->global_batch = 100; }),
      AllOf(HasSubstr("the global batch size is 64 in the state and 100 here"), HasSubstr("640")));
}

TEST(LoaderState, SeveralMismatchesAreNamedAtOnce) {
  EXPECT_THAT(Refusal([](LoaderState* s) {
                s->seed = 8;
                s->lanes = 2;
              }),
              AllOf(HasSubstr("seed is 7"), HasSubstr("lanes is 8")));
}

TEST(LoaderState, AnotherBatchSizeFitsOnABorder) {
  LoaderState here = Sample();
  here.global_batch = 128;  // 640 = 5 * 128
  EXPECT_TRUE(Sample().CheckFits(here).ok());
}

TEST(LoaderState, LanesDoNotMatterWithoutShuffle) {
  LoaderState state = Sample(), here = Sample();
  state.shuffle = here.shuffle = false;
  here.lanes = 1;
  EXPECT_TRUE(state.CheckFits(here).ok());
}

// The text of Sample() with one part replaced.
std::string Altered(const std::string& from, const std::string& to) {
  std::string text = Sample().ToJson();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(LoaderState, RefusesMalformedText) {
  struct Bad {
    std::string text, says;
  };
  const std::vector<Bad> all = {
      {"", "reading the loader state"},
      {"{", "reading the loader state"},
      {"[]", "headrace-loader-state"},
      {"null", "headrace-loader-state"},
      {"{}", "headrace-loader-state"},
      {Altered("headrace-loader-state", "other"), "headrace-loader-state"},
      {Altered("\"version\": 1", "\"version\": 0"), "version"},
      {Altered("\"version\": 1", "\"version\": \"1\""), "version"},
      {Altered("\"abc123\"", "\"\""), "dataset_version"},
      {Altered("\"abc123\"", "5"), "dataset_version"},
      {Altered("\"seed\": 7, ", ""), "seed"},
      {Altered("\"seed\": 7", "\"seed\": -1"), "seed"},
      {Altered("\"seed\": 7", "\"seed\": 1.5"), "seed"},
      {Altered("\"seed\": 7", "\"seed\": 99999999999999999999"), "seed"},
      {Altered("\"epoch\": 3", "\"epoch\": null"), "epoch"},
      {Altered("640", "641"), "multiple of global_batch (64), found 641"},
      {Altered("640", "9223372036854775808"), "next_position"},
      {Altered("\"global_batch\": 64", "\"global_batch\": 0"), "global_batch"},
      {Altered("\"global_batch\": 64", "\"global_batch\": 4294967296"), "global_batch"},
      {Altered("true", "1"), "shuffle: expected true or false, found 1"},
      {Altered("\"shuffle\": true,", ""), "shuffle: expected true or false, found nothing"},
      {Altered("\"lanes\": 8", "\"lanes\": 0"), "lanes"},
      {Altered("\"lanes\": 8", "\"lanes\": 4294967296"), "lanes"},
      {Altered("\"window_shards\": 4", "\"window_shards\": 0"), "window_shards"},
      {Altered("\"drop\"", "\"dorp\""), "drop, pad or uneven; found 'dorp'"},
      {Sample().ToJson() + "x", "reading the loader state"},
  };
  for (const Bad& bad : all) {
    const auto state = LoaderState::FromJson(bad.text);
    ASSERT_FALSE(state.ok()) << bad.text;
    EXPECT_EQ(state.status().code(), Code::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(state.status().message()), HasSubstr(bad.says)) << bad.text;
  }
}

TEST(LoaderState, RefusesANewerVersion) {
  const auto state = LoaderState::FromJson(Altered("\"version\": 1", "\"version\": 2"));
  EXPECT_EQ(state.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(state.status().message()),
              HasSubstr("version 2, and this program reads up to 1"));
}

TEST(LoaderState, IgnoresMembersItDoesNotKnow) {
  EXPECT_TRUE(LoaderState::FromJson(Altered("\"seed\": 7", "\"seed\": 7,\"note\": [1]")).ok());
}

}  // namespace
}  // namespace headrace::loader
