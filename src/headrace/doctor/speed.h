// How fast a job runs, and how sure that is: what the auto-tune and `headrace doctor --fix` compare
// before and after a change. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headrace/doctor/run.h"

namespace headrace::doctor {

struct Speed {
  double samples_per_s = 0;  // the mean of the stretches that were measured, without outliers
  // Standard error of that, as a share of it; 1 with fewer than 3 stretches, of which nothing can
  // be told.
  double error = 1;
  size_t stretches = 0;
};
// The share by which `after` is faster; below 0 where it is slower.
double GainOf(const Speed& before, const Speed& after);
// Beyond which a gain is no chance: two standard errors of both.
double NoiseOf(const Speed& a, const Speed& b);

// Gathers windows into stretches that are long enough to tell a speed. Time counts only while the
// training loop takes batches: what it does outside of epochs is not the input's. Windows in which
// a save is written are left out.
class SpeedGauge {
 public:
  struct Options {
    double stretch_s = 2;
    uint64_t stretch_batches = 8;  // and at least so many
    double longest_s = 60;         // then fewer will do, but for none
  };
  explicit SpeedGauge(const Options& options) : options_(options) {}

  void Add(const Window& window);
  void Clear();
  Speed speed() const;
  Window total() const;  // of the stretches that are no outliers

 private:
  std::vector<const Window*> Kept() const;

  const Options options_;
  Window stretch_;  // not yet whole
  std::vector<Window> stretches_;
};

// Seconds in which the training loop computed, was saved, or waited for its input.
double LoopSeconds(const Window& window);
// Of all ranks of a run together.
Speed SpeedOfRun(const JobRun& run, const SpeedGauge::Options& options);

}  // namespace headrace::doctor
