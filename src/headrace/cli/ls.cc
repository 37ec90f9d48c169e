#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/dataset/dataset.h"

namespace headrace::cli {
namespace {

using dataset::Dataset;
using dataset::SampleReader;
using dataset::SampleView;

// Fields of a shard by what is known of their bytes.
struct ChecksumCount {
  uint64_t in_index = 0;    // the index has their checksum
  uint64_t learned = 0;     // an earlier read has left it beside the shard
  uint64_t unverified = 0;  // nothing is known yet
};

class LsCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Result<ChecksumCount> CountChecksums(Session* session, const std::shared_ptr<const Dataset>& data,
                                       size_t shard) const;
  Status ListShards(Session* session, const std::shared_ptr<const Dataset>& data) const;
  Status ListSamples(Session* session, const std::shared_ptr<const Dataset>& data) const;
  Json SampleJson(const Dataset& data, const SampleView& view) const;
  void PrintSample(Session* session, const Dataset& data, const SampleView& view) const;

  FileSystem* fs_ = nullptr;  // of the data set
  std::string dataset_;
  bool samples_ = false;
  std::optional<uint64_t> limit_;
  uint64_t from_ = 0;
};

void LsCommand::Declare(Arguments* arguments) {
  arguments->Text("dataset", &dataset_,
                  "A data set, tar, folder of tars, plain folder or list, by path or URL");
  arguments->Flag("--samples", &samples_,
                  "List samples: number, key, and each field with its size");
  arguments->Count("--limit", &limit_, "With --samples: at most this many");
  arguments->Count("--from", &from_, "With --samples: begin with the sample of this number");
  arguments->Note(
      "Fields are 'verified' when a checksum is kept for them, by the index or learned at "
      "an earlier\nread; the others are checked from their second read on, or after "
      "`headrace verify --learn`.");
  arguments->Example("headrace ls packed/", "The shards, and how much of them has a checksum");
  arguments->Example("headrace ls --samples --limit 10 packed/", "The first ten samples");
}

Result<ExitCode> LsCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, dataset_));
  fs_ = place.fs;
  HR_ASSIGN_OR_RETURN(auto data, Dataset::Open(place.fs, place.path, {}));
  HR_RETURN_IF_ERROR(samples_ ? ListSamples(session, data) : ListShards(session, data));
  return ExitCode::kOk;
}

// O(1) unless the index lacks checksums; then the ones learned are counted.
Result<ChecksumCount> LsCommand::CountChecksums(Session* session,
                                                const std::shared_ptr<const Dataset>& data,
                                                size_t shard) const {
  HR_ASSIGN_OR_RETURN(const dataset::IndexReader* index, data->Index(shard));
  ChecksumCount count;
  count.unverified = index->num_unchecked_fields();
  count.in_index = index->num_fields() - count.unverified;
  if (count.unverified == 0) return count;
  // Listing makes no file where there is none: without a file of learned checksums there are none.
  const dataset::ManifestShard& entry = data->manifest().shards[shard];
  if (entry.index.empty()) return count;
  std::string suffix(dataset::kIndexSuffix);
  std::string learned = entry.index.substr(0, entry.index.size() - suffix.size()) +
                        std::string(dataset::kChecksumSuffix);
  std::string folder = data->path();
  bool there = fs_->Exists(JoinPath(folder, learned)) ||
               fs_->Exists(JoinPath(JoinPath(folder, dataset::kInPlaceFolder), learned)) ||
               fs_->Exists(JoinPath(DirectoryName(folder), learned));
  if (!there) return count;
  auto reader = SampleReader::Create(data, {});
  for (uint64_t i = data->first_sample(shard); i < data->first_sample(shard + 1); ++i) {
    HR_RETURN_IF_ERROR(session->ctx.Check());
    HR_ASSIGN_OR_RETURN(SampleView view, reader->Locate(i));
    for (const dataset::FieldEntry& field : view.entries) count.learned += field.learned ? 1 : 0;
  }
  count.unverified -= count.learned;
  return count;
}

