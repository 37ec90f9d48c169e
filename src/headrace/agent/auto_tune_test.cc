#include "headrace/agent/auto_tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "headrace/loader/testing/tiny_dataset.h"

namespace headrace::agent {
namespace {

// Waits until `ready`; a test that waits in vain ends by its time limit.
template <typename Ready>
void Until(const Ready& ready) {
  while (!ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A job in a time of its own: two seconds pass at each look, in which 6 threads are as good as any
// number above.
class Job {
 public:
  ProcessSnapshot Look() {
    MutexLock lock(&mu_);
    ++looks_;
    ++looks_since_change_;
    now_.window_ns += 2'000'000'000;
    now_.input_wait_ns += 1'000'000'000;
    now_.between_batches_ns += 1'000'000'000;
    now_.batches += 16;
    const uint64_t samples = 100 * std::min<uint64_t>(threads_, 6);
    now_.AddMetric(Metric::kLoaderSamples, static_cast<double>(samples));
    now_.settings = {{"threads", threads_, 1, 16}};
    return now_;
  }
  Status Set(uint64_t threads) {
    MutexLock lock(&mu_);
    threads_ = threads;
    ++changes_;
    looks_since_change_ = 0;
    return OkStatus();
  }
  // True when it has been at 6 for longer than anything is only tried for.
  bool Rests() {
    MutexLock lock(&mu_);
    return threads_ == 6 && looks_since_change_ > 100;
  }
  uint64_t looks() {
    MutexLock lock(&mu_);
    return looks_;
  }
  uint64_t changes() {
    MutexLock lock(&mu_);
    return changes_;
  }

 private:
  Mutex mu_;
  ProcessSnapshot now_ HR_GUARDED_BY(mu_);
  uint64_t threads_ HR_GUARDED_BY(mu_) = 2;
  uint64_t looks_ HR_GUARDED_BY(mu_) = 0, looks_since_change_ HR_GUARDED_BY(mu_) = 0;
  uint64_t changes_ HR_GUARDED_BY(mu_) = 0;
};

AutoTune::Options AtOnce() {
  AutoTune::Options options;
  options.interval = std::chrono::nanoseconds(0);
  return options;
}

TEST(AutoTune, FindsTheKneeAndGoesOnFromWhereSomebodySetsIt) {
  Job job;
  auto tune =
      AutoTune::Start([&] { return job.Look(); },
                      [&](const std::string& setting, uint64_t value, const std::string& why) {
                        EXPECT_EQ(setting, "threads");
                        EXPECT_FALSE(why.empty());
                        return job.Set(value);
                      },
                      AtOnce());
  ASSERT_TRUE(tune.ok()) << tune.status().ToString();
  Until([&] { return job.Rests(); });
  const uint64_t before = job.changes();
  EXPECT_GE(before, 3u);
  (void)job.Set(13);
  Until([&] { return job.Rests(); });
  EXPECT_GT(job.changes(), before + 1);
  (*tune)->Stop();
  const uint64_t looks = job.looks();
  std::this_thread::yield();
  EXPECT_EQ(job.looks(), looks);
  (*tune)->Stop();
}

TEST(AutoTune, SaysWhatItCannotTune) {
  auto none = AutoTune::Start([] { return ProcessSnapshot(); },
                              [](auto&&...) { return OkStatus(); }, AtOnce());
  EXPECT_EQ(none.status().code(), Code::kNotFound);
}

TEST(AutoTune, RefusalsAreNoFault) {
  Job job;
  std::atomic<uint64_t> asked{0};
  auto tune = AutoTune::Start([&] { return job.Look(); },
                              [&](auto&&...) {
                                ++asked;
                                return Error(Code::kCancelled, "the loader is closed");
                              },
                              AtOnce());
  ASSERT_TRUE(tune.ok());
  Until([&] { return asked >= 3; });
}

// The samples of an epoch are the same while the threads are tuned as fast as can be.
TEST(AutoTune, ALoadersOrderStays) {
  loader::testing::TinyDataset data({400});
  auto make = [&](int threads) {
    loader::LoaderOptions options;
    options.global_batch = 8;
    options.threads = threads;
    options.max_threads = 4;
    options.columns = {{"cls", R"({"type": "label"})", true}};
    auto loader = loader::Loader::Create(data.Open(), options);
    EXPECT_TRUE(loader.ok()) << loader.status().ToString();
    return std::move(loader).value();
  };
  auto read = [](loader::Loader* loader, auto after_each) {
    std::vector<uint64_t> ids;
    EXPECT_TRUE(loader->Begin(0, 0).ok());
    while (auto batch = *loader->Next(Context())) {
      for (uint64_t r = 0; r < batch->num_rows; ++r) ids.push_back(batch->rows[r].sample_id);
      after_each();
    }
    return ids;
  };
  loader::LoaderPtr plain = make(1), tuned = make(2);
  ProcessWatch watch;
  std::unique_ptr<ProcessWatch::Part> part = watch.Add(
      [](ProcessSnapshot*) {},
      [&](const std::string& name, uint64_t value) { return tuned->ChangeSetting(name, value); });
  auto of_loader = AutoTune::OfLoader(tuned.get(), part.get());
  ASSERT_TRUE(of_loader.ok()) << of_loader.status().ToString();
  (*of_loader)->Stop();
  std::atomic<uint64_t> step{0};
  auto tune = AutoTune::Start(
      [&] {
        ProcessSnapshot snapshot;
        ++step;
        snapshot.settings = tuned->settings();
        // Each look tells of a job that was faster than before, so that something is always tried.
        snapshot.window_ns = step * 100'000'000'000;
        snapshot.batches = step * 1000;
        snapshot.input_wait_ns = snapshot.window_ns;
        snapshot.AddMetric(Metric::kLoaderSamples, static_cast<double>(step * step * 1000));
        return snapshot;
      },
      [&](const std::string& setting, uint64_t value, const std::string& why) {
        return part->ChangeSetting(setting, value, {"autotune", why});
      },
      AtOnce());
  ASSERT_TRUE(tune.ok());
  const std::vector<uint64_t> expected = read(plain.get(), [] {});
  uint64_t last = 0;
  EXPECT_EQ(read(tuned.get(),
                 [&] {
                   Until([&] { return step > last; });
                   last = step;
                 }),
            expected);
  Until([&] { return !watch.Snapshot().changes.empty(); });
  EXPECT_EQ(watch.Snapshot().changes[0].by, "autotune");
  (*tune)->Stop();
}

}  // namespace
}  // namespace headrace::agent
