// The tuner on simulated throughput curves: linear, flat, saturating, peaked by contention, noisy,
// and changing while it looks.
#include "headrace/doctor/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/keyed_random.h"

namespace headrace::doctor {
namespace {

constexpr double kWindow = 2;  // seconds
constexpr double kWithin = Tuner::Options().within;

// What the pipeline gives with so many threads after so many seconds, and what the loop takes.
struct Curve {
  std::function<double(double threads, double at_s)> pipeline;
  double demand = 1e9;

  double Speed(uint64_t threads, double at_s) const {
    return std::min(pipeline(static_cast<double>(threads), at_s), demand);
  }
};

// A job that is run by the tuner.
class Job {
 public:
  Job(Curve curve, uint64_t least, uint64_t most, uint64_t begin, double noise = 0,
      uint64_t seed = 1)
      : curve_(std::move(curve)),
        least_(least),
        most_(most),
        noise_(noise),
        random_(HashKey(seed)),
        tuner_({.least = least, .most = most}, begin) {}

  void Run(double hours) {
    const double end = at_s_ + hours * 3600;
    while (at_s_ < end) Step();
    while (!tuner_.holds()) Step();
  }
  // The share of what the best value would have given, over the time since the last call.
  double Efficiency() {
    const double share = given_ / best_given_;
    given_ = best_given_ = 0;
    return share;
  }
  uint64_t threads() const { return tuner_.value(); }
  uint64_t moves() const { return moves_; }
  double Best() const {
    double best = 0;
    for (uint64_t v = least_; v <= most_; ++v) best = std::max(best, curve_.Speed(v, at_s_));
    return best;
  }
  // The smallest value that is near the best.
  uint64_t Knee() const {
    uint64_t v = least_;
    while (curve_.Speed(v, at_s_) < (1 - kWithin) * Best()) ++v;
    return v;
  }
  double Share() const { return curve_.Speed(threads(), at_s_) / Best(); }

 private:
  void Step() {
    const uint64_t v = tuner_.value();
    const double pipeline = curve_.pipeline(static_cast<double>(v), at_s_);
    const double speed = curve_.Speed(v, at_s_);
    const double seen = speed * (1 + noise_ * (2 * random_.NextDouble() - 1));
    Window window;
    window.start_s = at_s_;
    window.seconds = kWindow;
    window.threads = static_cast<uint32_t>(v);
    window.batches = 16;
    window.samples = static_cast<uint64_t>(seen * kWindow);
    window.step_s = kWindow * speed / curve_.demand;
    window.input_wait_s = kWindow - window.step_s;
    StageTotals& decode = window.stages[static_cast<size_t>(Stage::kDecode)];
    decode.busy_ns =
        static_cast<uint64_t>(static_cast<double>(v) * kWindow * 1e9 * speed / pipeline);
    decode.count = window.samples;
    given_ += speed;
    best_given_ += Best();
    at_s_ += kWindow;
    if (auto move = tuner_.Add(window)) {
      ++moves_;
      EXPECT_NE(move->value, v);
      EXPECT_GE(move->value, least_);
      EXPECT_LE(move->value, most_);
      EXPECT_FALSE(move->why.empty());
      EXPECT_EQ(move->value, tuner_.value());
    }
  }

