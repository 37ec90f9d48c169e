// Tunes several settings of one job, one after the other: two that change at once could not be told
// apart. When the search of one ends the next one has its turn. After all of them the first one
// watches; when it finds another speed, or its time has come, all begin anew. Then the others are
// first set to all that their budgets allow: of two settings that both hold the job back neither
// shows alone that more would be faster.
//
// Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/doctor/tuner.h"

namespace headrace::doctor {

class TuningTurns {
 public:
  struct Knob {
    std::string setting;
    Tuner::Options options;
    uint64_t value = 0;  // what the setting is now
  };
  struct Move {
    std::string setting;
    uint64_t value = 0;
    std::string why;
  };

  // At least one, in the order of their turns.
  explicit TuningTurns(const std::vector<Knob>& knobs);

  // Adds what the job did since the last call, all of it with the values of now. Returns what is to
  // be something else from now on.
  std::vector<Move> Add(const Window& window);
  // Somebody else has set one of them: searches anew from there.
  void Restart(size_t knob, uint64_t value);

  size_t num_knobs() const { return tuners_.size(); }
  const std::string& setting(size_t knob) const { return names_[knob]; }
  // Nothing is being tried.
  bool rests() const { return turn_ == 0 && tuners_[0].holds(); }
  uint64_t value(size_t knob) const { return tuners_[knob].value(); }

 private:
  void PassOn();
  std::vector<Move> BeginRound(uint64_t first);  // what the first one is

  std::vector<std::string> names_;
  std::vector<uint64_t> budgets_;
  std::vector<Tuner> tuners_;
  size_t turn_ = 0;
};

}  // namespace headrace::doctor
