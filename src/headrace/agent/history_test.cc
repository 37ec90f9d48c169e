#include "headrace/agent/history.h"

#include <gtest/gtest.h>

namespace headrace::agent {
namespace {

HistoryPoint PointAt(double end_s, float samples, float seconds = 2) {
  HistoryPoint point;
  point.end_s = end_s;
  point.seconds = seconds;
  point.samples = samples;
  return point;
}

float SamplesOf(const std::vector<HistoryPoint>& points) {
  float sum = 0;
  for (const HistoryPoint& point : points) sum += point.samples;
  return sum;
}

TEST(History, FineWhereItReachesElseCoarse) {
  History history({.fine_points = 30, .coarse_s = 10, .coarse_points = 100});
  for (int i = 1; i <= 100; ++i) history.Add(PointAt(2.0 * i, 1));
  // The last minute is there in full.
  const auto fine = history.Since(140);
  ASSERT_EQ(fine.size(), 30u);
  EXPECT_EQ(fine.front().end_s, 142);
  EXPECT_EQ(fine.back().end_s, 200);
  // Before that in coarse points, of which none is lost and none is counted twice.
  const auto coarse = history.Since(0);
  EXPECT_EQ(coarse.size(), 20u);
  EXPECT_EQ(coarse.front().seconds, 10);
  EXPECT_EQ(SamplesOf(coarse), 100);
}

TEST(History, WhatIsBeingGatheredIsThere) {
  History history({.fine_points = 2, .coarse_s = 10, .coarse_points = 100});
  for (int i = 1; i <= 8; ++i) history.Add(PointAt(2.0 * i, 1));
  const auto points = history.Since(0);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points.back().samples, 3);
  EXPECT_EQ(points.back().end_s, 16);
}

TEST(History, IsBounded) {
  History history({.fine_points = 30, .coarse_s = 10, .coarse_points = 7});
  for (int i = 1; i <= 10'000; ++i) history.Add(PointAt(2.0 * i, 1));
  EXPECT_EQ(history.size(), 37u);
  EXPECT_EQ(history.Since(0).size(), 7u);
}

TEST(Gather, PutsPointsWhereTheirMiddlesAre) {
  const std::vector<HistoryPoint> points = {PointAt(2, 1), PointAt(4, 2), PointAt(6, 4),
                                            PointAt(20, 8), PointAt(22, 16)};
  const auto gathered = Gather(points, 2, 20, 9);
  ASSERT_EQ(gathered.size(), 9u);
  EXPECT_EQ(gathered[0].samples, 2);  // the first ends before
  EXPECT_EQ(gathered[1].samples, 4);
  EXPECT_EQ(gathered[4].seconds, 0);  // nothing is known of it
  EXPECT_EQ(gathered[8].samples, 8);  // the last begins after
  EXPECT_EQ(gathered[0].end_s, 4);
  EXPECT_EQ(gathered[8].end_s, 20);
  EXPECT_EQ(Gather(points, 5, 5, 3)[1].seconds, 0);
}

TEST(PointOf, TellsTheLoopAndItsWorkers) {
  ProcessSnapshot between;
  between.window_ns = 2'000'000'000;
  between.batches = 4;
  between.input_wait_ns = 500'000'000;
  between.between_batches_ns = 1'500'000'000;
  between.save_stall_ns = 250'000'000;
  StageReport report{};
  StageTotals& decode = report[static_cast<size_t>(Stage::kDecode)];
  decode.busy_ns = 3'000'000'000;
  decode.count = 64;
  between.AddPool({"loader", 2, 4'000'000'000}, report);
  between.AddMetric(Metric::kLoaderSamples, 64);
  between.AddMetric(Metric::kStoreReadBytes, 1000);
  const HistoryPoint point = PointOf(between, 7);
  EXPECT_EQ(point.end_s, 7);
  EXPECT_EQ(point.seconds, 2);
  EXPECT_EQ(point.samples, 64);
  EXPECT_EQ(point.input_wait_s, 0.5F);
  EXPECT_EQ(point.compute_s, 1.25F);
  EXPECT_EQ(point.save_stall_s, 0.25F);
  EXPECT_EQ(point.loop_s(), 2);
  EXPECT_EQ(point.thread_s, 4);
  EXPECT_EQ(point.busy_s[static_cast<size_t>(Stage::kDecode)], 3);
  EXPECT_EQ(point.origin_bytes, 1000);
  // Through a cache, what stores gave is what the cache fetched.
  between.AddMetric(Metric::kCacheMisses, 1);
  between.AddMetric(Metric::kCacheOriginBytes, 400);
  EXPECT_EQ(PointOf(between, 7).origin_bytes, 400);
}

}  // namespace
}  // namespace headrace::agent
