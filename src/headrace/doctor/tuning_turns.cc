#include "headrace/doctor/tuning_turns.h"

#include <optional>
#include <utility>

namespace headrace::doctor {

TuningTurns::TuningTurns(const std::vector<Knob>& knobs) {
  for (const Knob& knob : knobs) {
    names_.push_back(knob.setting);
    budgets_.push_back(knob.options.most);
    tuners_.emplace_back(knob.options, knob.value);
  }
}

std::vector<TuningTurns::Move> TuningTurns::Add(const Window& window) {
  const size_t knob = turn_;
  Tuner& tuner = tuners_[knob];
  const bool watched = tuner.holds();
  const uint64_t value = tuner.value();
  const uint64_t ended = tuner.num_searches();
  std::optional<Tuner::Move> move = tuner.Add(window);
  if (watched && !tuner.holds() && tuners_.size() > 1) return BeginRound(value);
  if (tuner.num_searches() != ended) PassOn();
  if (!move) return {};
  return {{names_[knob], move->value, std::move(move->why)}};
}

// The first one is about to try another value: before that it is measured with all others open.
std::vector<TuningTurns::Move> TuningTurns::BeginRound(uint64_t first) {
  std::vector<Move> moves;
  for (size_t i = 1; i < tuners_.size(); ++i) {
    if (tuners_[i].value() != budgets_[i])
      moves.push_back({names_[i], budgets_[i], "a new search begins"});
    tuners_[i].Restart(budgets_[i]);
  }
  tuners_[0].SearchFrom(first);
  return moves;
}

// What the next one knew was so with other values of those before it.
void TuningTurns::PassOn() {
  turn_ = (turn_ + 1) % tuners_.size();
  Tuner& next = tuners_[turn_];
  if (turn_ != 0 || !next.holds()) next.Restart(next.value());
}

void TuningTurns::Restart(size_t knob, uint64_t value) {
  tuners_[knob].Restart(value);
  // One that was trying something, and comes first, tries anew.
  const bool earlier = turn_ < knob && !tuners_[turn_].holds();
  if (earlier) return tuners_[turn_].Restart(tuners_[turn_].value());
  turn_ = knob;
}

}  // namespace headrace::doctor
