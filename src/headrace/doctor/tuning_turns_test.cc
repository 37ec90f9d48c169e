// Several settings tuned in turn on simulated curves: threads beside the bounds of what is fetched
// ahead, with a reserve that hides for a while what a bound does.
#include "headrace/doctor/tuning_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace headrace::doctor {
namespace {

constexpr double kWindow = 1;         // seconds
constexpr double kSampleBytes = 1e5;  // of each sample
constexpr double kWithin = Tuner::Options().within;
constexpr uint64_t kMiB = 1 << 20;

struct Values {
  double threads = 0, requests = 0, ahead_bytes = 0;
};

// What workers and fetches give a second, and what the loop takes; in samples.
struct Curves {
  std::function<double(const Values&, double at_s)> workers, fetches;
  double demand = 1e9;
};

// A job whose fetches fill a reserve of up to ahead_bytes, and whose loop empties it.
class Job {
 public:
  explicit Job(Curves curves, uint64_t threads = 16)
      : curves_(std::move(curves)),
        turns_({Knob("threads", 1, 16, threads, false), Knob("prefetch_requests", 1, 32, 32, true),
                Knob("prefetch_bytes", 16 * kMiB, kMost, kMost, true)}) {}

  void Run(double hours) {
    for (const double end = at_s_ + hours * 3600; at_s_ < end || !turns_.rests();) Step();
  }
  uint64_t Value(size_t knob) const { return turns_.value(knob); }
  TuningTurns& turns() { return turns_; }
  // The share of the speed with all that the budgets allow, in the long run.
  double Share() const { return Speed(Now()) / Speed({16, 32, static_cast<double>(kMost)}); }
  const std::vector<std::string>& changed() const { return changed_; }

 private:
  static constexpr uint64_t kMost = 1024 * kMiB;

  static TuningTurns::Knob Knob(std::string name, uint64_t least, uint64_t most, uint64_t value,
                                bool of_fetches) {
    Tuner::Options options{.least = least, .most = most, .of_fetches = of_fetches};
    if (of_fetches) options.settle_bytes = kMost;
    if (least > 1) options.unit = "bytes";
    return {std::move(name), options, value};
  }
  Values Now() const {
    return {static_cast<double>(Value(0)), static_cast<double>(Value(1)),
            static_cast<double>(Value(2))};
  }
  double Speed(const Values& v) const {
    return std::min({curves_.workers(v, at_s_), curves_.fetches(v, at_s_), curves_.demand});
  }

  void Step() {
    const Values v = Now();
    const double workers = curves_.workers(v, at_s_), takes = std::min(workers, curves_.demand);
    const double brought = curves_.fetches(v, at_s_) * kWindow;
    const double given = std::min(takes * kWindow, reserve_ + brought);
    const double room = std::max(reserve_, v.ahead_bytes / kSampleBytes);
    const double left = std::min(reserve_ + brought - given, room);
    Window window;
    window.start_s = at_s_;
    window.seconds = kWindow;
    window.threads = static_cast<uint32_t>(v.threads);
    window.batches = 32;
    window.samples = static_cast<uint64_t>(given);
    window.step_s = std::min(kWindow, given / curves_.demand);
    window.input_wait_s = kWindow - window.step_s;
    window.origin_bytes = static_cast<uint64_t>((given + left - reserve_) * kSampleBytes);
    StageTotals& reads = window.stages[static_cast<size_t>(Stage::kCache)];
    reads.bytes = static_cast<uint64_t>(given * kSampleBytes);
    reads.count = window.samples;
    StageTotals& decode = window.stages[static_cast<size_t>(Stage::kDecode)];
    decode.busy_ns = static_cast<uint64_t>(v.threads * kWindow * 1e9 * given / workers);
    decode.count = window.samples;
    reserve_ = left;
    at_s_ += kWindow;
    for (const TuningTurns::Move& move : turns_.Add(window)) Check(move);
  }

