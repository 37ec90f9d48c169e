#include "headrace/dataset/verify.h"

#include <algorithm>
#include <optional>

#include "headrace/base/mutex.h"
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

// What a thread takes at once: few enough samples that several threads have work also where all of
// them are in one shard, as those of a folder are.
constexpr uint64_t kPieceSamples = 64;

// A run of samples of one shard. Those of a shard follow each other; an empty shard has one, too.
struct Piece {
  size_t shard = 0;
  uint64_t first_sample = 0, end_sample = 0;
  bool opens_shard = false;  // the first of its shard
};

std::vector<Piece> CutIntoPieces(const Dataset& dataset) {
  std::vector<Piece> pieces;
  for (size_t shard = 0; shard < dataset.shards().size(); ++shard) {
    const uint64_t begin = dataset.first_sample(shard), end = dataset.first_sample(shard + 1);
    uint64_t first = begin;
    do {
      uint64_t last = std::min(first + kPieceSamples, end);
      pieces.push_back({shard, first, last, first == begin});
      first = last;
    } while (first < end);
  }
  return pieces;
}

// Verifies one piece at a time. One a thread.
class PieceVerifier {
 public:
  PieceVerifier(std::shared_ptr<const Dataset> dataset, const VerifyOptions& options,
                const Context& ctx)
      : dataset_(std::move(dataset)),
        options_(options),
        ctx_(ctx),
        reader_(SampleReader::Create(dataset_, {.verify_checksums = true,
                                                .learn_checksums = options.learn,
                                                .seek_points = options.pixels,
                                                .whole_records = true})) {}

  Status Run(const Piece& piece);
  // After all pieces of an undamaged shard: finds damage between its fields.
  Status CheckAround(size_t shard);

  // Of the last Run, and of a CheckAround after it.
  ShardVerdict verdict;
  std::vector<Status> faults;

 private:
  Status Note(Status fault);
  Status OpenShard(const Piece& piece, bool* usable);
  Status CheckSample(uint64_t sample);
  Status CheckFieldByField(uint64_t sample);
  void Count(const SampleView& view, std::span<const FieldEntry> before);
  Status CheckPixels(const SampleView& view);
  Status CheckPixelsOf(const SampleView& view, const FieldView& field);

  std::shared_ptr<const Dataset> dataset_;
  const VerifyOptions& options_;
  const Context& ctx_;
  std::unique_ptr<SampleReader> reader_;
  codec::PixelChecker pixel_checker_;
  std::vector<FieldEntry> entries_;  // of the sample being checked
};

// Keeps a fault of the data and returns OK; returns a fault of the machine.
Status PieceVerifier::Note(Status fault) {
  if (fault.ok() || EndsRun(fault.code())) return fault;
  ++verdict.damaged;
  if (faults.size() < VerifyReport::kMaxFaults) faults.push_back(std::move(fault));
  return OkStatus();
}

Status PieceVerifier::Run(const Piece& piece) {
  verdict = {};
  faults.clear();
  bool usable = false;
  HR_RETURN_IF_ERROR(OpenShard(piece, &usable));
  for (uint64_t sample = piece.first_sample; usable && sample < piece.end_sample; ++sample) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_RETURN_IF_ERROR(CheckSample(sample));
    if (options_.progress) options_.progress->samples.fetch_add(1, std::memory_order_relaxed);
  }
  return OkStatus();
}

// What is wrong with the shard as a whole is noted by its first piece only.
Status PieceVerifier::OpenShard(const Piece& piece, bool* usable) {
  auto note = [&](Status fault) {
    return piece.opens_shard || EndsRun(fault.code()) ? Note(std::move(fault)) : OkStatus();
  };
  auto index = dataset_->Index(piece.shard);
  if (!index.ok()) return note(std::move(index).status());
  if (piece.opens_shard) {
    const std::string& name = dataset_->shards()[piece.shard].name;
    HR_RETURN_IF_ERROR(Note((*index)->VerifyAll().At({name, {}, {}, {}})));
  }
  Status opened = dataset_->CheckShard(piece.shard, ctx_);
  *usable = opened.ok();
  return note(std::move(opened));
}

Status PieceVerifier::CheckAround(size_t shard) {
  return Note(dataset_->CheckWholeShard(shard, ctx_));
}

Status PieceVerifier::CheckSample(uint64_t sample) {
  auto located = reader_->Locate(sample);
  if (!located.ok()) return Note(std::move(located).status());
  entries_.assign(located->entries.begin(), located->entries.end());
  auto read = reader_->Read(sample, {}, ctx_);
  if (!read.ok()) {
    if (EndsRun(read.status().code())) return std::move(read).status();
    // A damaged record is no better field by field.
    bool in_record = std::any_of(entries_.begin(), entries_.end(),
                                 [](const FieldEntry& entry) { return entry.in_record; });
    return in_record ? Note(std::move(read).status()) : CheckFieldByField(sample);
  }
  Count(*read, entries_);
  return CheckPixels(*read);
}

