#include "headrace/doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "headrace/doctor/svg_plot.h"
#include "headrace/doctor/testing/pipeline_simulator.h"

namespace headrace::doctor {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PipelineConfig;
using testing::Simulate;

RunRecord RecordOf(const PipelineConfig& config) {
  RunRecord record;
  record.run = Simulate(config);
  return record;
}

PipelineConfig Short() {
  PipelineConfig c;
  c.duration_s = 10;
  return c;
}

// Every element that is opened is closed, in order: enough of a parser for what the page is made
// of.
void ExpectWellFormed(const std::string& html) {
  std::vector<std::string> open;
  const std::vector<std::string> single = {"meta", "!doctype", "rect", "line", "path"};
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.ends_with('/')) continue;
    const bool closing = tag.starts_with('/');
    if (closing) tag.erase(0, 1);
    tag = tag.substr(0, tag.find_first_of(" \n"));
    if (std::find(single.begin(), single.end(), tag) != single.end()) continue;
    if (tag == "style" && !closing) {
      at = html.find("</style>", at) + 1;
      continue;
    }
    if (!closing) {
      open.push_back(tag);
      continue;
    }
    ASSERT_FALSE(open.empty()) << tag;
    ASSERT_EQ(open.back(), tag) << "at byte " << at;
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(Report, HasFindingsPlotsAndWhatIf) {
  PipelineConfig c = Short();
  c.ranks = 3;
  c.decode_s = 25e-3;
  RunRecord record = RecordOf(c);
  record.log.push_back({1, 5, "warning", "something"});
  const std::string html = ReportHtml(record, Diagnose(record.run));
  ExpectWellFormed(html);
  for (const char* part :
       {"decode-bound", "Samples delivered", "Input stall of each rank", "What if",
        "prefers-color-scheme:dark", "rank 1, warning: something", "aria-label="})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http://")));
  EXPECT_THAT(html, Not(HasSubstr("https://")));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(Report, NamesFromOutsideAreText) {
  RunRecord record = RecordOf(Short());
  const std::string evil = "<img src=x onerror='alert(1)'>\"&\x01";
  record.run.name = record.run.dataset.name = evil;
  record.run.ranks[0].node = evil;
  record.log.push_back({0, 0, evil, evil});
  record.faults.push_back(evil);
  const std::string html = ReportHtml(record, Diagnose(record.run));
  ExpectWellFormed(html);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("&lt;img src=x onerror=&#39;alert(1)&#39;&gt;&quot;&amp;\\x01"));
}

TEST(Report, EmptyRunIsAPageToo) {
  const std::string html = ReportHtml({}, {});
  ExpectWellFormed(html);
  EXPECT_THAT(html, HasSubstr("no stretch in which batches were delivered"));
}

TEST(Plots, GapsAndNothingAreDrawn) {
  const PlotFrame frame{"t", "", 0, 10};
  const std::string gap = LinePlot(frame, {{"a", {1, NAN, 3, 4}}});
  EXPECT_THAT(gap, Not(HasSubstr("nan")));
  // After the gap the pen is put down anew.
  const size_t path = gap.find("d='");
  const std::string drawn = gap.substr(path, gap.find('\'', path + 3) - path);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'M'), 2);
  EXPECT_THAT(LinePlot(frame, {}), Not(HasSubstr("nan")));
  EXPECT_THAT(StackPlot(frame, {{"a", {}}, {"b", {}}}), Not(HasSubstr("nan")));
  EXPECT_EQ(StackPlot(frame, {}), "");
  EXPECT_THAT(HeatMap(frame, {{"a", {0.5, NAN}}}), HasSubstr("0.50"));
}

TEST(Compare, TellsWhatChanged) {
  PipelineConfig before = Short(), after = Short();
  before.decode_s = 25e-3;
  after.threads = 3;
  const Comparison comparison = CompareRuns(RecordOf(before), RecordOf(after));
  EXPECT_THAT(comparison.findings_gone, Contains("decode-bound"));
  EXPECT_TRUE(comparison.findings_new.empty());
  ASSERT_FALSE(comparison.figures.empty());
  EXPECT_EQ(comparison.figures[0].name, "samples a second");
  EXPECT_GT(*comparison.figures[0].change(), 0.3);
  const std::string text = ComparisonText(comparison);
  EXPECT_THAT(text, HasSubstr("decode of a sample"));
  EXPECT_THAT(text, HasSubstr("better"));
  EXPECT_THAT(text, HasSubstr("threads"));
  EXPECT_THAT(text, HasSubstr("gone: decode-bound"));
  const Json json = ComparisonJson(comparison);
  EXPECT_TRUE(json.Find("figures")->items()[0].Find("better")->AsBool());
}

TEST(Compare, EqualRunsDifferInNothing) {
  const RunRecord record = RecordOf(Short());
  const Comparison comparison = CompareRuns(record, record);
  EXPECT_TRUE(comparison.facts.empty());
  EXPECT_TRUE(comparison.findings_gone.empty());
  for (const Difference& one : comparison.figures) EXPECT_EQ(one.a, one.b) << one.name;
  EXPECT_TRUE(CompareRuns({}, {}).figures.empty());
}

}  // namespace
}  // namespace headrace::doctor
