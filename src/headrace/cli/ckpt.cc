#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "headrace/base/text.h"
#include "headrace/checkpoint/advice.h"
#include "headrace/checkpoint/diff.h"
#include "headrace/checkpoint/export.h"
#include "headrace/checkpoint/import.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/run_records.h"
#include "headrace/checkpoint/store_access.h"
#include "headrace/checkpoint/tiers.h"
#include "headrace/checkpoint/verify.h"
#include "headrace/cli/ckpt_reports.h"
#include "headrace/cli/ckpt_serve.h"
#include "headrace/cli/ckpt_tiers.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/progress_line.h"
#include "headrace/env/process.h"

namespace headrace::cli {
namespace {

using checkpoint::CatalogEntry;
using checkpoint::CatalogStore;
using checkpoint::Manifest;

class CkptCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Result<ExitCode> Ls(Session* session);
  Result<ExitCode> Show(Session* session);
  Result<ExitCode> Verify(Session* session);
  Result<ExitCode> Prune(Session* session);
  Result<ExitCode> Export(Session* session);
  Status CheckImport() const;
  Result<ExitCode> Import(Session* session);
  Result<ExitCode> Diff(Session* session);
  Result<ExitCode> Advise(Session* session);
  Result<ExitCode> Drain(Session* session) { return DrainTiers(url_, limit_, session); }
  Result<ExitCode> Explain(Session* session) { return ExplainStore(url_, session); }
  Result<CatalogEntry> Chosen(Session* session);

  std::string action_, url_, target_, below_ = "/model", level_ = "local";
  std::string to_ = "safetensors", from_ = "safetensors";
  std::string mtbf_, restart_, step_time_, interval_;
  std::optional<uint64_t> step_, other_step_;
  uint64_t keep_ = 3, keep_every_ = 0, limit_ = 0;
  bool dry_run_ = false;
  PeerServing serving_;