Status LsCommand::ListShards(Session* session, const std::shared_ptr<const Dataset>& data) const {
  Output* out = session->out;
  Json shards = Json::MakeArray();
  uint64_t bytes = 0, seek_shards = 0, seek_bytes = 0;
  ChecksumCount all;
  if (!session->json)
    out->Print("{:>12} {:>12} {:>14} {:>14}  {}\n", "samples", "size", "verified", "unverified",
               "shard");
  for (size_t i = 0; i < data->shards().size() && !out->closed(); ++i) {
    const dataset::ShardInfo& shard = data->shards()[i];
    HR_ASSIGN_OR_RETURN(ChecksumCount count, CountChecksums(session, data, i));
    HR_ASSIGN_OR_RETURN(const dataset::IndexReader* index, data->Index(i));
    seek_shards += index->has_seek_points() ? 1 : 0;
    seek_bytes += index->seek_points_bytes();
    bytes += shard.size_bytes;
    all.in_index += count.in_index;
    all.learned += count.learned;
    all.unverified += count.unverified;
    if (session->json) {
      shards.Append(Json::MakeObject()
                        .Set("name", EscapeText(shard.name))
                        .Set("samples", shard.num_samples)
                        .Set("bytes", shard.size_bytes)
                        .Set("seek_points_bytes", index->seek_points_bytes())
                        .Set("checksums", Json::MakeObject()
                                              .Set("in_index", count.in_index)
                                              .Set("learned", count.learned)
                                              .Set("unverified", count.unverified)));
    } else {
      out->Print("{:>12} {:>12} {:>14} {:>14}  {}\n", FormatCount(shard.num_samples),
                 FormatSize(shard.size_bytes), FormatCount(count.in_index + count.learned),
                 FormatCount(count.unverified), EscapeText(shard.name));
    }
  }
  if (!session->json) {
    out->Print("{:>12} {:>12} {:>14} {:>14}  {} shards, version {}\n",
               FormatCount(data->num_samples()), FormatSize(bytes),
               FormatCount(all.in_index + all.learned), FormatCount(all.unverified),
               FormatCount(data->shards().size()), data->version().substr(0, 12));
    if (seek_shards != 0)
      out->Print("seek points in {} of {} shards, {}\n", FormatCount(seek_shards),
                 FormatCount(data->shards().size()), FormatSize(seek_bytes));
    return OkStatus();
  }
  Json fields = Json::MakeArray(), classes = Json::MakeArray();
  for (const std::string& name : data->fields()) fields.Append(EscapeText(name));
  for (const std::string& name : data->manifest().classes) classes.Append(EscapeText(name));
  out->Print(Json::MakeObject()
                 .Set("version", data->version())
                 .Set("kind", data->kind())
                 .Set("samples", data->num_samples())
                 .Set("bytes", bytes)
                 .Set("seek_points_bytes", seek_bytes)
                 .Set("fields", std::move(fields))
                 .Set("classes", std::move(classes))
                 .Set("message", data->manifest().message)
                 .Set("shards", std::move(shards)));
  return OkStatus();
}

Status LsCommand::ListSamples(Session* session, const std::shared_ptr<const Dataset>& data) const {
  Output* out = session->out;
  uint64_t begin = std::min(from_, data->num_samples());
  uint64_t left = data->num_samples() - begin;
  uint64_t end = begin + std::min(left, limit_.value_or(left));
  auto reader = SampleReader::Create(data, {.verify_checksums = true, .learn_checksums = false});
  if (session->json) out->Print("[");
  for (uint64_t i = begin; i < end && !out->closed(); ++i) {
    HR_RETURN_IF_ERROR(session->ctx.Check());
    HR_ASSIGN_OR_RETURN(SampleView view, reader->Locate(i));
    if (session->json) {
      out->Print("{}{}", i == begin ? "\n" : ",\n", SampleJson(*data, view).Dump());
    } else {
      PrintSample(session, *data, view);
    }
  }
  if (session->json) out->Print("\n]\n");
  return OkStatus();
}

Json LsCommand::SampleJson(const Dataset& data, const SampleView& view) const {
  Json fields = Json::MakeArray();
  for (const dataset::FieldEntry& entry : view.entries) {
    Json field = Json::MakeObject()
                     .Set("name", EscapeText(data.fields()[entry.field]))
                     .Set("offset", entry.offset)
                     .Set("bytes", entry.length);
    if (entry.crc32c) field.Set("crc32c", fmt::format("{:08x}", *entry.crc32c));
    fields.Append(std::move(field));
  }
  return Json::MakeObject()
      .Set("index", view.id)
      .Set("key", EscapeText(view.key))
      .Set("shard", EscapeText(view.shard))
      .Set("fields", std::move(fields));
}

void LsCommand::PrintSample(Session* session, const Dataset& data, const SampleView& view) const {
  session->out->Print("{}\t{}", view.id, EscapeText(view.key));
  for (const dataset::FieldEntry& entry : view.entries)
    session->out->Print("\t{}:{}", EscapeText(data.fields()[entry.field]), entry.length);
  session->out->Print("\n");
}

}  // namespace

std::unique_ptr<Command> MakeLsCommand() { return std::make_unique<LsCommand>(); }

}  // namespace headrace::cli
