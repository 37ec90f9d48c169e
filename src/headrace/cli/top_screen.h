// What `headrace top` shows. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "headrace/base/process_snapshot.h"

namespace headrace::cli {

// One process: what it did since it began (`total`) and in the time since the last look (`recent`;
// the same as total at the first look).
struct TopProcess {
  std::string socket;
  ProcessSnapshot total, recent;
};

// The stage that most of the busy time of a snapshot's workers goes to; empty without any.
std::string BusiestStage(const ProcessSnapshot& snapshot);

// Lines for a terminal of this size, each at most `columns` characters and at most `rows` of them:
// a table of processes, and of the one that is selected the stages, the settings that may be
// changed and what was changed last. 0 columns or rows: all.
std::vector<std::string> TopLines(const std::vector<TopProcess>& processes, size_t selected,
                                  int columns, int rows);

}  // namespace headrace::cli
