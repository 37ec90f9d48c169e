#include "headrace/loader/loader_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "headrace/loader/testing/tiny_dataset.h"

namespace headrace::loader {
namespace {

using ::testing::HasSubstr;
using testing::TinyDataset;

LoaderPtr Make(const TinyDataset& data, int threads, int max_threads) {
  LoaderOptions options;
  options.global_batch = 8;
  options.world_size = 2;
  options.rank = 1;
  options.threads = threads;
  options.max_threads = max_threads;
  options.columns = {{"cls", R"({"type": "label"})", true}};
  auto loader = Loader::Create(data.Open(), options);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  return std::move(loader).value();
}

Status SetThreads(Loader* loader, uint64_t threads) {
  return loader->ChangeSetting("threads", threads).status();
}

uint64_t Epoch(Loader* loader, uint64_t epoch) {
  uint64_t rows = 0;
  EXPECT_TRUE(loader->Begin(epoch, 0).ok());
  while (true) {
    auto batch = loader->Next(Context());
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    if (!batch.ok() || !*batch) return rows;
    rows += (*batch)->num_rows;
  }
}

ProcessSnapshot Look(const Loader& loader) {
  ProcessSnapshot snapshot;
  AddToSnapshot(loader, &snapshot);
  return snapshot;
}

// The figures of stats() come before its clock, so nothing but time that is booked twice can make
// them more than the threads' lives.
void ExpectNothingBookedTwice(const LoaderStats& stats) {
  auto booked = [](const StageReport& report) {
    uint64_t sum = 0;
    for (const StageTotals& stage : report) sum += stage.busy_ns + stage.wait_ns;
    return sum;
  };
  EXPECT_LE(booked(stats.worker_stages), stats.workers.thread_ns);
  EXPECT_LE(booked(stats.loop_stages), stats.loop.thread_ns);
}

void ExpectSumsUp(const ProcessSnapshot& snapshot) {
  for (const StageSnapshot& stage : snapshot.stages) {
    const PoolSnapshot* pool = snapshot.FindPool(stage.pool);
    ASSERT_NE(pool, nullptr);
    EXPECT_EQ(stage.busy_ns + stage.wait_ns + snapshot.IdleNs(stage), pool->thread_ns)
        << stage.pool << " " << stage.name;
  }
}

TEST(LoaderTrace, TellsOfEachBatchAndOfItsRows) {
  TinyDataset data({100, 60});
  auto loader = Make(data, 2, 2);
  auto window = TraceWindow::Open();
  ASSERT_TRUE(window.ok()) << window.status().ToString();
  EXPECT_EQ(Epoch(loader.get(), 0), 80u);
  const TraceChunk chunk = window->Close();
  std::set<uint64_t> batches, waits;
  uint64_t reads = 0;
  for (const TraceEvent& event : chunk.events) {
    EXPECT_LE(event.times[0], event.times[3]);
    if (event.kind == TraceKind::kBatch) {
      EXPECT_TRUE(batches.insert(event.id).second);
      EXPECT_EQ(event.amount, 4u);
      EXPECT_TRUE(std::is_sorted(event.times.begin(), event.times.end()));
    } else if (event.kind == TraceKind::kWait && event.pool == TracePool::kConsumer) {
      waits.insert(event.id);
    } else if (event.kind == TraceKind::kBusy && event.id < TraceBatchId(1, 0)) {
      reads += event.detail == static_cast<uint8_t>(Stage::kRead);
    }
  }
  EXPECT_EQ(batches.size(), 20u);
  EXPECT_EQ(waits, batches);
  EXPECT_EQ(reads, 80u);
}

TEST(LoaderSnapshot, TellsWhatWasDone) {
  TinyDataset data({100, 60});
  auto loader = Make(data, 2, 2);
  EXPECT_EQ(Epoch(loader.get(), 0), 80u);
  const ProcessSnapshot snapshot = Look(*loader);
  EXPECT_EQ(snapshot.rank, 1u);
  EXPECT_EQ(snapshot.world_size, 2u);
  EXPECT_EQ(snapshot.dataset, data.path());
  EXPECT_EQ(snapshot.batches, 20u);
  EXPECT_EQ(snapshot.Value(Metric::kLoaderSamples), 80);
  ASSERT_NE(snapshot.FindStage("loader", "collate"), nullptr);
  EXPECT_GE(snapshot.FindStage("loader", "collate")->count, 20u);
  EXPECT_GT(snapshot.FindStage("loader", "collate")->bytes, 0u);
  ASSERT_NE(snapshot.FindStage("loader", "read"), nullptr);
  EXPECT_GE(snapshot.FindStage("loader", "read")->count, 80u);
  EXPECT_EQ(snapshot.FindStage("consumer", "queue")->waits.Total(), 20u);
  EXPECT_EQ(snapshot.FindStage("consumer", "step")->count, 20u);
  EXPECT_EQ(snapshot.FindStage("consumer", "step")->busy_ns, snapshot.between_batches_ns);
  ExpectSumsUp(snapshot);
}

TEST(LoaderSnapshot, SumsUpWhileThreadsWork) {
  TinyDataset data({400});
  auto loader = Make(data, 3, 3);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  ProcessSnapshot last;
  while (true) {
    auto batch = loader->Next(Context());
    ASSERT_TRUE(batch.ok());
    ExpectNothingBookedTwice(loader->stats());
    ProcessSnapshot now = Look(*loader);
    ExpectSumsUp(now);
    ExpectSumsUp(now.Since(last));
    EXPECT_GE(now.batches, last.batches);
    last = std::move(now);
    if (!*batch) break;
  }
  EXPECT_EQ(last.batches, 50u);
}

TEST(LoaderSnapshot, ThreadsChangeInsideTheirBoundsAndTheOrderStays) {
  TinyDataset data({200});
  auto loader = Make(data, 2, 4);
  EXPECT_EQ(loader->threads(), 2);
  for (uint64_t wrong : {uint64_t{0}, uint64_t{5}, UINT64_MAX}) {
    Status refused = SetThreads(loader.get(), wrong);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("threads: expected 1 to 4"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("max_threads"));
  }
  // What is read from files of this machine is not fetched ahead.
  Status unknown = loader->ChangeSetting("prefetch_bytes", 1).status();
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("it has: threads"));
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  std::vector<uint64_t> ids;
  uint64_t step = 0;
  while (true) {
    auto batch = loader->Next(Context());
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    if (!*batch) break;
    for (uint64_t r = 0; r < (*batch)->num_rows; ++r) ids.push_back((*batch)->rows[r].sample_id);
    ASSERT_TRUE(SetThreads(loader.get(), 1 + step++ % 4).ok());
  }
  auto plain = Make(data, 1, 1);
  ASSERT_TRUE(plain->Begin(0, 0).ok());
  std::vector<uint64_t> expected;
  while (auto batch = *plain->Next(Context()))
    for (uint64_t r = 0; r < batch->num_rows; ++r) expected.push_back(batch->rows[r].sample_id);
  EXPECT_EQ(ids, expected);

