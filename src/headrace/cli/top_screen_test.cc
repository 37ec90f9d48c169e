#include "headrace/cli/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TopProcess Example(uint64_t rank) {
  ProcessSnapshot snapshot;
  snapshot.job = "resnet";
  snapshot.rank = rank;
  snapshot.world_size = 2;
  snapshot.pid = 4711 + static_cast<int64_t>(rank);
  snapshot.host = "node7";
  snapshot.dataset = "s3://bucket/photos\n.hr";
  snapshot.window_ns = 2'000'000'000;
  snapshot.batches = 30;
  snapshot.input_wait_ns = 500'000'000;
  snapshot.between_batches_ns = 1'500'000'000;
  StageReport report{};
  StageTotals& decode = report[static_cast<size_t>(Stage::kDecode)];
  decode.busy_ns = 3'000'000'000;
  decode.count = 300;
  for (int i = 0; i < 300; ++i) decode.histogram.Record(10'000'000);
  report[static_cast<size_t>(Stage::kRead)].busy_ns = 1'000'000;
  report[static_cast<size_t>(Stage::kRead)].bytes = 4 << 20;
  report[static_cast<size_t>(Stage::kRead)].count = 300;
  snapshot.AddPool({"loader", 2, 4'000'000'000}, report);
  StageReport fetch{};
  fetch[static_cast<size_t>(Stage::kFetch)].busy_ns = 8'000'000'000;
  fetch[static_cast<size_t>(Stage::kFetch)].count = 3;
  snapshot.AddPool({"store", 0, 0}, fetch);
  snapshot.AddMetric(Metric::kLoaderSamples, 960);
  snapshot.AddMetric(Metric::kProcessCpuSeconds, 3);
  snapshot.settings = {{"threads", 4, 1, 8, "threads"},
                       {"prefetch_bytes", 1 << 20, 0, 1 << 30, "bytes"}};
  snapshot.end_unix_ns = 1'780'000'000'000'000'000;
  const int64_t changed_ns = snapshot.end_unix_ns - 90'000'000'000;
  snapshot.changes = {{1, changed_ns, "threads", 2, 4, "autotune\x1b", ""}};
  return {"/run/x.sock", snapshot, snapshot};
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(TopScreen, ShowsProcessesAndTheStagesOfOne) {
  const auto lines = TopLines({Example(0), Example(1)}, 1, 0, 0);
  const std::string text = Joined(lines);
  EXPECT_THAT(lines[0], HasSubstr("node7  2 processes"));
  EXPECT_THAT(lines[2], StartsWith("  resnet"));
  EXPECT_THAT(lines[3], StartsWith("> resnet"));
  EXPECT_THAT(lines[3], HasSubstr("15.0"));     // batches a second
  EXPECT_THAT(lines[3], HasSubstr("480"));      // samples
  EXPECT_THAT(lines[3], HasSubstr("25.0 %"));   // input stall
  EXPECT_THAT(lines[3], HasSubstr("150.0 %"));  // processors
  EXPECT_THAT(lines[3], HasSubstr("decode"));
  EXPECT_THAT(text, HasSubstr("process 4712, s3://bucket/photos\\n.hr"));
  EXPECT_THAT(text, HasSubstr("x 4.0"));  // requests at once
  EXPECT_THAT(text, HasSubstr("75.0 %"));
  EXPECT_THAT(text, HasSubstr("17 ms"));  // the upper edge of 10 ms
  EXPECT_THAT(text, HasSubstr("threads 4 (1 to 8)   prefetch_bytes 1 MiB (0 B to "));
  EXPECT_THAT(text, HasSubstr(" ago: threads: 2 to 4, by autotune\\x1b\n"));
}

TEST(TopScreen, FitsTheTerminal) {
  for (int rows : {1, 3, 10})
    for (int columns : {1, 20, 80}) {
      const auto lines = TopLines({Example(0), Example(1)}, 0, columns, rows);
      EXPECT_LE(lines.size(), static_cast<size_t>(rows));
      for (const std::string& line : lines) EXPECT_LE(line.size(), static_cast<size_t>(columns));
    }
}

TEST(TopScreen, NothingToShowIsNoFault) {
  EXPECT_EQ(TopLines({}, 0, 80, 24).size(), 2u);
  TopProcess fresh;
  EXPECT_EQ(BusiestStage(fresh.recent), "");
  EXPECT_THAT(Joined(TopLines({fresh}, 0, 0, 0)), HasSubstr("process 0, "));
}

}  // namespace
}  // namespace headrace::cli