  void Check(const TuningTurns::Move& move) {
    EXPECT_FALSE(move.why.empty());
    EXPECT_LE(Value(0), 16u);
    EXPECT_LE(Value(1), 32u);
    EXPECT_LE(Value(2), uint64_t{kMost});
    if (move.setting == "prefetch_bytes") {
      EXPECT_GE(move.value, 16 * kMiB);
      EXPECT_THAT(move.why, ::testing::AnyOf(::testing::HasSubstr("iB: is"),
                                             ::testing::HasSubstr("the least that"),
                                             ::testing::HasSubstr("a new search")));
    }
    if (changed_.empty() || changed_.back() != move.setting) changed_.push_back(move.setting);
  }

  const Curves curves_;
  TuningTurns turns_;
  double at_s_ = 0, reserve_ = 0;  // samples that are ahead
  std::vector<std::string> changed_;
};

// 12 requests fill the link; with less ahead than 200 MiB the link waits for room now and then.
double Fetches(const Values& v) {
  return std::min({40 * v.requests, 480.0, 480 * v.ahead_bytes / (200 * kMiB)});
}

TEST(TuningTurns, FindTheKneesOfWhatIsFetchedAhead) {
  for (uint64_t threads : {3u, 16u}) {
    SCOPED_TRACE(threads);
    Job job({[](const Values& v, double) { return 90 * v.threads; },
             [](const Values& v, double) { return Fetches(v); }},
            threads);
    job.Run(3);
    EXPECT_GE(job.Share(), 1 - 3 * kWithin);
    EXPECT_LE(job.Value(0), 7u);
    EXPECT_GE(job.Value(1), 11u);
    EXPECT_LE(job.Value(1), 14u);
    EXPECT_GE(job.Value(2), 180 * kMiB);
    EXPECT_LE(job.Value(2), 260 * kMiB);
    // One after the other.
    ASSERT_GE(job.changed().size(), 3u);
    EXPECT_EQ(std::vector<std::string>(job.changed().begin(), job.changed().begin() + 3),
              (std::vector<std::string>{"threads", "prefetch_requests", "prefetch_bytes"}));
  }
}

TEST(TuningTurns, ALoopThatDoesNotWaitKeepsWhatItFetchesAhead) {
  Job job({[](const Values& v, double) { return 90 * v.threads; },
           [](const Values& v, double) { return Fetches(v); }, 400});
  job.Run(3);
  EXPECT_GE(job.Share(), 1 - kWithin);
  EXPECT_EQ(job.Value(1), 32u);
  EXPECT_EQ(job.Value(2), 1024 * kMiB);
  EXPECT_THAT(job.changed(), ::testing::ElementsAre("threads"));
}

TEST(TuningTurns, NothingIsTriedWithBoundsWhileNothingIsFetched) {
  // All is on the disk, which is slower than the loop.
  TuningTurns turns({{"prefetch_requests", {.least = 1, .most = 32, .of_fetches = true}, 32}});
  Window window;
  window.seconds = 10;
  window.batches = 100;
  window.samples = 3000;
  window.input_wait_s = window.step_s = 5;
  window.stages[static_cast<size_t>(Stage::kCache)].bytes = 300'000'000;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(turns.Add(window).empty());
}

TEST(TuningTurns, FollowAStoreThatGetsFarther) {
  // From the third hour on a request takes three times as long.
  Job job({[](const Values& v, double) { return 90 * v.threads; },
           [](const Values& v, double at_s) {
             const double each = at_s > 7200 ? 15 : 45;
             return std::min(each * v.requests, 420.0);
           }});
  job.Run(1);
  EXPECT_LE(job.Value(1), 11u);
  job.Run(3);
  EXPECT_GE(job.Value(1), 26u);
  EXPECT_GE(job.Share(), 1 - 3 * kWithin);
}

TEST(TuningTurns, GoOnFromWhatSomebodyElseSets) {
  Job job({[](const Values& v, double) { return 90 * v.threads; },
           [](const Values& v, double) { return Fetches(v); }});
  job.Run(1);
  job.turns().Restart(1, 4);
  EXPECT_EQ(job.Value(1), 4u);
  job.Run(2);
  EXPECT_GE(job.Value(1), 11u);
  EXPECT_GE(job.Share(), 1 - 3 * kWithin);
}

}  // namespace
}  // namespace headrace::doctor
