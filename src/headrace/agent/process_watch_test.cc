#include "headrace/agent/process_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

namespace headrace::agent {
namespace {

using testing::HasSubstr;

StageReport OneRead() {
  StageReport report{};
  report[static_cast<size_t>(Stage::kRead)].busy_ns = 10;
  report[static_cast<size_t>(Stage::kRead)].count = 1;
  return report;
}

void LookAtLoader(ProcessSnapshot* snapshot) {
  snapshot->AddPool({"loader", 2, 100}, OneRead());
  snapshot->AddMetric(Metric::kLoaderSamples, 7);
  snapshot->AddMetric(Metric::kLoaderReadyBatches, 3);
  snapshot->batches += 1;
  snapshot->input_wait_ns += 30;
  snapshot->between_batches_ns += 50;
}

TEST(ProcessWatch, SaysWhoAndWhen) {
  ProcessWatch watch;
  watch.SetJob("night run");
  watch.SetModel(1e12, 4e12);
  const ProcessSnapshot snapshot = watch.Snapshot();
  EXPECT_EQ(snapshot.job, "night run");
  EXPECT_EQ(snapshot.pid, ::getpid());
  EXPECT_FALSE(snapshot.host.empty());
  EXPECT_EQ(snapshot.model_flops_per_step, 1e12);
  EXPECT_GT(snapshot.Value(Metric::kProcessCpuSeconds), 0);
  EXPECT_GE(snapshot.Value(Metric::kProcessCpus), 1);
  EXPECT_GE(snapshot.end_unix_ns, snapshot.begin_unix_ns);
  EXPECT_GE(watch.Snapshot().window_ns, snapshot.window_ns);
}

TEST(ProcessWatch, PartsAreSummedAndWhatGrowsIsKept) {
  ProcessWatch watch;
  auto one = watch.Add(LookAtLoader);
  {
    auto two = watch.Add(LookAtLoader);
    const ProcessSnapshot both = watch.Snapshot();
    EXPECT_EQ(both.Value(Metric::kLoaderSamples), 14);
    EXPECT_EQ(both.FindPool("loader")->threads, 4u);
    EXPECT_EQ(both.batches, 2u);
    EXPECT_EQ(watch.Loop().input_wait_ns, 60u);
  }
  const ProcessSnapshot after = watch.Snapshot();
  EXPECT_EQ(after.Value(Metric::kLoaderSamples), 14);      // counts stay
  EXPECT_EQ(after.Value(Metric::kLoaderReadyBatches), 3);  // what is now is of the one that is left
  EXPECT_EQ(after.FindPool("loader")->threads, 2u);
  EXPECT_EQ(after.FindPool("loader")->thread_ns, 200u);
  EXPECT_EQ(after.FindStage("loader", "read")->count, 2u);
  one.reset();
  EXPECT_EQ(watch.Snapshot().batches, 2u);
  EXPECT_EQ(watch.Loop().input_wait_ns, 60u);
  EXPECT_EQ(watch.Loop().between_batches_ns, 100u);
  EXPECT_FALSE(watch.Snapshot().Has(Metric::kLoaderReadyBatches));
}

TEST(ProcessWatch, SavesAreStallsAndWorkInTheBackground) {
  ProcessWatch watch;
  EXPECT_EQ(watch.Snapshot().FindPool("checkpoint"), nullptr);
  watch.BookSaveStall(1000);
  watch.BookSave({.step = 5, .published = true, .work_ns = 50'000, .written_bytes = 4096});
  watch.BookSave({.step = 6, .work_ns = 10});
  const ProcessSnapshot snapshot = watch.Snapshot();
  EXPECT_EQ(snapshot.save_stall_ns, 1000u);
  EXPECT_EQ(snapshot.FindStage("checkpoint", "step")->busy_ns, 1000u);
  EXPECT_EQ(snapshot.FindStage("checkpoint", "copy")->count, 2u);
  EXPECT_EQ(snapshot.FindStage("checkpoint", "copy")->bytes, 4096u);
  EXPECT_EQ(snapshot.Value(Metric::kCheckpointSaves), 1);
  EXPECT_EQ(snapshot.Value(Metric::kCheckpointFailures), 1);
}

TEST(ProcessWatch, SettingsAreChangedByThePartThatHasThem) {
  ProcessWatch watch;
  uint64_t first = 0, second = 0;
  auto make = [&](uint64_t* to) {
    return [to](const std::string& name, uint64_t value) -> Result<uint64_t> {
      if (name != "threads") return Error(Code::kNotFound, "it has: threads");
      if (value > 8) return Error(Code::kInvalidArgument, "threads: expected 1 to 8");
      return std::exchange(*to, value);
    };
  };
  auto one = watch.Add([](ProcessSnapshot*) {}, make(&first));
  auto two = watch.Add([](ProcessSnapshot*) {}, make(&second));
  auto three = watch.Add([](ProcessSnapshot*) {});
  const ProcessWatch::Author me{"me", "to see"};
  EXPECT_TRUE(watch.ChangeSetting("threads", 4, me).ok());
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 4u);  // the newest
  EXPECT_EQ(watch.ChangeSetting("threads", 9, me).code(), Code::kInvalidArgument);
  Status unknown = watch.ChangeSetting("password", 1, me);
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("password"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("it has: threads"));
  EXPECT_TRUE(one->ChangeSetting("threads", 5, me).ok());
  EXPECT_EQ(first, 5u);
  EXPECT_EQ(three->ChangeSetting("threads", 5, me).code(), Code::kNotFound);
}

TEST(ProcessWatch, WhatIsOfOnePartIsThatOfTheOneUsedLast) {
  ProcessWatch watch;
  std::atomic<uint64_t> trained{0}, validated{0};
  uint64_t of_training = 2, of_validation = 1;
  auto add = [&](std::atomic<uint64_t>* used, uint64_t* threads) {
    return watch.Add(
        [threads](ProcessSnapshot* snapshot) {
          snapshot->settings = {{"threads", *threads, 1, 8}};
        },
        [threads](const std::string&, uint64_t value) -> Result<uint64_t> {
          return std::exchange(*threads, value);
        },
        [used] { return used->load(); });
  };
  auto training = add(&trained, &of_training);
  auto validation = add(&validated, &of_validation);
  EXPECT_EQ(watch.Snapshot().FindSetting("threads")->value, 1u);  // the newest, as none was used
  trained = 7;
  EXPECT_EQ(watch.Snapshot().FindSetting("threads")->value, 2u);
  EXPECT_TRUE(watch.ChangeSetting("threads", 6, {"me", ""}).ok());
  EXPECT_EQ(of_training, 6u);
  EXPECT_EQ(of_validation, 1u);
  validated = 8;
  EXPECT_EQ(watch.Snapshot().FindSetting("threads")->value, 1u);
}

TEST(ProcessWatch, ChangesAreKeptWithWhoMadeThem) {
  ProcessWatch watch;
  uint64_t threads = 1;
  auto part = watch.Add([](ProcessSnapshot*) {},
                        [&](const std::string&, uint64_t value) -> Result<uint64_t> {
                          return std::exchange(threads, value);
                        });
  EXPECT_TRUE(watch.ChangeSetting("threads", 1, {"me", "no change"}).ok());
  EXPECT_TRUE(watch.Snapshot().changes.empty());
  for (uint64_t value = 2; value <= 50; ++value)
    EXPECT_TRUE(part->ChangeSetting("threads", value, {"me", std::string(1000, 'y')}).ok());
  const ProcessSnapshot snapshot = watch.Snapshot();
  ASSERT_EQ(snapshot.changes.size(), 32u);  // no more than that
  EXPECT_EQ(snapshot.changes.back().number, 49u);
  EXPECT_EQ(snapshot.changes.back().from, 49u);
  EXPECT_EQ(snapshot.changes.back().to, 50u);
  EXPECT_EQ(snapshot.changes.back().by, "me");
  EXPECT_EQ(snapshot.changes.back().why.size(), 256u);
  EXPECT_GT(snapshot.changes.back().unix_ns, 0);
  part.reset();
  EXPECT_EQ(watch.Snapshot().changes.size(), 32u);  // they are the process's
}

TEST(ProcessWatch, PartsComeAndGoWhileOthersLook) {
  ProcessWatch watch;
  std::atomic<bool> stop{false};
  std::thread looker([&] {
    double last = 0;
    while (!stop) {
      const double now = watch.Snapshot().Value(Metric::kLoaderSamples);
      EXPECT_GE(now, last);
      last = now;
    }
  });
  for (int i = 0; i < 50; ++i) auto part = watch.Add(LookAtLoader);
  stop = true;
  looker.join();
  EXPECT_EQ(watch.Snapshot().Value(Metric::kLoaderSamples), 350);
}

TEST(ProcessWatch, AForkedChildHasAWatchOfItsOwn) {
  auto part = ProcessWatch::OfThisProcess().Add(LookAtLoader);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool empty = !ProcessWatch::OfThisProcess().Snapshot().Has(Metric::kLoaderSamples);
    part.reset();  // leaves the parent's alone, and does not hang
    ::_exit(empty ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ProcessWatch::OfThisProcess().Snapshot().Has(Metric::kLoaderSamples));
}

}  // namespace
}  // namespace headrace::agent
