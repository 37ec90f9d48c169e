#include "headrace/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "headrace/base/mutex.h"
#include "headrace/base/testing/allocation_counter.h"
#include "headrace/env/process.h"
#include "headrace/loader/testing/tiny_dataset.h"

namespace headrace::loader {
namespace {

using ::testing::HasSubstr;
using testing::TinyDataset;

LoaderOptions Options(uint64_t batch) {
  LoaderOptions options;
  options.global_batch = batch;
  options.threads = 2;
  options.order.seed = 7;
  options.columns = {{"cls", R"({"type": "label"})", true}, {"txt", "", true}};
  return options;
}

LoaderPtr Make(const TinyDataset& data, const LoaderOptions& options) {
  auto loader = Loader::Create(data.Open(), options);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  return std::move(loader).value();
}

std::shared_ptr<Batch> Next(Loader* loader) {
  auto batch = loader->Next(Context());
  EXPECT_TRUE(batch.ok()) << batch.status().ToString();
  return batch.ok() ? *batch : nullptr;
}

// The ids of an epoch from a position on, batch by batch, checking each row's content.
std::vector<std::vector<uint64_t>> Epoch(Loader* loader, uint64_t epoch, uint64_t position = 0) {
  std::vector<std::vector<uint64_t>> batches;
  EXPECT_TRUE(loader->Begin(epoch, position).ok());
  while (std::shared_ptr<Batch> batch = Next(loader)) {
    std::vector<uint64_t> ids;
    const auto* cls = reinterpret_cast<const int64_t*>(batch->TensorData(0));
    for (uint64_t r = 0; r < batch->num_rows; ++r) {
      uint64_t id = batch->rows[r].sample_id;
      EXPECT_EQ(batch->rows[r].key, TinyDataset::Key(id));
      EXPECT_EQ(AsText(batch->rows[r].values[0]), TinyDataset::Text(id));
      EXPECT_EQ(cls[r], static_cast<int64_t>(id));
      ids.push_back(id);
    }
    batches.push_back(ids);
  }
  return batches;
}

TEST(Loader, GivesTheOrderOfThePlan) {
  TinyDataset data({40, 13, 0, 77, 5, 61});
  auto loader = Make(data, Options(8));
  Order order = *Order::Create(std::vector<uint64_t>{40, 13, 0, 77, 5, 61}, data.Open()->version(),
                               loader->options().order);
  for (uint64_t epoch : {0, 1, 5}) {
    EpochOrder expected = order.ForEpoch(epoch);
    auto batches = Epoch(loader.get(), epoch);
    ASSERT_EQ(batches.size(), 196u / 8);
    for (size_t b = 0; b < batches.size(); ++b)
      for (size_t r = 0; r < 8; ++r) EXPECT_EQ(batches[b][r], expected.SampleAt(b * 8 + r));
  }
}

TEST(Loader, UnionOverRanksIsTheSameForEveryWorldSizeAndThreadCount) {
  TinyDataset data({30, 30, 30, 30});
  auto one = Epoch(Make(data, Options(12)).get(), 3);
  for (uint32_t world : {2u, 3u, 4u, 5u, 12u}) {
    std::vector<std::multiset<uint64_t>> joined(one.size());
    for (uint32_t rank = 0; rank < world; ++rank) {
      LoaderOptions options = Options(12);
      options.world_size = world;
      options.rank = rank;
      options.threads = 1 + static_cast<int>(rank % 3);
      auto batches = Epoch(Make(data, options).get(), 3);
      ASSERT_EQ(batches.size(), one.size());
      for (size_t b = 0; b < batches.size(); ++b)
        joined[b].insert(batches[b].begin(), batches[b].end());
    }
    for (size_t b = 0; b < one.size(); ++b)
      EXPECT_EQ(joined[b], std::multiset<uint64_t>(one[b].begin(), one[b].end()));
  }
}

TEST(Loader, ResumesAnywhereAndStateCountsDeliveredBatchesOnly) {
  TinyDataset data({50, 50});
  auto whole = Epoch(Make(data, Options(10)).get(), 2);
  for (uint64_t stop = 0; stop <= 10; ++stop) {
    auto first = Make(data, Options(10));
    ASSERT_TRUE(first->Begin(2, 0).ok());
    for (uint64_t b = 0; b < stop; ++b) Next(first.get());
    LoaderState state = first->state();
    EXPECT_EQ(state.epoch, stop == 10 ? 3u : 2u);
    EXPECT_EQ(state.next_position, stop == 10 ? 0 : stop * 10);
    auto second = Make(data, Options(10));
    ASSERT_TRUE(state.CheckFits(second->state()).ok());
    if (stop == 10) continue;
    auto rest = Epoch(second.get(), state.epoch, state.next_position);
    ASSERT_EQ(rest.size(), 10 - stop);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + static_cast<long>(stop)));
  }
}