  EXPECT_EQ(loader->ChangeSetting("threads", 3).value(), 1 + (step - 1) % 4);
  EXPECT_EQ(loader->ChangeSetting("threads", 4).value(), 3u);
  ASSERT_TRUE(loader->Begin(1, 0).ok());
  // The threads that were added come to life by themselves.
  while (loader->stats().workers.threads < 4) std::this_thread::yield();
  ASSERT_EQ(Look(*loader).settings.size(), 1u);
  EXPECT_EQ(Look(*loader).settings[0].name, "threads");
  EXPECT_EQ(Look(*loader).settings[0].value, 4u);
  EXPECT_EQ(Look(*loader).settings[0].max, 4u);
  ASSERT_TRUE(SetThreads(loader.get(), 1).ok());
  EXPECT_EQ(loader->stats().workers.threads, 1u);
  loader->Close();
  EXPECT_EQ(loader->stats().workers.threads, 0u);
  EXPECT_EQ(SetThreads(loader.get(), 2).code(), Code::kCancelled);
}

TEST(LoaderSnapshot, ThreadsMayBeSetBeforeTheFirstEpoch) {
  TinyDataset data({64});
  auto loader = Make(data, 1, 3);
  EXPECT_EQ(loader->last_use_ns(), 0u);
  ASSERT_TRUE(SetThreads(loader.get(), 3).ok());
  EXPECT_EQ(loader->stats().workers.threads, 0u);  // none is started yet
  EXPECT_EQ(Epoch(loader.get(), 0), 32u);
  EXPECT_GT(loader->last_use_ns(), 0u);
  while (loader->stats().workers.threads < 3) std::this_thread::yield();
}

}  // namespace
}  // namespace headrace::loader
