// How fast a drain may go: a token bucket on a given clock, whose rate is halved while the
// training's input stall grows, and rises again when it is gone. Never below what the drain needs
// to end before the next save, as far as the hard limit lets it. Pure logic. Not thread-safe: its
// owner locks.
//
//   for (uint64_t wait; (wait = rate.WaitNs(Now(), bytes)) > 0;) Sleep(wait);
//   rate.Take(Now(), bytes);
#pragma once

#include <cstdint>

namespace headrace::checkpoint {

class DrainRate {
 public:
  struct Options {
    uint64_t limit = 0;         // bytes a second, never exceeded; 0: none
    uint64_t least = 8 << 20;   // bytes a second that back-off leaves
    uint64_t burst = 32 << 20;  // bytes that may go at once after a pause
    // Of the time, by which the input stall may grow over what it was without a drain.
    double stall_margin = 0.01;
    uint64_t hold_ns = 1'000'000'000;  // after a change of the rate until the next one
  };
  // So many bytes a second at most, of which at most those of a second at once; 0: no limit.
  static Options Limited(uint64_t limit) {
    Options options;
    options.limit = limit;
    if (limit > 0 && limit < options.burst) options.burst = limit;
    return options;
  }
  DrainRate(const Options& options, uint64_t now_ns);

  // How long until `bytes` may go; 0: now. More than the burst may go once the bucket is full, and
  // is paid back afterwards.
  uint64_t WaitNs(uint64_t now_ns, uint64_t bytes);
  // They went, or are on their way.
  void Take(uint64_t now_ns, uint64_t bytes);

  // The loader's input stall lately, as a share of the time (0 to 1), while this drain runs.
  void ReportStall(uint64_t now_ns, double share);
  // The same while no drain runs: what it is compared with.
  void ReportIdleStall(double share);
  // What is left to drain, and when the next save comes; 0 = not known.
  void SetDeadline(uint64_t now_ns, uint64_t bytes_left, uint64_t deadline_ns);

  // Bytes a second just now.
  double rate() const;
  // The deadline cannot be kept under the hard limit.
  bool late() const { return late_; }

 private:
  void Fill(uint64_t now_ns);
  double Ceiling() const;

  Options options_;
  double rate_;       // what back-off leaves
  double floor_ = 0;  // what the deadline needs
  double tokens_;     // bytes; below 0 while a large piece is paid back
  uint64_t filled_ns_, changed_ns_ = 0;
  double went_ = 0;  // bytes since the last change
  double idle_stall_ = 0;
  bool has_idle_ = false;
  bool late_ = false;
};

}  // namespace headrace::checkpoint