TEST(Loader, JumpsBetweenEpochsInTheMiddleOfOne) {
  TinyDataset data({64});
  auto loader = Make(data, Options(8));
  auto third = Epoch(loader.get(), 3);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  Next(loader.get());
  EXPECT_EQ(Epoch(loader.get(), 3), third);
  EXPECT_EQ(Epoch(loader.get(), 3), third);
}

TEST(Loader, RaiseNamesShardKeyAndField) {
  TinyDataset data({20, 20});
  data.Damage(25);
  auto loader = Make(data, Options(40));
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  auto batch = loader->Next(Context());
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.status().code(), Code::kDataLoss);
  EXPECT_THAT(batch.status().location().file, HasSubstr("shard-000001.tar"));
  EXPECT_EQ(batch.status().location().key, TinyDataset::Key(25));
  EXPECT_EQ(batch.status().location().field, "cls");
  EXPECT_TRUE(batch.status().location().offset.has_value());
}

TEST(Loader, SkipShortensTheBatchAndMovesNoOther) {
  TinyDataset data({40});
  auto good = Epoch(Make(data, Options(10)).get(), 0);
  data.Damage(11);
  data.Damage(12);
  LoaderOptions options = Options(10);
  options.on_error = OnError::kSkip;
  auto found = Epoch(Make(data, options).get(), 0);
  for (auto& batch : good) std::erase_if(batch, [](uint64_t id) { return id == 11 || id == 12; });
  EXPECT_EQ(found, good);
}

TEST(Loader, ReplaceFillsTheRowTheSameOnEveryReplay) {
  TinyDataset data({40});
  auto good = Epoch(Make(data, Options(10)).get(), 0);
  for (uint64_t bad : {3, 4, 5, 20, 21}) data.Damage(bad);
  LoaderOptions options = Options(10);
  options.on_error = OnError::kReplace;
  options.quarantine_path = data.path() + "/bad.jsonl";
  auto first = Epoch(Make(data, options).get(), 0);
  options.threads = 5;
  auto second = Epoch(Make(data, options).get(), 0);
  EXPECT_EQ(first, second);
  std::set<uint64_t> bad{3, 4, 5, 20, 21};
  for (size_t b = 0; b < good.size(); ++b)
    for (size_t r = 0; r < 10; ++r) {
      if (bad.count(good[b][r]))
        EXPECT_FALSE(bad.count(first[b][r]));
      else
        EXPECT_EQ(first[b][r], good[b][r]);
    }
  std::ifstream list(options.quarantine_path);
  std::string line;
  int lines = 0;
  while (std::getline(list, line)) {
    EXPECT_THAT(line, HasSubstr("\"shard\""));
    EXPECT_THAT(line, HasSubstr("shard-000000.tar"));
    ++lines;
  }
  EXPECT_GE(lines, 10);
}

TEST(Loader, BudgetOfBadSamplesEndsTheRun) {
  TinyDataset data({100});
  for (uint64_t i = 0; i < 100; i += 3) data.Damage(i);
  LoaderOptions options = Options(10);
  options.on_error = OnError::kSkip;
  options.max_bad_samples = 5;
  auto loader = Make(data, options);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  Status status;
  for (int b = 0; b < 10 && status.ok(); ++b) status = loader->Next(Context()).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_bad_samples=5"));
}

TEST(BadSampleBudget, RateCountsFromAThousandSamplesOn) {
  BadSampleBudget budget(/*max_count=*/1000, /*max_rate=*/0.01);
  Status reason = Error(Code::kDataLoss, "the fault");
  EXPECT_TRUE(budget.Book(999, 50, &reason).ok());
  EXPECT_TRUE(budget.Book(500, 0, nullptr).ok());
  Status over = budget.Book(500, 1, &reason);
  EXPECT_EQ(over.code(), Code::kResourceExhausted);
  EXPECT_THAT(over.ToString(), HasSubstr("51 of 1999"));
  EXPECT_THAT(over.ToString(), HasSubstr("the fault"));
  BadSampleBudget patient(1000, 0.01);
  EXPECT_TRUE(patient.Book(5000, 50, &reason).ok());
  EXPECT_FALSE(patient.Book(10, 1, &reason).ok());
}

TEST(Loader, MemoryTooSmallForOneBatchSaysSo) {
  TinyDataset data({100});
  LoaderOptions options = Options(50);
  options.memory_bytes = 100;
  auto loader = Make(data, options);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  auto batch = loader->Next(Context());
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("memory_bytes"));
}

