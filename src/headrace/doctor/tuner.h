// Finds the knee of a throughput curve while the job runs: the smallest value of one setting with
// which the job is within some per cent of the fastest it was seen at. Climbs while more is faster,
// descends while less is as fast, then holds, and looks again after a while, or when the speed
// changes by itself. docs/design/doctor.md#auto-tune.
//
// Pure: its clock is the windows that it is given. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/doctor/run.h"
#include "headrace/doctor/speed.h"

namespace headrace::doctor {

class Tuner {
 public:
  struct Options {
    // The budget, from at least 1 on: no other value is ever asked for.
    uint64_t least = 1, most = 1;
    std::string_view unit = "";  // "bytes", or what is counted; must outlive the tuner
    // A bound of what is fetched ahead: tried only while the loop waits and bytes come from the
    // origin. What is here already hides the effect of a change until it is used up.
    bool of_fetches = false;
    double within = 0.03;  // the knee is so much below the best
    double better = 0.03;  // a larger value must be so much faster
    // A measurement has so many stretches, more when they differ; what the loader had ready before
    // a change is not the change's.
    SpeedGauge::Options gauge = {};
    size_t least_stretches = 5, most_stretches = 30;
    uint64_t settle_batches = 32, settle_bytes = 0;
    // Between two searches, twice as long after each that found nothing new; and after a search
    // before a change of speed begins another.
    double first_hold_s = 600, longest_hold_s = 3600, rest_s = 60;
  };
  struct Move {
    uint64_t value = 0;
    std::string why;  // one sentence without a full stop
  };

  // `value` is what the setting is now.
  Tuner(const Options& options, uint64_t value);

  // Adds what the job did since the last call, all of it with value(). Returns what the setting is
  // to be from now on, if that is something else.
  std::optional<Move> Add(const Window& window);
  // Somebody else has set it: searches anew from there.
  void Restart(uint64_t value);
  // The same, but that it is no sign of a change: what it holds next it holds as long as it would.
  void SearchFrom(uint64_t value);

  uint64_t value() const { return value_; }
  bool holds() const { return phase_ == Phase::kHold; }
  // Searches that have ended.
  uint64_t num_searches() const { return num_searches_; }

 private:
  enum class Phase : uint8_t { kFirst, kClimb, kDescend, kHold };
  // A value, and how the job ran with it.
  struct Point {
    uint64_t value = 0;
    Speed speed = {};
    Window total = {};
  };

  bool Settle(const Window& window);
  void Decide(const Point& seen);
  void Search(const Point& from);
  void Climbed(const Point& seen);
  void Descended(const Point& seen);
  void Watch(const Point& seen);
  void TryMore();
  void TryLess();
  void Hold();
  void Ask(uint64_t value, std::string why);
  void BeginToSettle();
  std::string Shown(uint64_t value) const;
  bool HasStall() const;
  bool MoreMayHelp() const;
  bool MayTry(uint64_t less) const;

  const Options options_;
  uint64_t value_;
  std::string why_;
  Phase phase_ = Phase::kFirst;
  double now_s_ = 0;
  SpeedGauge gauge_;
  uint64_t settling_batches_ = 0, settling_bytes_ = 0;
  double settling_s_ = 0;
  // Of the search: where it stands, the fastest that it saw, the smallest value above and the
  // largest below that are known to be worse, and where it began.
  Point here_;
  Speed best_;
  uint64_t above_ = 0, below_ = 0, began_at_ = 0;
  double hold_s_ = 0, until_s_ = 0, soonest_s_ = 0;
  int times_off_ = 0;  // measurements in a row that are not what is held
  uint64_t num_searches_ = 0;
};

}  // namespace headrace::doctor
