#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
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
  bool separate_ = false;
};

void IndexCommand::Declare(Arguments* arguments) {
  arguments->Texts("paths", &paths_, 1,
                   "Tars and folders of tars, or one plain folder, or one list");
  arguments->Text("--output", &options_.output,
                  "Folder for the indexes and the manifest; without it they lie beside the data");
  arguments->Flag("--checksums", &options_.build.checksums,
                  "Read all data and keep its checksums; without it only headers are read");
  arguments->Flag("--allow-damage", &options_.build.allow_damage,
                  "Index what can be read of a damaged tar");
  arguments->Flag("--separate-keys", &separate_,
                  "A key that comes again after other keys is a sample of its own, not an error");
  arguments->Text("--message", &options_.message, "A note to keep in the manifest");
  arguments->Note(
      "The data stays where it is and as it is. Checksums that are not computed now are "
      "learned at the\nfirst read of each sample.");
  arguments->Example("headrace index shards/", "Tars beside each other become one data set");
  arguments->Example("headrace index --output indexes/ /readonly/shards/*.tar",
                     "The data's own folder is not written to");
}

// An index in an absolute folder names its data by absolute paths.
Status IndexCommand::MakePathsAbsolute() {
  if (!options_.output.starts_with('/')) return OkStatus();
  for (std::string& path : paths_) {
    if (path.starts_with('/')) continue;
    HR_ASSIGN_OR_RETURN(std::string here, CurrentDirectory());
    path = JoinPath(here, path);
  }
  return OkStatus();
}

Result<ExitCode> IndexCommand::Run(Session* session) {
  HR_RETURN_IF_ERROR(MakePathsAbsolute());
  if (separate_) options_.build.repeated_keys = dataset::RepeatedKeys::kSeparate;
  HR_ASSIGN_OR_RETURN(IndexReport report,
                      dataset::IndexDataset(session->fs, paths_, options_, session->ctx));
  if (session->json) {
    session->out->Print(ReportJson(report));
    return ExitCode::kOk;
  }
  NoteFindings(*session, report);
  session->out->Print("{} samples in {} shards, {}\nversion {}\n",
                      FormatCount(report.manifest.num_samples()),
                      FormatCount(report.manifest.shards.size()), EscapeText(report.manifest_path),
                      report.manifest.ComputeVersion());
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
      .Set("shards", std::move(shards));
}

}  // namespace

std::unique_ptr<Command> MakeIndexCommand() { return std::make_unique<IndexCommand>(); }

}  // namespace headrace::cli