// Values in memory of the consumer's own kind.
class OwnMemory final : public ValueMemory {
 public:
  bool Place(Batch* batch) override {
    auto memory = std::make_shared<std::vector<std::byte>>(batch->ValueBytes() + 1);
    std::byte* place = memory->data();
    for (uint64_t r = 0; r < batch->num_rows; ++r) {
      for (size_t v = 0; v < batch->rows[r].value_sizes.size(); ++v) {
        batch->rows[r].value_places[v] = place;
        place += batch->rows[r].value_sizes[v];
      }
    }
    batch->owned_value_bytes = batch->ValueBytes();
    batch->value_owner = std::move(memory);
    return true;
  }
};

// The least memory_bytes under which the first batch comes.
uint64_t LeastMemory(const TinyDataset& data, LoaderOptions options) {
  uint64_t low = 1, high = uint64_t{1} << 30;
  while (low < high) {
    options.memory_bytes = (low + high) / 2;
    auto loader = Make(data, options);
    EXPECT_TRUE(loader->Begin(0, 0).ok());
    if (loader->Next(Context()).ok())
      high = options.memory_bytes;
    else
      low = options.memory_bytes + 1;
  }
  return low;
}

TEST(Loader, TightMemoryStillGivesEveryBatch) {
  TinyDataset data({500});
  LoaderOptions options = Options(50);
  options.memory_bytes = LeastMemory(data, Options(50)) * 5 / 4;
  auto expected = Epoch(Make(data, Options(50)).get(), 0);
  EXPECT_EQ(Epoch(Make(data, options).get(), 0), expected);
}

TEST(Loader, OneThreadWaitsForMemoryAndStillLoadsWhatIsPlaced) {
  TinyDataset data({200});
  LoaderOptions options = Options(10);
  options.threads = 1;
  options.value_memory = std::make_shared<OwnMemory>();
  options.memory_bytes = LeastMemory(data, options) * 5 / 4;
  auto loader = Make(data, options);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  while (loader->stats().memory_bytes == 0) std::this_thread::yield();  // the thread has begun
  for (int b = 0; b < 20; ++b) ASSERT_NE(Next(loader.get()), nullptr) << "batch " << b;
}

TEST(Loader, ValuesCountBeforeTheyHaveTheirPlace) {
  TinyDataset data({5000});
  LoaderOptions options = Options(500);
  options.value_memory = std::make_shared<OwnMemory>();
  auto loader = Make(data, options);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  const uint64_t values = 500 / 50 * (49 * 50 / 2);  // about, per batch
  const uint64_t eight = 8 * (500 * sizeof(int64_t) + values * 9 / 10);
  // One that counts too little never gets there; the time limit ends the test then.
  while (loader->stats().memory_bytes < eight) std::this_thread::yield();
}

TEST(Loader, MemoryOfARecycledBatchCountsOnce) {
  TinyDataset data({500});
  LoaderOptions options = Options(50);
  options.order.shuffle = false;  // the values of each 50 take the same memory
  options.memory_bytes = LeastMemory(data, options);
  EXPECT_EQ(Epoch(Make(data, options).get(), 0).size(), 10u);
}

TEST(Loader, LargeBatchesStayWithinTheMemory) {
  TinyDataset data({12000});
  LoaderOptions options = Options(2000);
  uint64_t least = LeastMemory(data, options);
  for (uint64_t tenths : {12, 17, 22, 35}) {
    options.memory_bytes = least * tenths / 10;
    auto loader = Make(data, options);
    ASSERT_TRUE(loader->Begin(0, 0).ok());
    while (auto batch = Next(loader.get())) {
      batch.reset();
      for (int i = 0; i < 5; ++i) {
        EXPECT_LE(loader->stats().memory_bytes, options.memory_bytes) << tenths;
        std::this_thread::yield();
      }
    }
    EXPECT_LE(loader->stats().peak_memory_bytes, options.memory_bytes) << tenths;
  }
}

TEST(Loader, CallsOfSeveralConsumersGoOneByOne) {
  TinyDataset data({3000});
  LoaderOptions options = Options(10);
  options.value_memory = std::make_shared<OwnMemory>();
  auto loader = Make(data, options);
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  Mutex mu;
  std::multiset<uint64_t> seen;
  auto consume = [&] {
    while (auto batch = Next(loader.get())) {
      MutexLock lock(&mu);
      for (uint64_t r = 0; r < batch->num_rows; ++r) {
        seen.insert(batch->rows[r].sample_id);
        EXPECT_EQ(AsText(batch->rows[r].values[0]), TinyDataset::Text(batch->rows[r].sample_id));
      }
    }
  };
  std::vector<std::thread> consumers;
  for (int i = 0; i < 4; ++i) consumers.emplace_back(consume);
  for (auto& consumer : consumers) consumer.join();
  EXPECT_EQ(seen.size(), 3000u);
  EXPECT_EQ(std::set<uint64_t>(seen.begin(), seen.end()).size(), 3000u);
}

