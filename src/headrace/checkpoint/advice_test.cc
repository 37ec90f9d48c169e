#include "headrace/checkpoint/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace headrace::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

// Ten saves, each published `interval_s` after the one before, the last ones of epoch 2.
Catalog SavesEvery(uint64_t interval_s) {
  Catalog catalog;
  for (uint64_t i = 0; i < 10; ++i) {
    CatalogEntry entry;
    entry.id = {i * 100, i < 5 ? 1u : 2u, 1};
    entry.published_ns = static_cast<int64_t>((1000 + i * interval_s) * kSecond);
    entry.stall_ns = 2 * kSecond;
    entry.save_ns = 60 * kSecond;
    if (i == 5) entry.restore_ns = 30 * kSecond;
    catalog.entries.push_back(entry);
  }
  return catalog;
}

TEST(Advice, TakesTheTimesFromTheStore) {
  const MeasuredTimes times = TimesIn(SavesEvery(600));
  EXPECT_EQ(times.saves, 10u);
  EXPECT_DOUBLE_EQ(times.stall, 2);
  EXPECT_DOUBLE_EQ(times.durable, 60);
  EXPECT_DOUBLE_EQ(times.restore, 30);
  EXPECT_DOUBLE_EQ(times.interval, 600);
}

TEST(Advice, IsYoungsFormulaAndCountsTheRestore) {
  auto advice = AdviseSaves(SavesEvery(600), {.mtbf = 10000, .restart = 100});
  ASSERT_TRUE(advice.ok()) << advice.status().ToString();
  EXPECT_NEAR(advice->advice.interval, std::sqrt(2 * 2 * 10000.0), 1e-6);
  EXPECT_DOUBLE_EQ(advice->inputs.failures[0].restart, 130);
  EXPECT_LT(advice->present_goodput, advice->advice.expected_goodput);
  EXPECT_EQ(advice->warning, "");
  EXPECT_THAT(advice->Text(), HasSubstr("measured in 10 checkpoints"));
  EXPECT_THAT(advice->Text(), HasSubstr("sqrt("));
}

TEST(Advice, WarnsWhenSavesComeFasterThanTheyDrain) {
  auto advice = AdviseSaves(SavesEvery(30), {.mtbf = 10000});
  ASSERT_TRUE(advice.ok());
  EXPECT_THAT(advice->Text(), HasSubstr("Warning"));
  // The one that is asked about counts, not the measured one.
  advice = AdviseSaves(SavesEvery(30), {.mtbf = 10000, .interval = 61});
  ASSERT_TRUE(advice.ok());
  EXPECT_EQ(advice->warning, "");
}

TEST(Advice, LightSavesAndOldStoresDoNotCount) {
  Catalog catalog = SavesEvery(600);
  for (CatalogEntry& entry : catalog.entries) entry.kind = "light";
  EXPECT_EQ(AdviseSaves(catalog, {.mtbf = 1}).status().code(), Code::kFailedPrecondition);
  catalog = SavesEvery(600);
  for (CatalogEntry& entry : catalog.entries) entry.stall_ns = 0;
  EXPECT_EQ(AdviseSaves(catalog, {.mtbf = 1}).status().code(), Code::kFailedPrecondition);
}

TEST(Advice, RefusesWhatMakesNoSense) {
  EXPECT_EQ(AdviseSaves(SavesEvery(600), {.mtbf = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AdviseSaves(SavesEvery(600), {.mtbf = NAN}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AdviseSaves(SavesEvery(600), {.mtbf = 1, .restart = -1}).status().code(),
            Code::kInvalidArgument);
}

TEST(Advice, TheCatalogKeepsTheTimes) {
  Catalog catalog = SavesEvery(600);
  for (CatalogEntry& entry : catalog.entries) {
    entry.manifest = "manifests/x";
    entry.manifest_hash = {1, 2};
  }
  auto again = Catalog::FromJson(catalog.ToJson(), "test");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->entries, catalog.entries);
}

}  // namespace
}  // namespace headrace::checkpoint