  std::optional<CatalogStore> store_;
  std::unique_ptr<checkpoint::DataFiles> files_;
};

void CkptCommand::Declare(Arguments* arguments) {
  arguments->Text(
      "action", &action_,
      "What to do: ls, show, verify, diff, prune, export, import, drain, explain, advise or serve");
  arguments->Text(
      "store", &url_,
      "The checkpoints' folder, s3://bucket/prefix, or peer://ADDRESS:PORT/NAME; serve: "
      "the folder to keep those of other nodes in");
  arguments->OptionalText(
      "target", &target_,
      "export: the file to write; import: the file or folder to read; diff: the "
      "other store, when it is not the same one");
  arguments->Count("--step", &step_, "Which checkpoint; default: the newest. import: its number");
  arguments->Count("--other-step", &other_step_,
                   "diff: which checkpoint of the other side; default: the newest");
  arguments->Count("--keep", &keep_, "prune: keep this many of the newest");
  arguments->Count("--keep-every", &keep_every_,
                   "prune: keep also those whose step is a multiple of this; 0: none");
  arguments->Choice("--level", &level_, {"local", "peer", "remote"},
                    "prune: never remove the newest that is durable at this level");
  arguments->Flag("--dry-run", &dry_run_, "prune: only say what would be removed");
  arguments->Text(
      "--below", &below_,
      "export: only tensors below this path, which their names leave out; import: where "
      "they are put; \"\": all");
  arguments->Choice("--to", &to_, {"safetensors", "torch", "dcp"},
                    "export: the format; torch and dcp need the Python package");
  arguments->Choice("--from", &from_, {"safetensors", "torch", "dcp"},
                    "import: the format; torch and dcp need the Python package");
  arguments->Size("--limit", &limit_, "drain: bytes a second at most; 0: no limit");
  arguments->Text("--mtbf", &mtbf_, "advise: how often the job fails, e.g. 6h");
  arguments->Text("--restart", &restart_,
                  "advise: from a failure until the job restores, e.g. 5m; default: nothing");
  arguments->Text("--step-time", &step_time_, "advise: of one step, to be told a number of steps");
  arguments->Text("--interval", &interval_,
                  "advise: time between saves; default: that of the last two");
  arguments->Text("--listen", &serving_.listen,
                  "serve: where: ADDRESS:PORT, numeric; port 0 takes a free one");
  arguments->Text(
      "--token-file", &serving_.token_file,
      "serve: a file with a token of at least 16 characters, which other nodes must "
      "know; else HEADRACE_PEER_TOKEN. Needed for an address that other machines reach");
  arguments->Size("--size", &serving_.size_bytes, "serve: bytes that it may hold at most");
  arguments->Note(
      "ls      the published checkpoints\n"
      "show    the tensors of one\n"
      "verify  read all of one and compare it with its checksums\n"
      "diff    which tensors of two differ, and by how much\n"
      "prune   remove old ones\n"
      "export  write the tensors of one to a safetensors file, however they were sharded\n"
      "import  make one of a safetensors file, an index of several, or a folder of them\n"
      "drain   bring what is only on this node to the destination; the store is its folder\n"
      "explain where each is durable, and what is lost with this node\n"
      "advise  how often to save, from the times that were measured\n"
      "serve   keep those of other nodes in a folder, as their tier peer://ADDRESS:PORT/NAME, "
      "until "
      "SIGTERM or\n        SIGINT. What is sent is checked, and not encrypted");
  arguments->Example("headrace ckpt ls /nvme/run7", "What is there?");
  arguments->Example("headrace ckpt verify s3://bucket/run7 --step 4000", "Is it whole?");
  arguments->Example("headrace ckpt export /nvme/run7 model.safetensors",
                     "The model of the newest, for other tools");
  arguments->Example("headrace ckpt diff /nvme/run7 --step 4000", "What changed since then?");
  arguments->Example("headrace ckpt drain /nvme/run7", "Finish what a dead helper left");
  arguments->Example("headrace ckpt advise /nvme/run7 --mtbf 6h --restart 5m",
                     "How often to save?");
  arguments->Example(
      "headrace ckpt serve /nvme/peers --listen 10.0.0.7:7171 --token-file /etc/headrace/token "
      "--size 64GiB",
      "Be the peer of other nodes");
}

Result<ExitCode> CkptCommand::Run(Session* session) {
  static const std::map<std::string, Result<ExitCode> (CkptCommand::*)(Session*)> kActions = {
      {"ls", &CkptCommand::Ls},         {"show", &CkptCommand::Show},
      {"verify", &CkptCommand::Verify}, {"diff", &CkptCommand::Diff},
      {"prune", &CkptCommand::Prune},   {"export", &CkptCommand::Export},
      {"import", &CkptCommand::Import}, {"advise", &CkptCommand::Advise},
      {"drain", &CkptCommand::Drain},   {"explain", &CkptCommand::Explain},
  };
  if (action_ == "serve") return ServePeers(url_, serving_, session);
  auto action = kActions.find(action_);
  if (action == kActions.end())
    return Error(Code::kInvalidArgument,
                 "there is no action '{}': expected ls, show, verify, diff, prune, export, import, "
                 "drain, explain, advise or serve",
                 EscapeText(action_));
  // An import makes the store, but not for a source that is not there.
  const std::string& needed = action_ == "import" ? target_ : url_;
  if (!needed.empty() && !IsUrl(needed) && !session->fs->Exists(needed))
    return Error(Code::kNotFound, "{} is not there", EscapeText(needed));
  if (action_ == "import") HR_RETURN_IF_ERROR(CheckImport());
  HR_ASSIGN_OR_RETURN(checkpoint::StoreAccess access,
                      checkpoint::OpenCheckpointStore(url_, session->storage));
  store_.emplace(std::move(access.place));
  files_ = std::move(access.files);
  return (this->*action->second)(session);
}

Result<CatalogEntry> CkptCommand::Chosen(Session* session) {
  HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store_->Read(session->ctx));
  const CatalogEntry* entry = catalog.Latest(checkpoint::Level::kMemory, step_);
  if (entry != nullptr) return *entry;
  return Error(Code::kNotFound, "{} holds no checkpoint{}", store_->name(),
               step_ ? fmt::format(" of step {}", *step_) : "");
}

Json EntryJson(const CatalogEntry& entry) {
  return Json::MakeObject()
      .Set("step", entry.id.step)
      .Set("epoch", entry.id.epoch)
      .Set("attempt", entry.id.attempt)
      .Set("level", std::string(checkpoint::LevelName(entry.level)))
      .Set("kind", entry.kind)
      .Set("published_ns", entry.published_ns)
      .Set("data_bytes", entry.data_bytes)
      .Set("new_bytes", entry.new_bytes);
}

std::string Age(const CatalogEntry& entry) {
  int64_t age = std::max<int64_t>(WallClockNanos() - entry.published_ns, 0);
  return FormatDuration(std::chrono::nanoseconds(age / 1'000'000'000 * 1'000'000'000));
}

