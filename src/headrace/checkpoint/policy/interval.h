// How often to save: from what a save costs and how often the job fails. Pure functions.
//
// With T the time between saves, a saving blocks the job for d, and a failure of class c, which
// comes every M_c on average, costs the restart R_c and all since the newest checkpoint that
// survives it. That is one of every k_c-th save, D_c after it was taken (the drain to the level
// that survives). So the share of time that is lost is
//
//   waste(T) = d / T + sum over c of (k_c T / 2 + D_c + R_c) / M_c
//
// which is least at T* = sqrt(2 d / sum of k_c / M_c): Young's formula for one class with k = 1
// (J. W. Young, 1974). Daly's (J. T. Daly, 2006) is given beside it; the two differ when d is no
// longer small beside M. T is never less than D_c / k_c, since a drain must end before the next
// one.
#pragma once

#include <string>
#include <vector>

namespace headrace::checkpoint {

// All times in seconds.
struct FailureClass {
  std::string name;           // "process", "node", "site"
  double mtbf = 0;            // mean time between failures of this class, of the whole job; > 0
  double drain = 0;           // until a save is durable at the level that survives it
  double restart = 0;         // from the failure to the first new step, without what is done again
  double every_nth_save = 1;  // only each n-th save goes to that level; >= 1
};

struct IntervalInputs {
  double stall = 0;  // blocked by one save; >= 0
  std::vector<FailureClass> failures;
  double step = 0;  // of one step; > 0: the advice is a whole number of steps
};

struct IntervalAdvice {
  double interval = 0;          // seconds
  double steps = 0;             // the same in steps; 0 when no step's time was given
  double expected_waste = 0;    // share of the time lost, 0 to 1
  double expected_goodput = 0;  // 1 - expected_waste
  double young = 0, daly = 0;   // what the formulas say without the drain's bound
  double shortest = 0;          // the bound: the longest drain (per save that goes there)
  bool bound_by_drain = false;  // the formula wanted less than `shortest`
  // One paragraph: formula, inputs, result, and what would help most.
  std::string Explain(const IntervalInputs& inputs) const;
};

// With no failures, or none that ever comes, the interval is infinite and the waste 0.
IntervalAdvice AdviseInterval(const IntervalInputs& inputs);
// waste(T) above, at most 1.
double ExpectedWaste(const IntervalInputs& inputs, double interval);
// A sentence when `interval` is shorter than a drain that must end before the next save; else "".
std::string WarnOfInterval(const IntervalInputs& inputs, double interval);

}  // namespace headrace::checkpoint
