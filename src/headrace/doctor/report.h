// A run on one page, and two runs beside each other. Pure functions, safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/doctor/diagnose.h"
#include "headrace/doctor/run_record.h"

namespace headrace::doctor {

// One HTML file that needs nothing else: plots, findings, stages, what-if, the log. It runs no
// script and loads nothing. Names from the record are escaped.
std::string ReportHtml(const RunRecord& record, const Diagnosis& diagnosis);

// One figure of two runs.
struct Difference {
  std::string name;
  std::string unit;  // "%" shows a share
  double a = 0, b = 0;
  bool more_is_better = true;
  // 0.1: b is a tenth more. Empty where a is 0.
  std::optional<double> change() const { return a != 0 ? std::optional(b / a - 1) : std::nullopt; }
};

struct Comparison {
  std::vector<Difference> figures;  // of the typical ranks: speed, stalls, time of each stage...
  // Facts that differ: what they are, and both values.
  struct Fact {
    std::string name, a, b;
  };
  std::vector<Fact> facts;
  std::vector<std::string> findings_gone, findings_new;  // names of checks
};
Comparison CompareRuns(const RunRecord& a, const RunRecord& b);
Json ComparisonJson(const Comparison& comparison);
// A table for a terminal. Figures that changed by less than 2 % are left out, but for the first
// three.
std::string ComparisonText(const Comparison& comparison);

}  // namespace headrace::doctor
