#include "headrace/base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "headrace/base/metrics_text.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, NamesFollowPrometheusConventions) {
  std::set<std::string_view> names;
  for (const MetricInfo& info : AllMetrics()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(info.name.starts_with("headrace_")) << info.name;
    EXPECT_EQ(info.name.ends_with("_total"), info.kind == MetricKind::kCounter) << info.name;
    EXPECT_TRUE(info.help.ends_with('.')) << info.name;
    if (info.unit == "bytes" || info.unit == "seconds") {
      EXPECT_THAT(std::string(info.name), HasSubstr("_" + std::string(info.unit)));
    }
    EXPECT_EQ(info.label.empty(), info.label_values.empty()) << info.name;
    EXPECT_EQ(FindMetric(info.name), info.metric);
  }
  EXPECT_FALSE(FindMetric("headrace_no_such_total"));
}

ProcessSnapshot Example() {
  ProcessSnapshot snapshot;
  snapshot.job = "a\\b\"c\nd";
  snapshot.rank = 2;
  snapshot.pid = 77;
  snapshot.dataset = "s3://bucket/secret-name";
  snapshot.input_wait_ns = 1'500'000'000;
  StageReport report{};
  StageTotals& read = report[static_cast<size_t>(Stage::kRead)];
  for (uint64_t ns : {500u, 2000u, 3000u, 5'000'000u}) {
    read.busy_ns += ns;
    ++read.count;
    read.histogram.Record(ns);
  }
  snapshot.AddPool({"loader", 2, 10'000'000}, report);
  snapshot.AddMetric(Metric::kCacheHits, 12, "disk");
  return snapshot;
}

TEST(MetricsText, EachMetricHasHelpTypeAndSamples) {
  const ProcessSnapshot snapshot = Example();
  const std::string text = PrometheusText({&snapshot, 1});
  EXPECT_THAT(text, HasSubstr("# TYPE headrace_cache_hits_total counter\n"
                              "headrace_cache_hits_total{run=\"a\\\\b\\\"c\\nd\",rank=\"2\","
                              "tier=\"disk\"} 12\n"));
  EXPECT_THAT(text, HasSubstr("# HELP headrace_input_wait_seconds_total "));
  EXPECT_THAT(text, HasSubstr("headrace_input_wait_seconds_total{run=\"a\\\\b\\\"c\\nd\","
                              "rank=\"2\"} 1.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("headrace_store_failures_total")));  // nothing to tell
  EXPECT_THAT(text, Not(HasSubstr("secret-name")));
  EXPECT_THAT(text, Not(HasSubstr("pid=")));
}

TEST(MetricsText, HistogramBucketsAreCumulative) {
  const ProcessSnapshot snapshot = Example();
  const std::string text = PrometheusText({&snapshot, 1});
  EXPECT_THAT(text, HasSubstr("stage=\"read\",le=\"1.024e-06\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stage=\"read\",le=\"4.096e-06\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("stage=\"read\",le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("headrace_stage_item_seconds_count{"));
}

TEST(MetricsText, SeveralProcessesAreToldApart) {
  std::array<ProcessSnapshot, 2> both = {Example(), Example()};
  both[1].pid = 78;
  const std::string text = PrometheusText(both);
  EXPECT_THAT(text, HasSubstr("pid=\"77\""));
  EXPECT_THAT(text, HasSubstr("pid=\"78\""));
  size_t types = 0;
  for (size_t at = text.find("# TYPE headrace_cache_hits_total"); at != std::string::npos;
       at = text.find("# TYPE headrace_cache_hits_total", at + 1))
    ++types;
  EXPECT_EQ(types, 1u);
}

TEST(MetricsText, ANodeTellsItsOwnAndKeepsTheLabelsOfAProcess) {
  const ProcessSnapshot one = Example();
  const std::array<MetricValue, 2> node = {
      MetricValue{Metric::kNodeProcesses, "live", 1},
      MetricValue{Metric::kNodeBatches, "", 12},
  };
  const std::string text = NodePrometheusText({&one, 1}, node);
  EXPECT_THAT(text, HasSubstr("pid=\"77\""));
  EXPECT_THAT(text, HasSubstr("\nheadrace_node_processes{state=\"live\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nheadrace_node_batches_total 12\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE headrace_node_processes gauge\n"));
  EXPECT_THAT(PrometheusText({&one, 1}), Not(HasSubstr("headrace_node_")));
}

TEST(MetricsText, TheReferenceNamesAllMetricsAndLabels) {
  const std::string page = MetricsReference();
  for (const MetricInfo& info : AllMetrics())
    EXPECT_THAT(page, HasSubstr("| `" + std::string(info.name) + "` |"));
  EXPECT_THAT(page, HasSubstr("`tier`: memory, disk"));
}

TEST(MetricsText, TheReferenceForProgramsTellsKindUnitAndLabels) {
  const Json all = MetricsReferenceJson();
  ASSERT_EQ(all.items().size(), AllMetrics().size());
  const Json& stage = all.items()[static_cast<size_t>(Metric::kStageItemSeconds)];
  EXPECT_EQ(stage.Find("name")->AsString(), "headrace_stage_item_seconds");
  EXPECT_EQ(stage.Find("kind")->AsString(), "histogram");
  EXPECT_EQ(stage.Find("unit")->AsString(), "seconds");
  ASSERT_EQ(stage.Find("labels")->items().size(), 2u);
  EXPECT_EQ(stage.Find("labels")->items()[1].AsString(), "stage");
  EXPECT_EQ(stage.Find("help")->AsString(), "Busy time of one item in a stage.");
}

}  // namespace
}  // namespace headrace
