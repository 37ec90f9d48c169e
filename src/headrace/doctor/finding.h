// What the doctor says: one thing that holds a job back, or will. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/json.h"

namespace headrace::doctor {

enum class Severity : uint8_t {
  kProblem,  // the job loses time now
  kWarning,  // it will, or its figures mislead
};
std::string_view SeverityName(Severity severity);

// A measured number, and the border beyond which it counts.
struct Evidence {
  std::string what;  // "input stall"
  double value = 0;
  std::string unit;                 // "%" shows a share: 0.25 is 25 %; "B/s", "s", "" ...
  std::optional<double> threshold;  // in the same unit
};
// "input stall 25 % (from 5 %)".
std::string EvidenceText(const Evidence& evidence);

// A setting of the running loader, and what it should be.
struct SettingAdvice {
  std::string name;
  uint64_t value = 0;
};

struct Finding {
  std::string check;  // the name of the check, stable: "small-files"
  Severity severity = Severity::kProblem;
  std::string symptom;  // one sentence
  std::string cause;    // one sentence
  std::vector<Evidence> evidence;
  double confidence = 0;  // 0 to 1: docs/design/doctor.md says how it is formed
  std::string cure;       // what to do and why it helps
  std::string command;    // the same as a command or a setting, to be copied
  // The same where it can be done while the job runs, by `headrace doctor --fix`.
  std::optional<SettingAdvice> setting;
  // What the cure gains: samples per second more, as a share of now's (0.4: 40 % more). Empty: it
  // cannot be told from what was measured.
  std::optional<double> gain;
  bool gain_at_most = false;  // `gain` is a bound: the cure takes away part of the cause
  std::string disproof;       // what would show that this finding is wrong
};

// Makes a setting of the running loader the cure: `setting` and `command`.
void AdviseSetting(std::string name, uint64_t value, Finding* finding);

Json FindingJson(const Finding& finding);
// Several lines for a terminal, with a line end.
std::string FindingText(const Finding& finding);
// "40 % faster", "at most 2.1 times as fast", "cannot be told".
std::string GainText(const Finding& finding);

}  // namespace headrace::doctor
