#include <chrono>

#include "headrace/base/sha256.h"
#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/cli/progress_line.h"
#include "headrace/cli/seek_points.h"
#include "headrace/dataset/pack.h"
#include "headrace/dataset/pack_upload.h"

namespace headrace::cli {
namespace {

constexpr size_t kMaxNotes = 5;

class PackCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Result<std::string> StagingFolder() const;
  Status Send(Session* session, const std::string& folder, FileSystem* to) const;
  void NoteLeftOut(const Session& session, const dataset::PackReport& report) const;
  void PrintReport(Session* session, const dataset::PackReport& report, double seconds) const;
  Json ReportJson(const dataset::PackReport& report, double seconds) const;

  std::vector<std::string> sources_;
  std::string destination_, staging_;
  dataset::PackOptions options_;
  uint64_t threads_ = 0;
  std::string on_error_ = "raise", seek_points_ = "8", jpeg_ = "keep";
  bool no_fsync_ = false;
};

void PackCommand::Declare(Arguments* arguments) {
  arguments->Texts("paths", &sources_, 2,
                   "SOURCE... DESTINATION: one folder, one .csv or .jsonl list, one data set, one "
                   "MDS folder, or any number of tars and TFRecords; then the folder to make, or "
                   "a URL for it");
  arguments->Size("--shard-size", &options_.shard_bytes, "Most bytes of a shard");
  arguments->Count("--shard-samples", &options_.shard_samples,
                   "Most samples of a shard; 0 for no limit");
  arguments->Count("--shuffle", &options_.shuffle_seed,
                   "Mix the samples over the shards with this seed; without it the source's order "
                   "is kept");
  arguments->Count("--threads", &threads_, "Shards written at once; 0 for one a processor");
  DeclareSeekPoints(arguments, &seek_points_);
  arguments->Choice("--jpeg", &jpeg_, {"keep", "optimize", "sequential"},
                    "Rewrite JPEGs without loss: 'sequential' those with several scans "
                    "(progressive ones), which then get seek points; 'optimize' all, about 4 % "
                    "smaller");
  arguments->Flag("--overwrite", &options_.overwrite,
                  "Replace the data set at the destination, in one step at the end");
  arguments->Choice("--on-error", &on_error_, {"raise", "skip"},
                    "What a sample that cannot be read does: end the pack, or be left out and "
                    "listed");
  arguments->Flag("--no-fsync", &no_fsync_,
                  "Do not wait for the disk; a power cut soon after may lose the data set");
  arguments->Text("--staging", &staging_,
                  "Where a set is packed before it is sent to a URL: a folder of this machine with "
                  "room for all of it");
  arguments->Text("--message", &options_.message, "A note to keep in the manifest");
  arguments->Note(
      "The result is WebDataset-compatible tars, an index beside each, and headrace.json, which is "
      "put\nin place last. Stopped at any point, the destination is as it was before; the same "
      "command goes on\nfrom the shards that are finished. The bytes do not depend on --threads.");
  arguments->Example("headrace pack photos/ packed/",
                     "photos/CLASS/NAME.jpg becomes samples with the fields jpg and cls");
  arguments->Example("headrace pack --shuffle 1 --shard-size 64MiB photos/ packed/",
                     "Classes mixed over small shards: good for training");
  arguments->Example("headrace pack part-*.tar packed/", "Tars of any dialect, packed anew");
}

Result<ExitCode> PackCommand::Run(Session* session) {
  destination_ = sources_.back();
  sources_.pop_back();
  // A trailing slash does not name another folder.
  while (destination_.size() > 1 && destination_.back() == '/') destination_.pop_back();
  HR_ASSIGN_OR_RETURN(FileSystem * fs, LocateAll(*session, &sources_));
  HR_ASSIGN_OR_RETURN(object::Place to, Locate(*session, destination_));
  destination_ = std::move(to.path);
  std::string folder = destination_;  // of this machine, where it is packed
  if (IsUrl(destination_)) {
    HR_RETURN_IF_ERROR(dataset::CheckUploadPlace(to.fs, destination_));
    HR_ASSIGN_OR_RETURN(folder, StagingFolder());
  }
  dataset::PackProgress progress;
  options_.progress = &progress;
  options_.threads = static_cast<uint32_t>(std::min<uint64_t>(threads_, 1024));
  options_.skip_unreadable = on_error_ == "skip";
  options_.sync = !no_fsync_;
  options_.seek_spacing = SeekSpacing(seek_points_);
  if (jpeg_ == "optimize") options_.jpeg = codec::JpegTranscode::kOptimize;
  if (jpeg_ == "sequential") options_.jpeg = codec::JpegTranscode::kSequential;
  auto start = std::chrono::steady_clock::now();
  Result<dataset::PackReport> packed = [&] {
    ProgressLine line("packing", *session, [&progress] {
      return ProgressFigures{progress.samples, progress.total_samples, progress.bytes,
                             progress.total_bytes};
    });
    return dataset::Pack(fs, sources_, folder, options_, session->ctx);
  }();
  HR_ASSIGN_OR_RETURN(dataset::PackReport report, std::move(packed));
  if (folder != destination_) HR_RETURN_IF_ERROR(Send(session, folder, to.fs));
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (session->json) {
    session->out->Print(ReportJson(report, elapsed.count()));
  } else {
    NoteLeftOut(*session, report);
    PrintReport(session, report, elapsed.count());
  }
  return ExitCode::kOk;
}

// The same for the same destination, so that a pack that was broken off goes on there.
Result<std::string> PackCommand::StagingFolder() const {
  if (staging_.empty() || IsUrl(staging_))
    return Error(Code::kInvalidArgument,
                 "{} is no folder of this machine: say with --staging FOLDER where to pack before "
                 "the result is sent there",
                 EscapeText(destination_));
  if (options_.overwrite)
    return Status(Code::kInvalidArgument,
                  "--overwrite is for folders: what is at a URL is never replaced; choose another");
  Sha256 name;
  name.Update(destination_);
  return JoinPath(staging_, "headrace-pack-" + name.Finish().substr(0, 16));
}

Status PackCommand::Send(Session* session, const std::string& folder, FileSystem* to) const {
  dataset::PackProgress progress;
  dataset::UploadOptions options;
  options.progress = &progress;
  Status sent = [&] {
    ProgressLine line("sending", *session, [&progress] {
      return ProgressFigures{0, progress.total_samples, progress.bytes, progress.total_bytes};
    });
    return dataset::UploadDataset(session->fs, folder, to, destination_, options, session->ctx);
  }();
  if (!sent.ok())
    return std::move(sent).Prefix(fmt::format(
        "packed into {}, which is kept for the next try, and not sent", EscapeText(folder)));
  return session->fs->RemoveTree(folder);
}

void PackCommand::NoteLeftOut(const Session& session, const dataset::PackReport& report) const {
  size_t shown = 0;
  for (const std::string& line : report.left_out) {
    if (shown++ < kMaxNotes) Note(session, "not packed: " + line);
  }
  for (const dataset::PackSkip& skip : report.skipped) {
    if (shown++ < kMaxNotes)
      Note(session, fmt::format("left out: '{}': {}", EscapeText(skip.key), skip.reason));
  }
  if (shown > kMaxNotes)
    Note(session, fmt::format("and {} more; --json lists all", FormatCount(shown - kMaxNotes)));
}

// "12 JPEGs rewritten, from 1.2 MiB to 1.3 MiB; kept as they are: 5 unchanged, 1 cannot".
std::string DescribeRewrites(const dataset::JpegTally& tally) {
  std::string text =
      fmt::format("{} JPEGs rewritten, from {} to {}", FormatCount(tally.num_rewritten()),
                  FormatSize(tally.bytes_before), FormatSize(tally.bytes_after));
  const char* before = "; kept as they are: ";
  for (size_t i = 1; i < tally.files.size(); ++i) {
    auto result = static_cast<codec::TranscodeResult>(i);
    if (tally.files[i] == 0 || result == codec::TranscodeResult::kRewritten) continue;
    text += fmt::format("{}{} {}", before, FormatCount(tally.files[i]),
                        codec::TranscodeResultName(result));
    before = ", ";
  }
  return text;
}

void PackCommand::PrintReport(Session* session, const dataset::PackReport& report,
                              double seconds) const {
  session->out->Print("{} samples in {} shards, {}, {:.1f} s\n", FormatCount(report.samples),
                      FormatCount(report.shards), FormatSize(report.bytes), seconds);
  if (report.reused_shards != 0)
    session->out->Print("{} shards were finished by an earlier run\n",
                        FormatCount(report.reused_shards));
  if (!report.skipped.empty())
    session->out->Print("{} samples left out\n", FormatCount(report.skipped.size()));
  if (jpeg_ != "keep") session->out->Print("{}\n", DescribeRewrites(report.jpeg));
  if (std::string seek = DescribeSeekPoints(report.seek); !seek.empty())
    session->out->Print("{}\n", seek);
  session->out->Print("version {}\n", report.version);
}

Json PackCommand::ReportJson(const dataset::PackReport& report, double seconds) const {
  Json skipped = Json::MakeArray(), left_out = Json::MakeArray();
  for (const dataset::PackSkip& skip : report.skipped)
    skipped.Append(Json::MakeObject().Set("key", EscapeText(skip.key)).Set("reason", skip.reason));
  for (const std::string& line : report.left_out) left_out.Append(line);
  return Json::MakeObject()
      .Set("version", report.version)
      .Set("samples", report.samples)
      .Set("shards", report.shards)
      .Set("bytes", report.bytes)
      .Set("reused_shards", report.reused_shards)
      .Set("seconds", seconds)
      .Set("jpeg", report.jpeg.ToJson())
      .Set("seek_points", report.seek.ToJson())
      .Set("skipped", std::move(skipped))
      .Set("left_out", std::move(left_out));
}

}  // namespace

std::unique_ptr<Command> MakePackCommand() { return std::make_unique<PackCommand>(); }

}  // namespace headrace::cli
