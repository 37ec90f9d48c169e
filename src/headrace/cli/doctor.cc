// headrace doctor: what holds a job back. Looks at a job that runs, at the record of a run, or,
// before a job starts, at a machine and a data set.
#include "headrace/doctor/diagnose.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "headrace/cli/commands.h"
#include "headrace/cli/doctor_fix.h"
#include "headrace/cli/findings.h"
#include "headrace/cli/live_run.h"
#include "headrace/cli/locate.h"
#include "headrace/dataset/dataset.h"
#include "headrace/doctor/check.h"
#include "headrace/doctor/preflight.h"
#include "headrace/doctor/run_record.h"

namespace headrace::cli {
namespace {

using doctor::Diagnosis;
using doctor::Finding;
using doctor::JobRun;
using doctor::Preflight;

class DoctorCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  void PrintRules(Session* session) const;
  WatchOptions Watching() const;
  Result<ExitCode> Fix(Session* session) const;
  void ApplyLimits(JobRun* run) const;
  Result<ExitCode> LookAtRun(Session* session, JobRun run) const;
  Result<ExitCode> Predict(Session* session, const JobRun& run) const;
  Result<ExitCode> LookAhead(Session* session) const;
  Result<Preflight> Gather(Session* session) const;
  Status ReadCachePlan(Session* session, doctor::JobPlan* plan) const;