  const Curve curve_;
  const uint64_t least_, most_;
  const double noise_;
  KeyedRandom random_;
  Tuner tuner_;
  double at_s_ = 0, given_ = 0, best_given_ = 0;
  uint64_t moves_ = 0;
};

struct Named {
  const char* name;
  Curve curve;
};

std::vector<Named> AllCurves() {
  return {
      {"linear", {[](double n, double) { return 100 * n; }}},
      {"linear, and the loop takes less", {[](double n, double) { return 100 * n; }, 850}},
      {"saturating", {[](double n, double) { return 100 * std::min(n, 11.0); }}},
      {"flat", {[](double, double) { return 500.0; }}},
      {"peaked", {[](double n, double) { return 100 * n / (1 + 0.3 * std::max(0.0, n - 12)); }}},
      {"peaked softly", {[](double n, double) { return 100 * n * std::exp(-n / 9); }}},
      {"less and less", {[](double n, double) { return 1000 * n / (n + 6); }}},
      {"less and less, and the loop takes less",
       {[](double n, double) { return 1000 * n / (n + 6); }, 600}},
  };
}

TEST(Tuner, FindsTheKneeOfACurve) {
  for (const Named& one : AllCurves())
    for (uint64_t begin : {1u, 3u, 16u, 64u}) {
      SCOPED_TRACE(std::string(one.name) + " from " + std::to_string(begin));
      Job job(one.curve, 1, 64, begin);
      job.Run(2);
      EXPECT_GE(job.Share(), 1 - kWithin - 0.005) << job.threads();
      // No more than the knee but for what the search does not look into.
      EXPECT_LE(job.threads(), job.Knee() + job.Knee() / 4 + 1);
    }
}

TEST(Tuner, StaysInItsBudget) {
  for (const Named& one : AllCurves()) {
    SCOPED_TRACE(one.name);
    Job narrow(one.curve, 3, 6, 4);  // Step() checks each move
    narrow.Run(2);
    EXPECT_GE(narrow.Share(), 1 - kWithin - 0.005);
  }
  Tuner fixed({.least = 5, .most = 5}, 5);
  Window window;
  window.seconds = window.step_s = 10;
  window.batches = window.samples = 100;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(fixed.Add(window).has_value());
}

TEST(Tuner, NoiseDoesNotLeadItAstray) {
  for (const Named& one : AllCurves())
    for (uint64_t begin : {4u, 16u, 64u})
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        SCOPED_TRACE(std::string(one.name) + " from " + std::to_string(begin) + ", seed " +
                     std::to_string(seed));
        Job job(one.curve, 1, 64, begin, 0.1, seed);
        job.Run(4);
        EXPECT_GE(job.Share(), 0.89) << job.threads();
        EXPECT_LE(job.threads(), 2 * job.Knee() + 1);
      }
}

TEST(Tuner, HoldsLongerEachTimeSoThatItCostsLittle) {
  for (const Named& one : AllCurves()) {
    SCOPED_TRACE(one.name);
    Job job(one.curve, 1, 64, 16, 0.03);
    job.Run(4);
    (void)job.Efficiency();
    const uint64_t before = job.moves();
    job.Run(20);
    // Some ten moves in an hour, most of them short.
    EXPECT_LE(job.moves() - before, 20u * 10);
    EXPECT_GE(job.Efficiency(), 0.96);
  }
}

TEST(Tuner, LeavesAloneALoopThatNeverWaits) {
  // It takes what 9.3 threads give, and has 10. That fewer are too few would be seen too late,
  // since batches are ready; so the stage model is asked first, and nothing is tried at all.
  const Curve curve{[](double n, double) { return 100 * n; }, 930};
  Job enough(curve, 1, 64, 10);
  enough.Run(5);
  EXPECT_EQ(enough.threads(), 10u);
  EXPECT_EQ(enough.moves(), 0u);
  Job more(curve, 1, 64, 40);
  more.Run(5);
  EXPECT_EQ(more.threads(), 10u);
  EXPECT_EQ(more.Efficiency(), 1);  // never so few that it waited
}

TEST(Tuner, FollowsACurveThatChanges) {
  for (double noise : {0.0, 0.05}) {
    SCOPED_TRACE(noise);
    // From the second hour on more than 6 are in each other's way.
    Job contention({[](double n, double at_s) {
                     return 100 * n / (1 + (at_s > 7200 ? 0.3 : 0) * std::max(0.0, n - 6));
                   }},
                   1, 32, 8, noise);
    contention.Run(2);
    EXPECT_GE(contention.threads(), 28u);
    contention.Run(2);
    EXPECT_GE(contention.Share(), 0.9);
    EXPECT_LE(contention.threads(), 8u);
    // The network gets slower, and quick again: neither says that threads are to be more or fewer
    // than what is looked for anew.
    Job slow({[](double n, double at_s) {
               const double network = at_s > 7200 && at_s < 14'400 ? 300 : 1200;
               return std::min(100 * n, network);
             }},
             1, 32, 8, noise);
    slow.Run(2);
    EXPECT_GE(slow.Share(), 0.9);
    slow.Run(1.5);
    EXPECT_LE(slow.threads(), 5u);
    slow.Run(3);
    EXPECT_GE(slow.Share(), 0.9);
    EXPECT_GE(slow.threads(), 11u);
  }
}

TEST(Tuner, BeginsAnewWhereSomebodyElseHasSetIt) {
  Tuner tuner({.least = 1, .most = 16}, 8);
  tuner.Restart(3);
  EXPECT_EQ(tuner.value(), 3u);
  EXPECT_FALSE(tuner.holds());
}

TEST(Tuner, WaitsForWhatWasReadyBeforeAChange) {
  Tuner tuner({.least = 1, .most = 16, .settle_batches = 32}, 8);
  Window window;
  window.seconds = kWindow;
  window.threads = 8;
  window.input_wait_s = window.step_s = kWindow / 2;
  window.batches = 16;
  window.samples = 1000;
  std::optional<Tuner::Move> move;
  int windows = 0;
  while (!move) {
    move = tuner.Add(window);
    ++windows;
  }
  EXPECT_EQ(windows, 2 + 5);  // what was before it began, and one measurement
  EXPECT_EQ(move->value, 12u);
  // As fast as before; but first comes what is not the change's, and that is 10 times as fast.
  window.samples = 10'000;
  EXPECT_FALSE(tuner.Add(window).has_value());
  EXPECT_FALSE(tuner.Add(window).has_value());
  window.samples = 1000;
  move.reset();
  while (!move) move = tuner.Add(window);
  EXPECT_EQ(move->value, 10u) << "12 are no faster than 8";
}

}  // namespace
}  // namespace headrace::doctor