TEST(Loader, BatchesOutliveTheLoaderAndMayAllBeKept) {
  TinyDataset data({200});
  auto loader = Make(data, Options(10));
  std::vector<std::shared_ptr<Batch>> kept;
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  while (auto batch = Next(loader.get())) kept.push_back(batch);
  loader.reset();
  ASSERT_EQ(kept.size(), 20u);
  std::set<int64_t> labels;
  for (const auto& batch : kept)
    for (uint64_t r = 0; r < batch->num_rows; ++r)
      labels.insert(reinterpret_cast<const int64_t*>(batch->TensorData(0))[r]);
  EXPECT_EQ(labels.size(), 200u);
}

TEST(Loader, AbandonedLoadersLeaveNoThread) {
  TinyDataset data({200});
  auto threads = [] {
    size_t n = 0;
    for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      ++n;
    return n;
  };
  size_t before = threads();
  for (int i = 0; i < 50; ++i) {
    auto loader = Make(data, Options(10));
    ASSERT_TRUE(loader->Begin(0, 0).ok());
    if (i % 2) Next(loader.get());
  }
  // The system takes a thread that was joined off the list a little later.
  while (threads() > before) std::this_thread::yield();
}

TEST(Loader, CloseFromAnotherThreadWakesTheConsumer) {
  TinyDataset data({100});
  auto loader = Make(data, Options(10));
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  std::thread closer([&] { loader->Close(); });
  Status status;
  while (status.ok()) {
    auto batch = loader->Next(Context());
    status = batch.status();
    if (batch.ok() && !*batch) break;
  }
  closer.join();
  EXPECT_EQ(loader->Next(Context()).status().code(), Code::kCancelled);
}

TEST(Loader, DeadlineLosesNothing) {
  TinyDataset data({100});
  auto expected = Epoch(Make(data, Options(10)).get(), 0);
  auto loader = Make(data, Options(10));
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  size_t b = 0;
  while (b < expected.size()) {
    Context ctx;
    ctx.deadline = Context::Clock::now();
    auto batch = loader->Next(ctx);
    if (!batch.ok()) {
      ASSERT_EQ(batch.status().code(), Code::kDeadlineExceeded);
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ((*batch)->rows[0].sample_id, expected[b++][0]);
  }
}

TEST(Loader, UnknownFieldListsWhatThereIs) {
  TinyDataset data({10});
  LoaderOptions options = Options(5);
  options.columns = {{"jpg", "", true}};
  auto loader = Loader::Create(data.Open(), options);
  ASSERT_FALSE(loader.ok());
  EXPECT_THAT(loader.status().ToString(), HasSubstr("cls"));
}

TEST(Loader, AllocatesNothingPerSampleInSteadyState) {
  TinyDataset data({4000});
  LoaderOptions options = Options(100);
  auto loader = Make(data, options);
  auto run = [&](uint64_t epoch) {
    ASSERT_TRUE(loader->Begin(epoch, 0).ok());
    while (Next(loader.get())) {
    }
  };
  // As many batches as there can ever be at once: the threads as far ahead as they go, two in hand.
  ASSERT_TRUE(loader->Begin(0, 0).ok());
  std::shared_ptr<Batch> held[] = {Next(loader.get()), Next(loader.get())};
  while (loader->stats().ready_batches < 8) std::this_thread::yield();
  for (auto& batch : held) batch.reset();
  run(1);
  headrace::testing::AllocationCounter counter;
  run(2);
  // 40 batches: a few allocations each for hand-over, none that grows with the 4,000 samples.
  EXPECT_LT(counter.count(), 40u * 20);
}

TEST(Loader, StagesAndWaitAreCounted) {
  TinyDataset data({200});
  auto loader = Make(data, Options(10));
  Epoch(loader.get(), 0);
  LoaderStats stats = loader->stats();
  EXPECT_EQ(stats.delivered_batches, 20u);
  EXPECT_EQ(stats.delivered_samples, 200u);
  EXPECT_GT(stats.stages[static_cast<size_t>(Stage::kRead)].bytes, 0u);
  EXPECT_GT(stats.stages[static_cast<size_t>(Stage::kRead)].count, 0u);
  EXPECT_GT(stats.first_batch_ns, 0u);
  EXPECT_GT(stats.peak_memory_bytes, 0u);
}

}  // namespace
}  // namespace headrace::loader