// Tells which of the sample's fields are damaged.
Status PieceVerifier::CheckFieldByField(uint64_t sample) {
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

void PieceVerifier::Count(const SampleView& view, std::span<const FieldEntry> before) {
  for (const FieldView& field : view.fields) {
    verdict.bytes += field.data.size();
    if (options_.progress) options_.progress->bytes.fetch_add(field.data.size());
  }
  for (const FieldEntry& entry : before) {
    if (entry.has_checksum()) {
      ++verdict.checked;
    } else if (options_.learn) {
      ++verdict.learned;
    } else {
      ++verdict.unverified;
    }
  }
}

Status PieceVerifier::CheckPixels(const SampleView& view) {
  if (!options_.pixels) return OkStatus();
  for (const FieldView& field : view.fields) {
    if (codec::DetectImageFormat(field.data) == codec::ImageFormat::kJpeg)
      HR_RETURN_IF_ERROR(CheckPixelsOf(view, field));
  }
  return OkStatus();
}

Status PieceVerifier::CheckPixelsOf(const SampleView& view, const FieldView& field) {
  auto count = [&](codec::SeekRefusal why) { ++verdict.pixels.images[static_cast<size_t>(why)]; };
  auto entry = std::find_if(view.entries.begin(), view.entries.end(),
                            [&](const FieldEntry& e) { return e.field == field.field; });
  auto checked = pixel_checker_.Check(field.data, {field.seek_points, field.crc32c}, view.id);
  if (EndsRun(checked.status().code()))
    return std::move(checked).status().At(reader_->Where(*entry));
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
  return Note(Error(Code::kDataLoss,
                    "decoded from its seek points, the image differs from libjpeg-turbo's: pixel "
                    "({}, {}) of the region {} x {} at ({}, {}), channel {}, is {}, expected {}. "
                    "Make the index again, and please report the file",
                    d.x, d.y, d.region.width, d.region.height, d.region.x, d.region.y, d.channel,
                    d.found, d.expected)
                  .At(reader_->Where(*entry)));
}

class VerifyRun {
 public:
  VerifyRun(std::shared_ptr<const Dataset> dataset, const VerifyOptions& options,
            const Context& ctx)
      : dataset_(std::move(dataset)),
        options_(options),
        ctx_(ctx),
        pieces_(CutIntoPieces(*dataset_)),
        crew_("hr-verify", options.threads, pieces_.size()) {}

  Result<VerifyReport> Run() {
    if (options_.progress) options_.progress->total_samples = dataset_->num_samples();
    {
      MutexLock lock(&mu_);
      pieces_left_.resize(dataset_->shards().size());
      for (const Piece& piece : pieces_) ++pieces_left_[piece.shard];
      faults_.resize(pieces_.size());
      for (const ShardInfo& shard : dataset_->shards()) {
        ShardVerdict& verdict = report_.shards.emplace_back();
        verdict.name = shard.name;
        verdict.samples = shard.num_samples;
      }
    }
    HR_RETURN_IF_ERROR(crew_.Run([this] { return CheckPieces(); }));
    MutexLock lock(&mu_);
    for (const ShardVerdict& verdict : report_.shards) report_.num_faults += verdict.damaged;
    return std::move(report_);
  }

 private:
  Status CheckPieces() {
    PieceVerifier verifier(dataset_, options_, ctx_);
    while (auto number = crew_.Take()) {
      const size_t shard = pieces_[*number].shard;
      HR_RETURN_IF_ERROR(verifier.Run(pieces_[*number]));
      // A damaged field is in the file's checksum too, and is named already.
      if (AddToShard(shard, verifier.verdict)) {
        HR_RETURN_IF_ERROR(verifier.CheckAround(shard));
        AddDamage(shard, verifier.faults.size());
      }
      KeepFaults(*number, std::move(verifier.faults));
    }
    return OkStatus();
  }

  // True when this was the last piece of the shard, and no piece had damage.
  bool AddToShard(size_t shard, const ShardVerdict& verdict) {
    MutexLock lock(&mu_);
    report_.shards[shard].Add(verdict);
    return --pieces_left_[shard] == 0 && report_.shards[shard].damaged == 0;
  }

  void AddDamage(size_t shard, uint64_t count) {
    MutexLock lock(&mu_);
    report_.shards[shard].damaged += count;
  }

  // Appends the faults of all pieces up to the first that is not done: in their order, and never
  // many more in memory than the report will list.
  void KeepFaults(uint64_t number, std::vector<Status> faults) {
    MutexLock lock(&mu_);
    faults_[number] = std::move(faults);
    for (; num_listed_ < faults_.size() && faults_[num_listed_]; ++num_listed_) {
      for (Status& fault : *faults_[num_listed_]) {
        if (report_.faults.size() < VerifyReport::kMaxFaults)
          report_.faults.push_back(std::move(fault));
      }
      faults_[num_listed_]->clear();
      faults_[num_listed_]->shrink_to_fit();
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  const VerifyOptions& options_;
  const Context& ctx_;
  const std::vector<Piece> pieces_;
  Crew crew_;

  Mutex mu_;  // leaf; no I/O under it
  VerifyReport report_ HR_GUARDED_BY(mu_);
  std::vector<uint64_t> pieces_left_ HR_GUARDED_BY(mu_);  // of each shard
  // Of each piece that is done; the first num_listed_ are in the report.
  std::vector<std::optional<std::vector<Status>>> faults_ HR_GUARDED_BY(mu_);
  uint64_t num_listed_ HR_GUARDED_BY(mu_) = 0;
};

}  // namespace

void PixelTally::Add(const PixelTally& other) {
  for (size_t i = 0; i < images.size(); ++i) images[i] += other.images[i];
  regions += other.regions;
  different += other.different;
}

void ShardVerdict::Add(const ShardVerdict& other) {
  for (auto count : {&ShardVerdict::samples, &ShardVerdict::bytes, &ShardVerdict::checked,
                     &ShardVerdict::learned, &ShardVerdict::unverified, &ShardVerdict::damaged})
    this->*count += other.*count;
  pixels.Add(other.pixels);
}

Result<VerifyReport> Verify(std::shared_ptr<const Dataset> dataset, const VerifyOptions& options,
                            const Context& ctx) {
  return VerifyRun(std::move(dataset), options, ctx).Run();
}

}  // namespace headrace::dataset