Result<ExitCode> CkptCommand::Ls(Session* session) {
  HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store_->Read(session->ctx));
  Json list = Json::MakeArray();
  if (!session->json)
    session->out->Print("{:>10} {:>7} {:>7} {:>6} {:>12} {:>12}  {}\n", "step", "attempt", "level",
                        "kind", "size", "written", "age");
  for (const CatalogEntry& entry : catalog.entries) {
    if (session->json) {
      list.Append(EntryJson(entry));
    } else {
      session->out->Print("{:>10} {:>7} {:>7} {:>6} {:>12} {:>12}  {}\n", entry.id.step,
                          entry.id.attempt, checkpoint::LevelName(entry.level), entry.kind,
                          FormatSize(entry.data_bytes), FormatSize(entry.new_bytes), Age(entry));
    }
  }
  if (session->json) session->out->Print(list);
  return ExitCode::kOk;
}

Result<ExitCode> CkptCommand::Show(Session* session) {
  HR_ASSIGN_OR_RETURN(CatalogEntry entry, Chosen(session));
  HR_ASSIGN_OR_RETURN(Manifest manifest, store_->ReadManifest(entry, session->ctx));
  Json tensors = Json::MakeArray();
  if (!session->json)
    session->out->Print("{}, {} ranks, {} in {} tensors and {} files\n", entry.id.Text(),
                        manifest.info.world_size, FormatSize(manifest.data_bytes()),
                        FormatCount(manifest.tensors.size()), FormatCount(manifest.files.size()));
  for (uint32_t i = 0; i < manifest.tensors.size() && !session->out->closed(); ++i) {
    std::string path = EscapeText(manifest.tensors.path(i));
    std::string shape = checkpoint::ShapeText(manifest.tensors.shape(i));
    std::string dtype(checkpoint::DTypeName(manifest.tensors.dtype(i)));
    uint64_t boxes = manifest.first_box[i + 1] - manifest.first_box[i];
    if (session->json) {
      tensors.Append(Json::MakeObject()
                         .Set("path", path)
                         .Set("dtype", dtype)
                         .Set("shape", shape)
                         .Set("boxes", boxes));
    } else {
      session->out->Print("{:>5} {:<20} {:>4} {}  {}\n", dtype, shape, boxes,
                          boxes == 1 ? "box  " : "boxes", path);
    }
  }
  if (session->json)
    session->out->Print(EntryJson(entry)
                            .Set("world_size", manifest.info.world_size)
                            .Set("files", manifest.files.size())
                            .Set("dataset_version", manifest.info.dataset_version)
                            .Set("tensors", std::move(tensors)));
  return ExitCode::kOk;
}

Result<ExitCode> CkptCommand::Verify(Session* session) {
  HR_ASSIGN_OR_RETURN(CatalogEntry entry, Chosen(session));
  HR_ASSIGN_OR_RETURN(Manifest manifest, store_->ReadManifest(entry, session->ctx));
  checkpoint::VerifyProgress progress;
  auto verified = [&] {
    ProgressLine line("verifying", *session, [&progress] {
      return ProgressFigures{0, 0, progress.bytes, progress.total_bytes};
    });
    return checkpoint::VerifyFiles(files_.get(), manifest, AvailableCpus(), session->ctx,
                                   &progress);
  }();
  HR_ASSIGN_OR_RETURN(checkpoint::VerifyReport report, std::move(verified));
  Json faults = Json::MakeArray();
  for (const checkpoint::VerifyFault& fault : report.faults) {
    if (session->json) {
      faults.Append(
          Json::MakeObject().Set("file", fault.file).Set("error", fault.status.ToString()));
      continue;
    }
    session->out->Print("{}: {}\n", fault.file, fault.status.ToString());
    for (const std::string& tensor : fault.tensors)
      session->out->Print("    {}\n", EscapeText(tensor));
  }
  if (session->json) {
    session->out->Print(EntryJson(entry)
                            .Set("files", report.files)
                            .Set("bytes", report.bytes)
                            .Set("faults", std::move(faults)));
  } else {
    session->out->Print("{}: {} files read, {}; {} damaged\n", entry.id.Text(),
                        FormatCount(report.files), FormatSize(report.bytes),
                        FormatCount(report.faults.size()));
  }
  return report.faults.empty() ? ExitCode::kOk : ExitCode::kBadData;
}

