#include "headrace/dataset/verify.h"

#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/cli/progress_line.h"
#include "headrace/cli/seek_points.h"

namespace headrace::cli {
namespace {

using dataset::ShardVerdict;
using dataset::VerifyReport;

class VerifyCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Json ReportJson(const VerifyReport& report, const ShardVerdict& all) const;
  void PrintReport(Session* session, const VerifyReport& report, const ShardVerdict& all) const;

  std::string dataset_;
  uint64_t threads_ = 0;
  bool learn_ = false, pixels_ = false;
};

void VerifyCommand::Declare(Arguments* arguments) {
  arguments->Text("dataset", &dataset_,
                  "A data set, tar, folder of tars, plain folder or list, by path or URL");
  arguments->Flag("--learn", &learn_,
                  "Compute the checksums that are missing and keep them beside the shards");
  arguments->Flag("--pixels", &pixels_,
                  "Also decode every JPEG from its seek points, whole and in parts, and compare "
                  "each byte with libjpeg-turbo's decode of the file");
  arguments->Count("--threads", &threads_, "Threads that read and decode; 0 for one a processor");
  arguments->Note(
      "Reads everything and checks manifest, indexes, every field, and the shards' bytes "
      "between them.\nEvery damage is one line with its shard, offset and key. Exit code "
      "1 when there is any.");
  arguments->Example("headrace verify packed/", "Is everything as it was when it was packed?");
  arguments->Example("headrace verify --pixels packed/",
                     "Are the pixels the same with seek points and without?");
  arguments->Example("headrace verify --learn tars/",
                     "Give an index that was made from headers its checksums");
}

// "pixels: 1,230 of 1,234 JPEGs compared in 6,150 regions, none differs; not compared: 3
// progressive, 1 sampling".
std::string DescribePixels(const dataset::PixelTally& tally) {
  uint64_t images = 0;
  for (uint64_t count : tally.images) images += count;
  std::string text =
      fmt::format("pixels: {} of {} JPEGs compared in {} regions, {}", FormatCount(tally.images[0]),
                  FormatCount(images), FormatCount(tally.regions),
                  tally.different == 0 ? "none differs" : FormatCount(tally.different) + " differ");
  return text + DescribeRefusals("; not compared: ", tally.images);
}

Json PixelsJson(const dataset::PixelTally& tally) {
  uint64_t images = 0;
  for (uint64_t count : tally.images) images += count;
  return Json::MakeObject()
      .Set("images", images)
      .Set("compared", tally.images[0])
      .Set("regions", tally.regions)
      .Set("different", tally.different)
      .Set("not_compared", dataset::RefusalsJson(tally.images));
}

ShardVerdict Sum(const VerifyReport& report) {
  ShardVerdict all;
  for (const ShardVerdict& shard : report.shards) all.Add(shard);
  return all;
}

Result<ExitCode> VerifyCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, dataset_));
  HR_ASSIGN_OR_RETURN(auto data, dataset::Dataset::Open(place.fs, place.path, {}));
  dataset::VerifyProgress progress;
  dataset::VerifyOptions options;
  options.learn = learn_;
  options.pixels = pixels_;
  options.threads = static_cast<uint32_t>(std::min<uint64_t>(threads_, 1024));
  options.progress = &progress;
  Result<VerifyReport> verified = [&] {
    ProgressLine line("verifying", *session, [&progress] {
      return ProgressFigures{progress.samples, progress.total_samples, progress.bytes, 0};
    });
    return dataset::Verify(data, options, session->ctx);
  }();
  HR_ASSIGN_OR_RETURN(VerifyReport report, std::move(verified));
  ShardVerdict all = Sum(report);
  if (session->json) {
    session->out->Print(ReportJson(report, all));
  } else {
    PrintReport(session, report, all);
  }
  return report.num_faults == 0 ? ExitCode::kOk : ExitCode::kBadData;
}

void VerifyCommand::PrintReport(Session* session, const VerifyReport& report,
                                const ShardVerdict& all) const {
  for (const Status& fault : report.faults) session->out->Print("{}\n", fault.ToString());
  if (report.faults.size() < report.num_faults)
    session->out->Print("and {} more\n", FormatCount(report.num_faults - report.faults.size()));
  session->out->Print("{} samples, {}: {} fields match their checksum", FormatCount(all.samples),
                      FormatSize(all.bytes), FormatCount(all.checked));
  if (all.learned != 0)
    session->out->Print(", {} had none and have one now", FormatCount(all.learned));
  if (all.unverified != 0)
    session->out->Print(", {} have none (--learn gives them one)", FormatCount(all.unverified));
  session->out->Print("; {}\n", all.damaged == 0 ? std::string("no damage")
                                                 : FormatCount(all.damaged) + " damaged");
  if (pixels_) session->out->Print("{}\n", DescribePixels(all.pixels));
}

Json VerifyCommand::ReportJson(const VerifyReport& report, const ShardVerdict& all) const {
  auto verdict = [](const ShardVerdict& v) {
    return Json::MakeObject()
        .Set("samples", v.samples)
        .Set("bytes", v.bytes)
        .Set("checked", v.checked)
        .Set("learned", v.learned)
        .Set("unverified", v.unverified)
        .Set("damaged", v.damaged);
  };
  Json shards = Json::MakeArray(), faults = Json::MakeArray();
  for (const ShardVerdict& shard : report.shards)
    shards.Append(verdict(shard).Set("name", EscapeText(shard.name)));
  for (const Status& fault : report.faults) {
    const Location& place = fault.location();
    Json json = Json::MakeObject()
                    .Set("code", CodeName(fault.code()))
                    .Set("message", fault.message())
                    .Set("file", EscapeText(place.file))
                    .Set("key", EscapeText(place.key))
                    .Set("field", EscapeText(place.field));
    if (place.offset) json.Set("offset", *place.offset);
    faults.Append(std::move(json));
  }
  Json json = verdict(all);
  if (pixels_) json.Set("pixels", PixelsJson(all.pixels));
  return std::move(json)
      .Set("ok", report.num_faults == 0)
      .Set("shards", std::move(shards))
      .Set("faults", std::move(faults));
}

}  // namespace

std::unique_ptr<Command> MakeVerifyCommand() { return std::make_unique<VerifyCommand>(); }

}  // namespace headrace::cli
