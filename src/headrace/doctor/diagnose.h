// The doctor: from what a job did to what holds it back. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/doctor/finding.h"
#include "headrace/doctor/run.h"
#include "headrace/doctor/stage_model.h"

namespace headrace::doctor {

struct Diagnosis {
  std::vector<Finding> findings;  // problems first, those that gain most at the top
  // Of the typical rank; 0 without samples.
  double input_stall = 0, save_stall = 0;
  double accelerator_use = 0;  // time in steps / time
  double samples_per_s = 0;    // of one rank
  std::string limit;           // "workers", "cpu", "network", "disk" or "consumer"; empty: unknown
  bool has_samples = false;    // false: no steady window with a sample, so no check was made
};

Diagnosis Diagnose(const JobRun& run);
Json DiagnosisJson(const Diagnosis& diagnosis);

// Samples per second of the run's typical rank with a part of the pipeline taken away.
// kFailedPrecondition: the run has no stage times to predict from.
struct Prediction {
  Part part;
  double now = 0, without = 0;
};
Result<Prediction> PredictWithout(const JobRun& run, Part part);

}  // namespace headrace::doctor