// Those of runs that have no checkpoint any more, of a store that is a folder.
Result<uint64_t> PruneRecords(const std::string& home, const checkpoint::PrunePlan& plan,
                              uint64_t epoch, Session* session) {
  if (IsUrl(home)) return uint64_t{0};
  std::set<uint64_t> epochs;
  for (const auto& row : plan.rows)
    if (row.keep) epochs.insert(row.entry.id.epoch);
  return checkpoint::PruneRunRecords(session->fs, home, epochs, epoch);
}

Result<ExitCode> CkptCommand::Prune(Session* session) {
  checkpoint::RetentionRules rules;
  rules.keep_last = std::max<uint64_t>(keep_, 1);
  rules.keep_every = keep_every_;
  rules.level = *checkpoint::LevelNamed(level_);
  HR_ASSIGN_OR_RETURN(checkpoint::PrunePlan plan,
                      checkpoint::PlanPrune(&*store_, rules, session->ctx));
  uint64_t records = 0;  // of runs, removed with them
  if (!dry_run_) {
    // In the name of whoever writes now: a job that runs meanwhile goes on undisturbed.
    HR_ASSIGN_OR_RETURN(checkpoint::StoreHead head, store_->ReadHead(session->ctx));
    std::atomic<uint64_t> files{0};
    Status pruned = [&] {
      ProgressLine line("removing", *session, [&files, total = plan.data_files.size()] {
        return ProgressFigures{files, total, 0, 0, "files"};
      });
      return checkpoint::Prune(&*store_, head.epoch, plan, session->ctx, &files);
    }();
    HR_RETURN_IF_ERROR(pruned);
    HR_ASSIGN_OR_RETURN(records, PruneRecords(url_, plan, head.epoch, session));
  }
  Json rows = Json::MakeArray();
  uint64_t removed = 0;
  for (const auto& row : plan.rows) {
    if (!row.keep) ++removed;
    if (session->json) {
      rows.Append(EntryJson(row.entry).Set("keep", row.keep).Set("why", row.why));
    } else {
      session->out->Print("{} {:>10}  {}\n", row.keep ? "keep  " : "remove", row.entry.id.step,
                          row.why);
    }
  }
  if (session->json) {
    session->out->Print(Json::MakeObject()
                            .Set("removed", dry_run_ ? 0 : removed)
                            .Set("bytes", plan.bytes)
                            .Set("run_records_removed", records)
                            .Set("checkpoints", std::move(rows)));
  } else {
    session->out->Print("{} {} checkpoints, {}\n", dry_run_ ? "would remove" : "removed", removed,
                        FormatSize(plan.bytes));
    if (records != 0) session->out->Print("removed the records of {} runs\n", records);
  }
  return ExitCode::kOk;
}

// The formats of PyTorch are the Python package's.
Status CheckFormat(const std::string& format) {
  if (format == "safetensors") return OkStatus();
  return Error(Code::kUnimplemented,
               "this program knows no PyTorch, which the format {} needs: run the same command as "
               "python -m headrace ckpt ...",
               format);
}

Result<ExitCode> CkptCommand::Export(Session* session) {
  HR_RETURN_IF_ERROR(CheckFormat(to_));
  if (target_.empty())
    return Status(Code::kInvalidArgument, "export to where? Name a file: model.safetensors");
  HR_ASSIGN_OR_RETURN(CatalogEntry entry, Chosen(session));
  HR_ASSIGN_OR_RETURN(Manifest manifest, store_->ReadManifest(entry, session->ctx));
  checkpoint::ExportOptions options;
  options.below = below_;
  options.threads = AvailableCpus() * 2;
  checkpoint::ExportProgress progress;
  auto exported = [&] {
    ProgressLine line("exporting", *session, [&progress] {
      return ProgressFigures{0, 0, progress.bytes, progress.total_bytes};
    });
    return checkpoint::ExportSafetensors(files_.get(), manifest, options, PosixFileSystem(),
                                         target_, session->ctx, &progress);
  }();
  HR_ASSIGN_OR_RETURN(checkpoint::ExportReport report, std::move(exported));
  if (session->json) {
    session->out->Print(EntryJson(entry)
                            .Set("file", EscapeText(target_))
                            .Set("tensors", report.tensors)
                            .Set("bytes", report.bytes));
  } else {
    session->out->Print("{}: {} tensors, {}\n", EscapeText(target_), FormatCount(report.tensors),
                        FormatSize(report.bytes));
  }
  return ExitCode::kOk;
}

Status CkptCommand::CheckImport() const {
  if (target_.empty())
    return Status(Code::kInvalidArgument, "import what? Name a file or folder: model.safetensors");
  return CheckFormat(from_);
}