  std::string target_, attach_, without_;
  uint64_t seconds_ = 15;
  uint64_t world_size_ = 1, node_ranks_ = 1, threads_ = 0;
  uint64_t memory_bytes_ = uint64_t{128} << 20;
  uint64_t network_limit_ = 0, disk_limit_ = 0;
  bool no_measure_ = false, rules_ = false, fix_ = false, dry_run_ = false;
};

void DoctorCommand::Declare(Arguments* arguments) {
  arguments->OptionalText("target", &target_,
                          "The record of a run (a folder with rank-0.jsonl, or such a file), or a "
                          "data set by path or URL. Without it only this machine is looked at");
  arguments->Text("--attach", &attach_,
                  "Watch a job that runs on this machine: the id of a process, the path of its "
                  "admin socket, or all");
  arguments->Count("--seconds", &seconds_, "How long to watch it");
  arguments->Flag("--fix", &fix_,
                  "Of a job that runs: change the settings that its findings name (threads, "
                  "requests of fetches), inside the budgets that it was given, watch it again, and "
                  "set back what made it slower. The job may be named as for --attach, or without "
                  "that word");
  arguments->Flag("--dry-run", &dry_run_, "With --fix: only say what would be changed");
  arguments->Text("--without", &without_,
                  "Of a run: predict its speed without decode, network, disk, meta, back-off, "
                  "python or saves");
  arguments->Count("--world-size", &world_size_, "Before a job: its ranks");
  arguments->Count("--node-ranks", &node_ranks_, "Before a job: its ranks on this node");
  arguments->Count("--threads", &threads_,
                   "Before a job: worker threads of each rank; 0 for one a processor");
  arguments->Size("--memory", &memory_bytes_, "Before a job: memory_bytes of each rank's loader");
  arguments->Size("--network-limit", &network_limit_,
                  "Bytes a second that a node can receive; 0 for what its link says");
  arguments->Size("--disk-limit", &disk_limit_,
                  "Bytes a second that the data's disk reads; 0 to measure it");
  arguments->Flag("--no-measure", &no_measure_, "Do not measure the disk (half a second)");
  arguments->Flag("--rules", &rules_, "Print every check with its thresholds and their reasons");
  arguments->Note(
      "Each finding has the symptom, what was measured and the border it passed, a confidence, the "
      "cure as\na command or setting, the gain that the stage model predicts, and what would "
      "disprove it. Problems come\nbefore warnings, those with most to gain first.\nExit code 1 "
      "when "
      "there is a problem; warnings alone are 0.");
  arguments->Example("headrace doctor runs/42", "What held this run back?");
  arguments->Example("headrace doctor --attach 4711", "What holds this job back now?");
  arguments->Example("headrace doctor --fix 4711", "Do what can be done about it while it runs");
  arguments->Example("headrace doctor s3://bucket/train --world-size 64 --node-ranks 8",
                     "What will hold a job on this node back?");
  arguments->Example("headrace doctor runs/42 --without network",
                     "How fast would it be with all data at hand?");
}

Json RulesJson() {
  Json rules = Json::MakeArray();
  for (const doctor::CheckEntry& entry : doctor::AllChecks()) {
    Json thresholds = Json::MakeArray();
    for (const doctor::Threshold& one : entry.thresholds)
      thresholds.Append(Json::MakeObject()
                            .Set("what", one.what)
                            .Set("value", one.value)
                            .Set("unit", one.unit == "%" ? "share" : one.unit)
                            .Set("reason", one.reason));
    rules.Append(Json::MakeObject()
                     .Set("check", entry.name)
                     .Set("title", entry.title)
                     .Set("thresholds", std::move(thresholds)));
  }
  return rules;
}

void DoctorCommand::PrintRules(Session* session) const {
  if (session->json) {
    session->out->Print(RulesJson());
    return;
  }
  for (const doctor::CheckEntry& entry : doctor::AllChecks()) {
    session->out->Print("{}: {}\n", entry.name, entry.title);
    for (const doctor::Threshold& one : entry.thresholds) {
      const doctor::Evidence shown{std::string(one.what), one.value, std::string(one.unit),
                                   std::nullopt};
      session->out->Print("  {}: {}\n", doctor::EvidenceText(shown), one.reason);
    }
  }
}

Result<ExitCode> DoctorCommand::Run(Session* session) {
  if (rules_) {
    PrintRules(session);
    return ExitCode::kOk;
  }
  if (fix_) return Fix(session);
  if (dry_run_) return Status(Code::kInvalidArgument, "--dry-run says what --fix would do: add it");
  if (!attach_.empty()) {
    HR_ASSIGN_OR_RETURN(LiveRun live, WatchLiveRun(*session, Watching()));
    return LookAtRun(session, std::move(live.run));
  }
  if (!target_.empty() && !IsUrl(target_) && doctor::IsRunRecord(session->fs, target_)) {
    HR_ASSIGN_OR_RETURN(doctor::RunRecord record, doctor::ReadRunRecord(session->fs, target_));
    for (const std::string& fault : record.faults)
      Note(*session, "left out of the record: " + fault);
    return LookAtRun(session, std::move(record.run));
  }
  if (!without_.empty())
    return Status(Code::kInvalidArgument,
                  "--without predicts from a run: name its record, or a process with --attach");
  return LookAhead(session);
}

// What the user says about limits goes before what a record says.
void DoctorCommand::ApplyLimits(JobRun* run) const {
  for (doctor::RankRun& rank : run->ranks) {
    if (network_limit_ > 0) rank.machine.network_bytes_per_s = static_cast<double>(network_limit_);
    if (disk_limit_ > 0) rank.machine.disk_bytes_per_s = static_cast<double>(disk_limit_);
  }
}

// A job knows its data set by name only. What is cheap to know of it is looked up: a manifest.
void LookUpDataset(Session* session, JobRun* run) {
  const std::string name = run->dataset.name;
  if (name.empty() || run->dataset.num_shards > 0) return;
  auto place = Locate(*session, name);
  if (!place.ok()) return;
  if (auto facts = doctor::LookUpDataset(place->fs, place->path, name)) run->dataset = *facts;
}

WatchOptions DoctorCommand::Watching() const {
  WatchOptions options;
  options.who = attach_.empty() ? target_ : attach_;
  options.length = std::chrono::seconds(std::clamp<uint64_t>(seconds_, 2, 86'400));
  return options;
}

Result<ExitCode> DoctorCommand::Fix(Session* session) const {
  if (attach_.empty() == target_.empty() || !without_.empty())
    return Status(Code::kInvalidArgument,
                  "--fix wants one running job: the id of a process, the path of its admin socket, "
                  "or all");
  FixOptions options;
  options.watch = Watching();
  options.dry_run = dry_run_;
  options.prepare = [this, session](JobRun* run) {
    ApplyLimits(run);
    LookUpDataset(session, run);
  };
  return FixLiveRun(session, options);
}

Result<ExitCode> DoctorCommand::LookAtRun(Session* session, JobRun run) const {
  ApplyLimits(&run);
  LookUpDataset(session, &run);
  if (!without_.empty()) return Predict(session, run);
  const Diagnosis diagnosis = doctor::Diagnose(run);
  if (session->json) {
    session->out->Print(doctor::DiagnosisJson(diagnosis));
    return CodeFor(diagnosis.findings);
  }
  PrintDiagnosis(session, diagnosis);
  return CodeFor(diagnosis.findings);
}

Result<ExitCode> DoctorCommand::Predict(Session* session, const JobRun& run) const {
  HR_ASSIGN_OR_RETURN(doctor::Part part, doctor::ParsePart(without_));
  HR_ASSIGN_OR_RETURN(doctor::Prediction prediction, doctor::PredictWithout(run, part));
  const double change = prediction.now > 0 ? prediction.without / prediction.now - 1 : 0;
  if (session->json)
    session->out->Print(Json::MakeObject()
                            .Set("without", without_)
                            .Set("samples_per_second", prediction.now)
                            .Set("predicted_samples_per_second", prediction.without)
                            .Set("change", change));
  else
    session->out->Print(
        "{:.0f} samples/s each rank as it ran; {:.0f} predicted without {} ({:+.0f} %)\n",
        prediction.now, prediction.without, without_, change * 100);
  return ExitCode::kOk;
}

Status DoctorCommand::ReadCachePlan(Session* session, doctor::JobPlan* plan) const {
  HR_ASSIGN_OR_RETURN(cache::BlockCacheOptions options, ReadCacheArguments(session->cache));
  plan->cache_directory = options.node.directory;
  plan->cache_limit_bytes = options.node.limit_bytes;
  // Of several directories the space is not added up here.
  if (plan->cache_directory.empty() || plan->cache_directory.find(':') != std::string::npos)
    return OkStatus();
  auto free = session->fs->FreeBytes(plan->cache_directory);
  if (!free.ok()) free = session->fs->FreeBytes(std::string(DirectoryName(plan->cache_directory)));
  if (free.ok()) plan->cache_free_bytes = *free;
  return OkStatus();
}

// Paths of some shards, to measure their disk with.
std::vector<std::string> SomeShards(const dataset::Dataset& data) {
  constexpr size_t kMost = 16;
  std::vector<std::string> paths;
  for (size_t i = 0; i < std::min(data.shards().size(), kMost); ++i) {
    auto file = data.FileOfShard(i);
    if (file.ok()) paths.push_back(file->path);
  }
  return paths;
}

Result<Preflight> DoctorCommand::Gather(Session* session) const {
  constexpr double kMeasureSeconds = 0.5;
  Preflight preflight;
  preflight.machine = doctor::ReadMachine(session->fs);
  if (network_limit_ > 0)
    preflight.machine.facts.network_bytes_per_s = static_cast<double>(network_limit_);
  preflight.plan.world_size = static_cast<uint32_t>(std::clamp<uint64_t>(world_size_, 1, 1 << 24));
  preflight.plan.node_ranks = static_cast<uint32_t>(std::clamp<uint64_t>(node_ranks_, 1, 1 << 16));
  preflight.plan.threads = threads_;
  preflight.plan.memory_bytes = memory_bytes_;
  HR_RETURN_IF_ERROR(ReadCachePlan(session, &preflight.plan));
  if (target_.empty()) return preflight;
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, target_));
  HR_ASSIGN_OR_RETURN(auto data, dataset::Dataset::Open(place.fs, place.path, {}));
  preflight.dataset = doctor::LookAtDataset(*data, place.path);  // without secrets
  if (disk_limit_ > 0) {
    preflight.disk = doctor::DiskSpeed{static_cast<double>(disk_limit_), 0, 0};
  } else if (!preflight.dataset->by_url && !no_measure_) {
    auto speed = doctor::MeasureDisk(place.fs, SomeShards(*data), kMeasureSeconds, session->ctx);
    if (speed.ok()) preflight.disk = *speed;
    if (!speed.ok() && speed.status().code() == Code::kCancelled) return std::move(speed).status();
    if (!speed.ok()) Note(*session, "the disk was not measured: " + speed.status().ToString());
  }
  return preflight;
}

Result<ExitCode> DoctorCommand::LookAhead(Session* session) const {
  HR_ASSIGN_OR_RETURN(Preflight preflight, Gather(session));
  const std::vector<Finding> findings = doctor::CheckPreflight(preflight);
  if (session->json) {
    Json json = doctor::PreflightJson(preflight);
    Json list = Json::MakeArray();
    for (const Finding& finding : findings) list.Append(doctor::FindingJson(finding));
    json.Set("findings", std::move(list));
    session->out->Print(json);
    return CodeFor(findings);
  }
  session->out->Print("{}", doctor::PreflightText(preflight));
  PrintFindings(session, findings);
  return CodeFor(findings);
}

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace headrace::cli
