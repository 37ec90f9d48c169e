// The agent's view on a virtual clock: simulated ranks are looked at each second.
#include "headrace/agent/node_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/doctor/testing/pipeline_simulator.h"
#include "headrace/doctor/testing/simulated_snapshots.h"

namespace headrace::agent {
namespace {

using doctor::testing::PipelineConfig;
using doctor::testing::Simulate;
using doctor::testing::SnapshotsOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// The ranks of a simulated job, as the agent of their node sees them.
class Ranks {
 public:
  explicit Ranks(const PipelineConfig& config) {
    for (const doctor::RankRun& rank : Simulate(config).ranks) lives_.push_back(SnapshotsOf(rank));
  }
  size_t num_looks() const { return lives_.front().size(); }
  std::vector<NodeView::Seen> At(size_t look) const {
    std::vector<NodeView::Seen> seen;
    for (size_t rank = 0; rank < lives_.size(); ++rank)
      seen.push_back({fmt::format("{}.sock", rank), lives_[rank][look]});
    return seen;
  }
  void LookAtAll(NodeView* view) const {
    for (size_t i = 0; i < num_looks(); ++i) view->Look(static_cast<double>(i), At(i));
  }

 private:
  std::vector<std::vector<ProcessSnapshot>> lives_;
};

NodeView::Options EachSecond() {
  NodeView::Options options;
  options.interval_s = 1;
  options.machine.cpus = 4;  // as the simulated ones
  return options;
}

double Number(const Json& json, std::string_view name) {
  const Json* found = json.Find(name);
  return found == nullptr ? -1 : found->AsDouble(-1);
}

std::vector<std::string> States(const NodeView& view) {
  std::vector<std::string> states;
  const Json node = view.NodeJson();
  for (const Json& process : node.Find("processes")->items())
    states.emplace_back(process.Find("state")->AsString());
  return states;
}

TEST(NodeView, TellsWhatRunsAndWhatLimitsIt) {
  PipelineConfig config;
  config.decode_s *= 4;  // the workers cannot keep up
  NodeView view(EachSecond());
  Ranks(config).LookAtAll(&view);
  const Json node = view.NodeJson();
  ASSERT_THAT(node.Find("processes")->items(), SizeIs(1));
  EXPECT_EQ(Number(node, "live"), 1);
  const Json& process = node.Find("processes")->items()[0];
  EXPECT_EQ(process.Find("run")->AsString(), "simulated");
  EXPECT_EQ(Number(process, "rank"), 0);
  const Json& recent = *process.Find("recent");
  EXPECT_GT(Number(recent, "input_stall"), 0.3);
  EXPECT_NEAR(Number(recent, "input_stall") + Number(recent, "save_stall") + Number(recent, "au"),
              1, 1e-3);
  EXPECT_EQ(recent.Find("limiting")->AsString(), "decode");
  EXPECT_NEAR(Number(recent, "seconds"), 5, 1e-6);  // the last five looks, not the whole life
}

TEST(NodeView, AHealthyJobIsLimitedByItsSteps) {
  NodeView view(EachSecond());
  Ranks(PipelineConfig()).LookAtAll(&view);
  const Json node = view.NodeJson();
  const Json& process = node.Find("processes")->items()[0];
  EXPECT_EQ(process.Find("recent")->Find("limiting")->AsString(), "step");
  EXPECT_THAT(view.FindingsJson().Find("runs")->items()[0].Find("findings")->items(), SizeIs(0));
}

TEST(NodeView, TheDoctorFindsWhatIsWrong) {
  PipelineConfig config;
  config.decode_s *= 4;
  NodeView view(EachSecond());
  const Ranks ranks(config);
  view.Look(0, ranks.At(0));
  EXPECT_FALSE(view.FindingsJson().Find("runs")->items()[0].Find("has_samples")->AsBool(true));
  for (size_t i = 1; i < ranks.num_looks(); ++i) view.Look(static_cast<double>(i), ranks.At(i));
  const Json& run = view.FindingsJson().Find("runs")->items()[0];
  EXPECT_EQ(run.Find("run")->AsString(), "simulated");
  ASSERT_FALSE(run.Find("findings")->items().empty());
  EXPECT_EQ(run.Find("findings")->items()[0].Find("check")->AsString(), "decode-bound");
}

TEST(NodeView, HistoryHasEachProcessOnOneGrid) {
  PipelineConfig config;
  config.ranks = 2;
  NodeView view(EachSecond());
  Ranks(config).LookAtAll(&view);
  const Json history = view.HistoryJson(20, 10);
  const Json::Array& processes = history.Find("processes")->items();
  ASSERT_THAT(processes, SizeIs(2));
  const Json::Array& points = processes[0].Find("points")->items();
  ASSERT_THAT(points, SizeIs(10));
  const size_t columns = history.Find("columns")->items().size();
  for (const Json& point : points) EXPECT_THAT(point.items(), SizeIs(columns));
  EXPECT_THAT(points[0].items().back().items(), SizeIs(history.Find("stages")->items().size()));
  EXPECT_GT(points[9].items()[0].AsDouble(), 0);  // samples a second
  // What was before the beginning is not known, which is not 0.
  EXPECT_TRUE(
      view.HistoryJson(120, 60).Find("processes")->items()[0].Find("points")->items()[0].is_null());
  EXPECT_THAT(view.HistoryJson(20, 10, "1.sock").Find("processes")->items(), SizeIs(1));
  EXPECT_THAT(view.HistoryJson(20, 10, "other").Find("processes")->items(), SizeIs(0));
}

TEST(NodeView, ProcessesComeFallSilentAndEnd) {
  PipelineConfig config;
  config.ranks = 2;
  const Ranks ranks(config);
  NodeView::Options options = EachSecond();
  options.keeps_ended_s = 100;
  NodeView view(options);
  for (size_t i = 0; i < 10; ++i) view.Look(static_cast<double>(i), ranks.At(i));
  auto seen = ranks.At(10);
  seen[1].snapshot.reset();
  view.Look(10, std::move(seen));
  EXPECT_THAT(States(view), ElementsAre("live", "silent"));
  view.Look(11, {{"0.sock", ranks.At(11)[0].snapshot}});
  EXPECT_THAT(States(view), ElementsAre("live", "ended"));
  // What it did stays, and is forgotten in the end.
  EXPECT_THAT(view.HistoryJson(20, 10).Find("processes")->items(), SizeIs(2));
  view.Look(109.5, {});
  EXPECT_THAT(States(view), ElementsAre("ended"));
  view.Look(200, {});
  EXPECT_THAT(States(view), ElementsAre());
}

TEST(NodeView, SumsOfTheNodeNeverFall) {
  PipelineConfig config;
  config.ranks = 2;
  const Ranks ranks(config);
  NodeView view(EachSecond());
  auto value = [&view](Metric metric) {
    for (const MetricValue& one : view.NodeMetrics())
      if (one.metric == metric) return one.value;
    return -1.0;
  };
  for (size_t i = 0; i < 20; ++i) view.Look(static_cast<double>(i), ranks.At(i));
  const double batches = value(Metric::kNodeBatches);
  double expected = 0;
  for (size_t rank : {0, 1})
    expected += static_cast<double>(ranks.At(19)[rank].snapshot->batches -
                                    ranks.At(0)[rank].snapshot->batches);
  EXPECT_EQ(batches, expected);
  EXPECT_GT(batches, 0);
  view.Look(20, {});
  view.Look(1e6, {});
  EXPECT_EQ(value(Metric::kNodeBatches), batches);
  EXPECT_EQ(value(Metric::kNodeLooks), 40);
  EXPECT_EQ(value(Metric::kNodeProcesses), 0);
}

TEST(NodeView, FollowsAsManyAsItMay) {
  ProcessSnapshot one;
  one.job = "many";
  NodeView::Options options = EachSecond();
  options.max_processes = 3;
  NodeView view(options);
  std::vector<NodeView::Seen> seen;
  for (int i = 0; i < 5; ++i) seen.push_back({fmt::format("{}.sock", i), one});
  view.Look(0, seen);
  EXPECT_EQ(Number(view.NodeJson(), "left_out"), 2);
  EXPECT_THAT(States(view), SizeIs(3));
  // Those that have ended make room, the oldest first.
  view.Look(1, {seen[1], seen[2]});
  view.Look(2, {seen[2], seen[3], seen[4]});
  EXPECT_THAT(States(view), ElementsAre("live", "live", "live"));
  EXPECT_EQ(Number(view.NodeJson(), "left_out"), 0);
  // Those that come back while all places are taken.
  view.Look(3, seen);
  EXPECT_EQ(Number(view.NodeJson(), "left_out"), 2);
  EXPECT_THAT(States(view), SizeIs(3));
}

TEST(NodeView, TextsOfProcessesAreEscaped) {
  ProcessSnapshot odd;
  odd.job = "a\nb\x80";
  odd.dataset = "/data/\x1b[31m";
  NodeView view(EachSecond());
  view.Look(0, {{"1.sock", odd}});
  const std::string text = view.NodeJson().Dump() + view.FindingsJson().Dump() +
                           view.DatasetsJson().Dump() + view.HistoryJson(10, 5).Dump();
  EXPECT_THAT(text, HasSubstr(R"(a\\nb\\x80)"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(NodeView, AddsUpWhatIsSaidOfADataset) {
  ProcessSnapshot a;
  a.job = "x";
  a.dataset = "/data/photos";
  a.AddMetric(Metric::kLoaderSamples, 100);
  a.AddMetric(Metric::kLoaderBadSamples, 2);
  a.AddMetric(Metric::kLoaderDecodes, 90, "seek_points");
  ProcessSnapshot b = a;
  b.rank = 1;
  NodeView view(EachSecond());
  view.SetFacts({{"/data/photos", {"/data/photos", "tar", 8, 1000, 1 << 20, 8}}});
  view.Look(0, {{"1.sock", a}, {"2.sock", b}});
  EXPECT_THAT(view.DatasetNames(), ElementsAre("/data/photos"));
  const Json datasets = view.DatasetsJson();
  ASSERT_THAT(datasets.Find("datasets")->items(), SizeIs(1));
  const Json& one = datasets.Find("datasets")->items()[0];
  EXPECT_EQ(Number(one, "samples"), 200);
  EXPECT_EQ(Number(one, "bad_samples"), 4);
  EXPECT_EQ(Number(one.Find("decodes")->items()[0], "images"), 180);
  EXPECT_EQ(Number(*one.Find("facts"), "shards"), 8);
  EXPECT_EQ(one.Find("epoch_bytes"), nullptr);  // nobody told it: no data, which is not 0
  view.SetFacts({});
  EXPECT_TRUE(view.DatasetsJson().Find("datasets")->items()[0].Find("facts")->is_null());
}

}  // namespace
}  // namespace headrace::agent
