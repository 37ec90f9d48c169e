#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/cli/progress_line.h"
#include "headrace/cli/seek_points.h"
#include "headrace/dataset/index_build.h"
#include "headrace/env/process.h"

namespace headrace::cli {
namespace {

using dataset::IndexReport;
using dataset::ShardReport;

constexpr size_t kMaxNotes = 5;

class IndexCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  void NoteFindings(const Session& session, const IndexReport& report) const;
  Status MakePathsAbsolute();
  Json ReportJson(const IndexReport& report) const;

  std::vector<std::string> paths_;
  dataset::IndexOptions options_;
  std::string seek_points_ = "8";
  uint64_t threads_ = 0;
  bool separate_ = false;
};

void IndexCommand::Declare(Arguments* arguments) {
  arguments->Texts(
      "paths", &paths_, 1,
      "Tars and folders of tars, or the same of TFRecords, or one MDS folder, plain folder or "
      "list, by path or URL");
  arguments->Text("--output", &options_.output,
                  "Folder for the indexes and the manifest; without it they lie beside the data");
  DeclareSeekPoints(arguments, &seek_points_);
  arguments->Flag("--checksums", &options_.build.checksums,
                  "Keep the checksums of all data, also with --seek-points=off");
  arguments->Count("--threads", &threads_, "Threads that read the data; 0 for one a processor");
  arguments->Flag("--allow-damage", &options_.build.allow_damage,
                  "Index what can be read of a damaged tar, TFRecord or MDS shard");
  arguments->Flag("--separate-keys", &separate_,
                  "A key that comes again after other keys is a sample of its own, not an error");
  arguments->Text("--message", &options_.message, "A note to keep in the manifest");
  arguments->Note(
      "The data stays where it is and as it is. All of it is read once, for the seek points of "
      "its JPEGs and\nfor checksums. With --seek-points=off only headers and sizes are read, which "
      "takes seconds; checksums\nare then learned at the first read of each sample. Stopped with "
      "Ctrl-C, an index that was there\nbefore is as it was.");
  arguments->Example("headrace index shards/", "Tars beside each other become one data set");
  arguments->Example("headrace index --seek-points=off shards/",
                     "The same from the headers alone, without reading the data");
  arguments->Example("headrace index --output indexes/ /readonly/shards/*.tar",
                     "The data's own folder is not written to");
}

// An index in an absolute folder names its data by absolute paths.
Status IndexCommand::MakePathsAbsolute() {
  if (!options_.output.starts_with('/')) return OkStatus();
  for (std::string& path : paths_) {
    if (IsAbsolutePath(path)) continue;
    HR_ASSIGN_OR_RETURN(std::string here, CurrentDirectory());
    path = JoinPath(here, path);
  }
  return OkStatus();
}

dataset::SeekTally SumOf(const IndexReport& report) {
  dataset::SeekTally all;
  for (const ShardReport& shard : report.shards) all.Add(shard.seek);
  return all;
}

Result<ExitCode> IndexCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(FileSystem * fs, LocateAll(*session, &paths_));
  HR_ASSIGN_OR_RETURN(object::Place to, Locate(*session, options_.output));
  options_.output = std::move(to.path);
  HR_RETURN_IF_ERROR(MakePathsAbsolute());
  if (separate_) options_.build.repeated_keys = dataset::RepeatedKeys::kSeparate;
  dataset::IndexProgress progress;
  options_.build.progress = &progress;
  options_.build.threads = static_cast<uint32_t>(std::min<uint64_t>(threads_, 1024));
  options_.build.seek_spacing = SeekSpacing(seek_points_);
  Result<IndexReport> indexed = [&] {
    ProgressLine line("indexing", *session, [&progress] {
      return ProgressFigures{progress.samples, progress.total_samples, progress.bytes,
                             progress.total_bytes};
    });
    return dataset::IndexDataset(fs, paths_, options_, session->ctx);
  }();
  HR_ASSIGN_OR_RETURN(IndexReport report, std::move(indexed));
  if (session->json) {
    session->out->Print(ReportJson(report));
    return ExitCode::kOk;
  }
  NoteFindings(*session, report);
  session->out->Print("{} samples in {} shards, {}\n", FormatCount(report.manifest.num_samples()),
                      FormatCount(report.manifest.shards.size()), EscapeText(report.manifest_path));
  if (std::string seek = DescribeSeekPoints(SumOf(report)); !seek.empty())
    session->out->Print("{}\n", seek);
  session->out->Print("version {}\n", report.manifest.ComputeVersion());
  return ExitCode::kOk;
}

void IndexCommand::NoteFindings(const Session& session, const IndexReport& report) const {
  size_t shown = 0;
  auto note = [&](const std::string& text) {
    if (shown++ < kMaxNotes) Note(session, text);
  };
  for (const ShardReport& shard : report.shards) {
    std::string name = EscapeText(shard.name);
    if (shard.num_skipped != 0)
      note(fmt::format("{}: {} files are no samples, the first '{}'", name, shard.num_skipped,
                       EscapeText(shard.first_skipped)));
    for (const dataset::TarDamage& damage : shard.scan.damage)
      note(fmt::format("{}: damage at byte {}: {}; went on at byte {}", name, damage.offset,
                       damage.reason, damage.resumed_at));
  }
  if (shown > kMaxNotes)
    Note(session, fmt::format("and {} more; --json lists all", FormatCount(shown - kMaxNotes)));
}

Json IndexCommand::ReportJson(const IndexReport& report) const {
  Json shards = Json::MakeArray();
  for (size_t i = 0; i < report.shards.size(); ++i) {
    const ShardReport& shard = report.shards[i];
    Json damage = Json::MakeArray();
    for (const dataset::TarDamage& d : shard.scan.damage)
      damage.Append(Json::MakeObject()
                        .Set("offset", d.offset)
                        .Set("resumed_at", d.resumed_at)
                        .Set("reason", d.reason));
    shards.Append(Json::MakeObject()
                      .Set("name", EscapeText(shard.name))
                      .Set("samples", report.manifest.shards[i].samples)
                      .Set("skipped", shard.num_skipped)
                      .Set("damage", std::move(damage)));
  }
  return Json::MakeObject()
      .Set("version", report.manifest.ComputeVersion())
      .Set("manifest", EscapeText(report.manifest_path))
      .Set("samples", report.manifest.num_samples())
      .Set("seek_points", SumOf(report).ToJson())
      .Set("shards", std::move(shards));
}

}  // namespace

std::unique_ptr<Command> MakeIndexCommand() { return std::make_unique<IndexCommand>(); }

}  // namespace headrace::cli