Result<ExitCode> CkptCommand::Import(Session* session) {
  HR_ASSIGN_OR_RETURN(checkpoint::ImportSource source,
                      checkpoint::FindImportSource(session->fs, target_));
  checkpoint::ImportOptions options;
  options.step = step_.value_or(0);
  options.below = below_;
  options.threads = AvailableCpus() * 2;
  options.level = checkpoint::LevelOfPlace(url_);
  // As each writer does: whoever wrote here before is shut out, and its remains are removed.
  HR_ASSIGN_OR_RETURN(uint64_t epoch, store_->TakeOver("headrace ckpt import", session->ctx));
  HR_RETURN_IF_ERROR(
      checkpoint::Sweep(&*store_, epoch, std::chrono::seconds(0), false, session->ctx).status());
  checkpoint::ImportProgress progress;
  auto imported = [&] {
    ProgressLine line("importing", *session, [&progress] {
      return ProgressFigures{0, 0, progress.bytes, progress.total_bytes};
    });
    return checkpoint::ImportSafetensors(&*store_, files_.get(), epoch, session->fs, source,
                                         options, session->ctx, &progress);
  }();
  HR_ASSIGN_OR_RETURN(checkpoint::ImportReport report, std::move(imported));
  PrintImport(report, session);
  return ExitCode::kOk;
}

Result<ExitCode> CkptCommand::Diff(Session* session) {
  HR_ASSIGN_OR_RETURN(CatalogEntry entry, Chosen(session));
  HR_ASSIGN_OR_RETURN(Manifest manifest, store_->ReadManifest(entry, session->ctx));
  const std::string& other_url = target_.empty() ? url_ : target_;
  if (!IsUrl(other_url) && !session->fs->Exists(other_url))
    return Error(Code::kNotFound, "{} is not there", EscapeText(other_url));
  HR_ASSIGN_OR_RETURN(checkpoint::StoreAccess access,
                      checkpoint::OpenCheckpointStore(other_url, session->storage));
  CatalogStore other(std::move(access.place));
  HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, other.Read(session->ctx));
  const CatalogEntry* found = catalog.Latest(checkpoint::Level::kMemory, other_step_);
  if (found == nullptr)
    return Error(Code::kNotFound, "{} holds no checkpoint{}", other.name(),
                 other_step_ ? fmt::format(" of step {}", *other_step_) : "");
  HR_ASSIGN_OR_RETURN(Manifest other_manifest, other.ReadManifest(*found, session->ctx));
  checkpoint::DiffOptions options;
  options.threads = AvailableCpus() * 2;
  checkpoint::DiffProgress progress;
  auto compared = [&] {
    ProgressLine line("comparing", *session, [&progress] {
      return ProgressFigures{0, 0, progress.bytes, progress.total_bytes};
    });
    return checkpoint::DiffCheckpoints({files_.get(), &manifest},
                                       {access.files.get(), &other_manifest}, options, session->ctx,
                                       &progress);
  }();
  HR_ASSIGN_OR_RETURN(checkpoint::DiffReport report, std::move(compared));
  PrintDiff(report, entry, *found, session);
  return ExitCode::kOk;
}

// Seconds; 0 for an empty text.
Result<double> SecondsOf(const std::string& option, const std::string& text) {
  if (text.empty()) return 0.0;
  auto duration = ParseDuration(text);
  if (!duration.ok()) return std::move(duration).status().Prefix(option);
  return std::chrono::duration<double>(*duration).count();
}

Result<ExitCode> CkptCommand::Advise(Session* session) {
  if (mtbf_.empty())
    return Status(Code::kInvalidArgument, "how often does the job fail? Say it: --mtbf 6h");
  checkpoint::AdviceQuestion question;
  HR_ASSIGN_OR_RETURN(question.mtbf, SecondsOf("--mtbf", mtbf_));
  HR_ASSIGN_OR_RETURN(question.restart, SecondsOf("--restart", restart_));
  HR_ASSIGN_OR_RETURN(question.step, SecondsOf("--step-time", step_time_));
  HR_ASSIGN_OR_RETURN(question.interval, SecondsOf("--interval", interval_));
  HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store_->Read(session->ctx));
  HR_ASSIGN_OR_RETURN(checkpoint::SaveAdvice advice, checkpoint::AdviseSaves(catalog, question));
  PrintAdvice(advice, session);
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeCkptCommand() { return std::make_unique<CkptCommand>(); }

}  // namespace headrace::cli
