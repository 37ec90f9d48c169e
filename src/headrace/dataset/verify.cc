#include "headrace/dataset/verify.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/codec/pixel_check.h"
#include "headrace/dataset/crew.h"

namespace headrace::dataset {
namespace {

// Faults of the machine, not of the data: they end the run.
bool EndsRun(Code code) {
  return code == Code::kCancelled || code == Code::kDeadlineExceeded ||
         code == Code::kPermissionDenied || code == Code::kResourceExhausted;
}

// Verifies one shard at a time. One a thread.
class ShardVerifier {
 public:
  ShardVerifier(FileSystem* fs, std::shared_ptr<const Dataset> dataset,
                const VerifyOptions& options, const Context& ctx)
      : fs_(fs),
        dataset_(std::move(dataset)),
        options_(options),
        ctx_(ctx),
        reader_(SampleReader::Create(dataset_, {true, options.learn, options.pixels})) {}

  Status Run(size_t shard);

  ShardVerdict verdict;
  std::vector<Status> faults;

 private:
  Status Note(Status fault);
  Status CheckSample(uint64_t sample);
  Status CheckFieldByField(uint64_t sample);
  void Count(const SampleView& view, std::span<const FieldEntry> before);
  Status CheckPixels(const SampleView& view);
  Status CheckPixelsOf(const SampleView& view, const FieldView& field);
  Status CheckWholeFile(const ManifestShard& shard);
  std::string FilePath(const ManifestShard& shard) const;

  FileSystem* fs_;
  std::shared_ptr<const Dataset> dataset_;
  const VerifyOptions& options_;
  const Context& ctx_;
  std::unique_ptr<SampleReader> reader_;
  codec::PixelChecker pixel_checker_;
  std::vector<FieldEntry> entries_;  // of the sample being checked
};

// Keeps a fault of the data and returns OK; returns a fault of the machine.
Status ShardVerifier::Note(Status fault) {
  if (fault.ok() || EndsRun(fault.code())) return fault;
  ++verdict.damaged;
  if (faults.size() < VerifyReport::kMaxFaults) faults.push_back(std::move(fault));
  return OkStatus();
}

Status ShardVerifier::Run(size_t shard) {
  const ShardInfo& info = dataset_->shards()[shard];
  verdict = {};
  faults.clear();
  verdict.name = info.name;
  verdict.samples = info.num_samples;
  auto index = dataset_->Index(shard);
  if (!index.ok()) return Note(std::move(index).status());
  Status whole_index = (*index)->VerifyAll();
  if (!whole_index.ok())
    HR_RETURN_IF_ERROR(Note(std::move(whole_index).At({info.name, {}, {}, {}})));
  Status opened = dataset_->CheckShard(shard, ctx_);
  if (!opened.ok()) return Note(std::move(opened));
  uint64_t end = dataset_->first_sample(shard + 1);
  for (uint64_t sample = dataset_->first_sample(shard); sample < end; ++sample) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_RETURN_IF_ERROR(CheckSample(sample));
    if (options_.progress) options_.progress->samples.fetch_add(1, std::memory_order_relaxed);
  }
  const ManifestShard& entry = dataset_->manifest().shards[shard];
  // A damaged field is in the file's checksum too, and is named already.
  if (verdict.damaged != 0 || !entry.crc32c || dataset_->kind() != "tar") return OkStatus();
  return Note(CheckWholeFile(entry));
}

Status ShardVerifier::CheckSample(uint64_t sample) {
  auto located = reader_->Locate(sample);
  if (!located.ok()) return Note(std::move(located).status());
  entries_.assign(located->entries.begin(), located->entries.end());
  auto read = reader_->Read(sample, {}, ctx_);
  if (!read.ok()) {
    if (EndsRun(read.status().code())) return std::move(read).status();
    return CheckFieldByField(sample);
  }
  Count(*read, entries_);
  return CheckPixels(*read);
}

// Tells which of the sample's fields are damaged.
Status ShardVerifier::CheckFieldByField(uint64_t sample) {
  for (const FieldEntry& entry : entries_) {
    auto read = reader_->Read(sample, std::span(&entry.field, 1), ctx_);
    if (read.ok()) {
      Count(*read, std::span(&entry, 1));
      HR_RETURN_IF_ERROR(CheckPixels(*read));
    } else {
      HR_RETURN_IF_ERROR(Note(std::move(read).status()));
    }
  }
  return OkStatus();
}

void ShardVerifier::Count(const SampleView& view, std::span<const FieldEntry> before) {
  for (const FieldView& field : view.fields) {
    verdict.bytes += field.data.size();
    if (options_.progress) options_.progress->bytes.fetch_add(field.data.size());
  }
  for (const FieldEntry& entry : before) {
    if (entry.in_index || entry.crc32c) {
      ++verdict.checked;
    } else if (options_.learn) {
      ++verdict.learned;
    } else {
      ++verdict.unverified;
    }
  }
}

Status ShardVerifier::CheckPixels(const SampleView& view) {
  if (!options_.pixels) return OkStatus();
  for (const FieldView& field : view.fields) {
    if (codec::DetectImageFormat(field.data) == codec::ImageFormat::kJpeg)
      HR_RETURN_IF_ERROR(CheckPixelsOf(view, field));
  }
  return OkStatus();
}

Status ShardVerifier::CheckPixelsOf(const SampleView& view, const FieldView& field) {
  auto count = [&](codec::SeekRefusal why) { ++verdict.pixels.images[static_cast<size_t>(why)]; };
  auto checked = pixel_checker_.Check(field.data, {field.seek_points, field.crc32c}, view.id);
  if (!checked.ok()) {  // of no use with or without seek points
    count(checked.status().code() == Code::kUnimplemented ? codec::SeekRefusal::kCoding
                                                          : codec::SeekRefusal::kDamaged);
    return OkStatus();
  }
  count(checked->refusal);
  verdict.pixels.regions += checked->num_regions;
  if (!checked->difference) return OkStatus();
  ++verdict.pixels.different;
  const codec::PixelDifference& d = *checked->difference;
  auto entry = std::find_if(view.entries.begin(), view.entries.end(),
                            [&](const FieldEntry& e) { return e.field == field.field; });
  return Note(Error(Code::kDataLoss,
                    "decoded from its seek points, the image differs from libjpeg-turbo's: pixel "
                    "({}, {}) of the region {} x {} at ({}, {}), channel {}, is {}, expected {}. "
                    "Make the index again, and please report the file",
                    d.x, d.y, d.region.width, d.region.height, d.region.x, d.region.y, d.channel,
                    d.found, d.expected)
                  .At(reader_->Where(*entry)));
}

std::string ShardVerifier::FilePath(const ManifestShard& shard) const {
  const std::string& base = dataset_->manifest().base;
  if (base.empty()) return JoinPath(dataset_->path(), shard.name);
  if (base.front() == '/') return JoinPath(base, shard.name);
  return JoinPath(JoinPath(dataset_->path(), base), shard.name);
}

// Finds damage between the fields: headers, padding, the end.
Status ShardVerifier::CheckWholeFile(const ManifestShard& shard) {
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(FilePath(shard)));
  constexpr size_t kPart = size_t{1} << 20;
  AlignedBuffer buffer;
  if (!buffer.Reserve(kPart)) return Status(Code::kResourceExhausted, "no memory for a buffer");
  uint32_t crc = 0;
  for (uint64_t offset = 0; offset < file->size(); offset += kPart) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    MutableBytes part(buffer.data(), std::min<uint64_t>(kPart, file->size() - offset));
    HR_RETURN_IF_ERROR(file->ReadAt(offset, part, ctx_));
    crc = Crc32c(part, crc);
  }
  if (crc == *shard.crc32c) return OkStatus();
  return Error(Code::kDataLoss,
               "the fields are right, but the file around them has CRC32C {:08x}, expected {:08x}: "
               "tar headers are damaged; get a good copy of it",
               crc, *shard.crc32c)
      .At({.file = shard.name, .offset = {}, .key = {}, .field = {}});
}

