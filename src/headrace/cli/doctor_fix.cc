#include "headrace/cli/doctor_fix.h"

#include <fmt/core.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "headrace/agent/admin_server.h"
#include "headrace/cli/findings.h"
#include "headrace/doctor/cure.h"
#include "headrace/doctor/diagnose.h"

namespace headrace::cli {
namespace {

using doctor::Cure;
using doctor::Diagnosis;
using doctor::Outcome;

constexpr std::string_view kBy = "headrace doctor";
constexpr std::chrono::seconds kSetTimeout{5};

// A setting of one process that is to be changed.
struct Step {
  LiveProcess process;
  Cure cure;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<std::string> left;  // what is not cured here, and why
};

Plan MakePlan(const std::vector<doctor::Finding>& findings,
              const std::vector<LiveProcess>& processes) {
  Plan plan;
  for (const LiveProcess& process : processes) {
    doctor::CurePlan cures = doctor::PlanCures(findings, process.settings);
    for (Cure& cure : cures.cures) plan.steps.push_back({process, std::move(cure)});
    for (std::string& why : cures.left)
      plan.left.push_back(fmt::format("process {}: {}", process.pid, why));
  }
  return plan;
}

// Not with the session's context: what was changed is set back also after an interrupt.
Status Set(const Step& step, uint64_t value) {
  Context ctx;
  ctx.deadline = Context::Clock::now() + kSetTimeout;
  return agent::AskSetting(step.process.socket, step.cure.setting, value, std::string(kBy), ctx);
}

// Sets back the first `count`; one of a process that has ended needs it no more.
void SetBack(const Session& session, const std::vector<Step>& steps, size_t count) {
  for (size_t i = count; i-- > 0;) {
    Status status = Set(steps[i], steps[i].cure.from);
    if (!status.ok())
      Note(session, fmt::format("process {}: {} was not set back to {}: {}", steps[i].process.pid,
                                steps[i].cure.setting, steps[i].cure.from, status.ToString()));
  }
}

Status SetAll(const Session& session, const std::vector<Step>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    Status status = Set(steps[i], steps[i].cure.to);
    if (status.ok()) continue;
    SetBack(session, steps, i);
    return std::move(status).Prefix(fmt::format("process {}", steps[i].process.pid));
  }
  return OkStatus();
}

Json CureJson(const Step& step) {
  Json json = Json::MakeObject()
                  .Set("pid", step.process.pid)
                  .Set("check", step.cure.check)
                  .Set("setting", step.cure.setting)
                  .Set("from", step.cure.from)
                  .Set("to", step.cure.to);
  if (step.cure.gain)
    json.Set("predicted_gain", *step.cure.gain).Set("gain_at_most", step.cure.gain_at_most);
  return json.Set("note", step.cure.note);
}

Json PlanJson(const Diagnosis& diagnosis, const Plan& plan, bool dry_run) {
  Json changes = Json::MakeArray(), left = Json::MakeArray();
  for (const Step& step : plan.steps) changes.Append(CureJson(step));
  for (const std::string& why : plan.left) left.Append(why);
  return Json::MakeObject()
      .Set("before", doctor::DiagnosisJson(diagnosis))
      .Set("changes", std::move(changes))
      .Set("left", std::move(left))
      .Set("dry_run", dry_run);
}

void PrintPlan(Session* session, const Diagnosis& diagnosis, const Plan& plan, bool dry_run) {
  PrintDiagnosis(session, diagnosis);
  session->out->Print("\n");
  for (const Step& step : plan.steps) {
    const Cure& cure = step.cure;
    session->out->Print("{} process {}: {} from {} to {}, for {}", dry_run ? "would set" : "set",
                        step.process.pid, cure.setting, cure.from, cure.to, cure.check);
    if (cure.gain)
      session->out->Print("; predicted {}{:+.0f} %", cure.gain_at_most ? "at most " : "",
                          *cure.gain * 100);
    session->out->Print("{}{}\n", cure.note.empty() ? "" : "; ", cure.note);
  }
  for (const std::string& why : plan.left) session->out->Print("left alone: {}\n", why);
  if (plan.steps.empty()) session->out->Print("There is nothing that --fix can set.\n");
}

void PrintOutcome(Session* session, const Outcome& outcome) {
  if (outcome.verdict == doctor::Verdict::kUnknown) {
    session->out->Print("too few batches came to tell what that did: it was set back\n");
    return;
  }
  session->out->Print("measured: {:.0f} samples/s before, {:.0f} after ({:+.1f} %): {}\n",
                      outcome.before.samples_per_s, outcome.after.samples_per_s, outcome.gain * 100,
                      outcome.keeps() ? (outcome.verdict == doctor::Verdict::kFaster
                                             ? "it stays"
                                             : "no more than chance; it stays")
                                      : "it was set back");
}

// Watches the job with its new settings and says whether they stay.
Result<ExitCode> Prove(Session* session, const FixOptions& options, const doctor::JobRun& before,
                       const std::vector<doctor::Finding>& found, const Plan& plan, Json* json) {
  auto after = WatchLiveRun(*session, options.watch);
  if (!after.ok() || !session->ctx.Check().ok()) {
    SetBack(*session, plan.steps, plan.steps.size());
    HR_RETURN_IF_ERROR(session->ctx.Check());
    return std::move(after).status();
  }
  const Outcome outcome = doctor::JudgeCures(before, after->run);
  if (!outcome.keeps()) SetBack(*session, plan.steps, plan.steps.size());
  if (options.prepare) options.prepare(&after->run);
  const Diagnosis diagnosis = doctor::Diagnose(after->run);
  json->Set("measured_gain", outcome.gain)
      .Set("verdict", doctor::VerdictName(outcome.verdict))
      .Set("set_back", !outcome.keeps())
      .Set("after", doctor::DiagnosisJson(diagnosis));
  if (!session->json) {
    PrintOutcome(session, outcome);
    if (outcome.keeps()) PrintDiagnosis(session, diagnosis);
  }
  return CodeFor(outcome.keeps() ? diagnosis.findings : found);
}

}  // namespace

Result<ExitCode> FixLiveRun(Session* session, const FixOptions& options) {
  HR_ASSIGN_OR_RETURN(LiveRun before, WatchLiveRun(*session, options.watch));
  if (options.prepare) options.prepare(&before.run);
  const Diagnosis diagnosis = doctor::Diagnose(before.run);
  const Plan plan = MakePlan(diagnosis.findings, before.processes);
  Json json = PlanJson(diagnosis, plan, options.dry_run);
  Result<ExitCode> code = CodeFor(diagnosis.findings);
  if (!options.dry_run) HR_RETURN_IF_ERROR(SetAll(*session, plan.steps));
  if (!session->json) PrintPlan(session, diagnosis, plan, options.dry_run);
  if (!options.dry_run && !plan.steps.empty())
    code = Prove(session, options, before.run, diagnosis.findings, plan, &json);
  if (session->json && code.ok()) session->out->Print(json);
  return code;
}

}  // namespace headrace::cli
