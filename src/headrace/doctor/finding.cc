#include "headrace/doctor/finding.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::doctor {
namespace {

std::string NumberText(double value, const std::string& unit) {
  if (!std::isfinite(value)) return "unknown";
  if (unit == "%") return fmt::format("{:.3g} %", value * 100);
  if (unit == "B" || unit == "B/s") {
    const double bytes = std::min(std::max(value, 0.0), 1e18);
    return FormatSize(static_cast<uint64_t>(bytes)) + unit.substr(1);
  }
  if (unit == "s") {
    const double ns = std::min(std::max(value, 0.0), 1e9) * 1e9;
    return FormatDuration(std::chrono::nanoseconds(static_cast<int64_t>(ns)));
  }
  std::string number =
      std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  return unit.empty() ? number : number + " " + unit;
}

}  // namespace

std::string_view SeverityName(Severity severity) {
  return severity == Severity::kProblem ? "problem" : "warning";
}

std::string EvidenceText(const Evidence& evidence) {
  std::string text = evidence.what + " " + NumberText(evidence.value, evidence.unit);
  if (evidence.threshold)
    text += fmt::format(" (border: {})", NumberText(*evidence.threshold, evidence.unit));
  return text;
}

std::string GainText(const Finding& finding) {
  if (!finding.gain) return "cannot be told from what was measured";
  const double gain = *finding.gain;
  const char* most = finding.gain_at_most ? "at most " : "";
  if (gain < 0) return fmt::format("{:.0f} % slower than it looks now", -gain * 100);
  if (gain < 1) return fmt::format("{}{:.0f} % more samples a second", most, gain * 100);
  return fmt::format("{}{:.1f} times the samples a second", most, 1 + gain);
}

void AdviseSetting(std::string name, uint64_t value, Finding* finding) {
  finding->command = fmt::format("{}={}", name, value);
  finding->setting = {std::move(name), value};
}

Json FindingJson(const Finding& finding) {
  Json evidence = Json::MakeArray();
  for (const Evidence& one : finding.evidence) {
    Json json = Json::MakeObject().Set("what", one.what).Set("value", one.value);
    json.Set("unit", one.unit == "%" ? std::string("share") : one.unit);
    if (one.threshold) json.Set("threshold", *one.threshold);
    evidence.Append(std::move(json));
  }
  Json json = Json::MakeObject()
                  .Set("check", finding.check)
                  .Set("severity", SeverityName(finding.severity))
                  .Set("symptom", finding.symptom)
                  .Set("cause", finding.cause)
                  .Set("evidence", std::move(evidence))
                  .Set("confidence", finding.confidence)
                  .Set("cure", finding.cure)
                  .Set("command", finding.command);
  if (finding.setting)
    json.Set(
        "setting",
        Json::MakeObject().Set("name", finding.setting->name).Set("value", finding.setting->value));
  if (finding.gain) json.Set("gain", *finding.gain).Set("gain_at_most", finding.gain_at_most);
  return json.Set("disproof", finding.disproof);
}

std::string FindingText(const Finding& finding) {
  std::string text = fmt::format("{}: {}: {}\n  why       {}\n", SeverityName(finding.severity),
                                 finding.check, finding.symptom, finding.cause);
  const char* label = "measured";
  for (const Evidence& one : finding.evidence) {
    text += fmt::format("  {:<9} {}\n", label, EvidenceText(one));
    label = "";
  }
  text += fmt::format("  cure      {}\n", finding.cure);
  if (!finding.command.empty()) text += fmt::format("  do        {}\n", finding.command);
  text += fmt::format("  gain      {}; confidence {:.0f} %\n", GainText(finding),
                      finding.confidence * 100);
  return text + fmt::format("  disproof  {}\n", finding.disproof);
}

}  // namespace headrace::doctor