class VerifyRun {
 public:
  VerifyRun(FileSystem* fs, std::shared_ptr<const Dataset> dataset, const VerifyOptions& options,
            const Context& ctx)
      : fs_(fs),
        dataset_(std::move(dataset)),
        options_(options),
        ctx_(ctx),
        verdicts_(dataset_->shards().size()),
        faults_(dataset_->shards().size()),
        crew_("hr-verify", options.threads, dataset_->shards().size()) {}

  Result<VerifyReport> Run() {
    SetTotals();
    HR_RETURN_IF_ERROR(crew_.Run([this] { return CheckShards(); }));
    VerifyReport report;
    report.shards = std::move(verdicts_);
    for (const ShardVerdict& verdict : report.shards) report.num_faults += verdict.damaged;
    for (std::vector<Status>& faults : faults_) {
      for (Status& fault : faults) {
        if (report.faults.size() < VerifyReport::kMaxFaults)
          report.faults.push_back(std::move(fault));
      }
    }
    return report;
  }

 private:
  void SetTotals() {
    if (!options_.progress) return;
    uint64_t bytes = 0;
    for (const ShardInfo& shard : dataset_->shards()) bytes += shard.size_bytes;
    options_.progress->total_samples = dataset_->num_samples();
    options_.progress->total_bytes = bytes;
  }

  Status CheckShards() {
    ShardVerifier verifier(fs_, dataset_, options_, ctx_);
    while (auto shard = crew_.Take()) {
      HR_RETURN_IF_ERROR(verifier.Run(*shard));
      verdicts_[*shard] = std::move(verifier.verdict);
      faults_[*shard] = std::move(verifier.faults);
    }
    return OkStatus();
  }

  FileSystem* fs_;
  std::shared_ptr<const Dataset> dataset_;
  const VerifyOptions& options_;
  const Context& ctx_;
  // Each element is written by the one thread that took the shard.
  std::vector<ShardVerdict> verdicts_;
  std::vector<std::vector<Status>> faults_;
  Crew crew_;
};

}  // namespace

void PixelTally::Add(const PixelTally& other) {
  for (size_t i = 0; i < images.size(); ++i) images[i] += other.images[i];
  regions += other.regions;
  different += other.different;
}

Result<VerifyReport> Verify(FileSystem* fs, std::shared_ptr<const Dataset> dataset,
                            const VerifyOptions& options, const Context& ctx) {
  return VerifyRun(fs, std::move(dataset), options, ctx).Run();
}

}  // namespace headrace::dataset
