// The samples are cut into parts of some MiB. Each thread takes the next part that nobody has; what
// it learned goes into the new index as soon as all parts before it are there, so that the bytes do
// not depend on the threads, and nothing is held twice.
#include "headrace/dataset/index_data.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/codec/image.h"
#include "headrace/codec/seek_points.h"
#include "headrace/dataset/crew.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kPartBytes = 8 << 20;
constexpr uint64_t kPartSamples = 1024;
constexpr uint64_t kReadBytes = 1 << 20;

// What the bytes of a field told.
struct FieldFacts {
  std::optional<uint32_t> crc32c;  // empty: it lies in a record that is damaged
  std::string seek_points;
};

// A run of samples. In a shard also the bytes from where the part before ends to the last of
// theirs.
struct Part {
  uint64_t first_sample = 0, end_sample = 0;
  uint64_t begin = 0, end = 0;    // of a shard, bytes
  uint32_t crc32c = 0;            // of these
  std::vector<FieldFacts> facts;  // of each field that is not in the index, in order
  bool read = false;
};

// Reads ranges of files and learns of them. One a thread.
class RangeReader {
 public:
  RangeReader(uint32_t seek_spacing, const Context& ctx) : seek_spacing_(seek_spacing), ctx_(ctx) {}

  // An array's bytes are never taken for a JPEG's.
  Status Read(const RandomAccessFile& file, uint64_t offset, uint64_t length, bool is_array,
              FieldFacts* facts);
  // Only the CRC32C of what lies there.
  Result<uint32_t> ChecksumOf(const RandomAccessFile& file, uint64_t offset, uint64_t length,
                              uint32_t seed);
  // Reads a file of its own, which must have `length` bytes.
  Status ReadFile(FileSystem* fs, const std::string& path, uint64_t length, FieldFacts* facts);

 private:
  Status Reserve(uint64_t bytes) {
    if (buffer_.Reserve(bytes)) return OkStatus();
    return Error(Code::kResourceExhausted, "no memory for {}; use fewer --threads",
                 FormatSize(bytes));
  }
  void Learn(Bytes whole, bool is_array, FieldFacts* facts) {
    const uint32_t crc32c = Crc32c(whole);
    facts->crc32c = crc32c;
    if (seek_spacing_ != 0 && !is_array)
      builder_.Build(whole, crc32c, seek_spacing_, &facts->seek_points);
  }
  bool WantsWhole(Bytes head, uint64_t length) const {
    return seek_spacing_ != 0 && length <= kMaxSeekableBytes &&
           codec::DetectImageFormat(head) == codec::ImageFormat::kJpeg;
  }

  const uint32_t seek_spacing_;
  const Context& ctx_;
  codec::SeekPointBuilder builder_;
  AlignedBuffer buffer_;
};

Result<uint32_t> RangeReader::ChecksumOf(const RandomAccessFile& file, uint64_t offset,
                                         uint64_t length, uint32_t seed) {
  HR_RETURN_IF_ERROR(Reserve(kReadBytes));
  for (uint64_t done = 0; done < length;) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    MutableBytes part(buffer_.data(), std::min(length - done, kReadBytes));
    HR_RETURN_IF_ERROR(file.ReadAt(offset + done, part, ctx_));
    seed = Crc32c(part, seed);
    done += part.size();
  }
  return seed;
}

Status RangeReader::Read(const RandomAccessFile& file, uint64_t offset, uint64_t length,
                         bool is_array, FieldFacts* facts) {
  HR_RETURN_IF_ERROR(ctx_.Check());
  HR_RETURN_IF_ERROR(Reserve(kReadBytes));
  MutableBytes head(buffer_.data(), std::min(length, kReadBytes));
  HR_RETURN_IF_ERROR(file.ReadAt(offset, head, ctx_));
  if (length > head.size() && !is_array && WantsWhole(head, length)) {
    HR_RETURN_IF_ERROR(Reserve(length));
    head = MutableBytes(buffer_.data(), length);
    HR_RETURN_IF_ERROR(file.ReadAt(offset, head, ctx_));
  }
  if (length == head.size()) {
    Learn(head, is_array, facts);
    return OkStatus();
  }
  uint64_t done = head.size();
  HR_ASSIGN_OR_RETURN(facts->crc32c, ChecksumOf(file, offset + done, length - done, Crc32c(head)));
  return OkStatus();
}

Status RangeReader::ReadFile(FileSystem* fs, const std::string& path, uint64_t length,
                             FieldFacts* facts) {
  uint64_t found = 0;
  if (length < kReadBytes) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_RETURN_IF_ERROR(Reserve(kReadBytes));
    HR_ASSIGN_OR_RETURN(found, fs->ReadInto(path, MutableBytes(buffer_.data(), length + 1)));
    if (found == length) Learn(Bytes(buffer_.data(), length), false, facts);
  } else {
    HR_ASSIGN_OR_RETURN(auto file, fs->OpenForRead(path));
    found = file->size();
    if (found == length) HR_RETURN_IF_ERROR(Read(*file, 0, length, false, facts));
  }
  if (found == length) return OkStatus();
  return Error(
             Code::kFailedPrecondition,
             "'{}' changed while it was indexed: expected {} bytes, as listed at the start, found "
             "{}; let no one write to the data, then run the same command again",
             EscapeText(path), length, found > length ? "more" : fmt::format("{}", found))
      .At({.file = path, .offset = {}, .key = {}, .field = {}});
}

// One run over all data of an index.
class DataPass {
 public:
  // Either `shard`, or `fs` and the folder of the files.
  DataPass(const IndexReader& index, const RandomAccessFile* shard, FileSystem* fs,
           std::string folder, const BuildOptions& options, const Context& ctx)
      : index_(index),
        shard_(shard),
        fs_(fs),
        folder_(std::move(folder)),
        options_(options),
        ctx_(ctx),
        builder_(index.kind()) {}

  Result<IndexWithData> Run() {
    HR_RETURN_IF_ERROR(CutIntoParts());
    Crew crew("hr-index", options_.threads, parts_.size());
    HR_RETURN_IF_ERROR(crew.Run([&] { return ReadParts(&crew); }));
    return Finish();
  }

 private:
  Status CutIntoParts();
  Status ReadParts(Crew* crew);
  Status ReadPart(Part* part, RangeReader* reader, IndexSample* sample);
  // How far the bytes of a part were read, and their CRC32C from some place on.
  struct Progress {
    uint64_t at = 0;
    uint32_t crc32c = 0;
  };
  Status ReadSample(const IndexSample& sample, Part* part, Progress* progress, RangeReader* reader);
  Status ReadFields(const IndexSample& sample, Part* part, Progress* progress, RangeReader* reader);
  Status ReadField(const IndexField& field, Part* part, Progress* progress, RangeReader* reader);
  Status ReadGap(uint64_t end, Progress* progress, RangeReader* reader);
  Status CheckRecord(const RecordRange& record, uint32_t found, std::span<FieldFacts> facts) const;
  void CountBytes(uint64_t bytes) {
    if (options_.progress) options_.progress->bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Adds to the new index what is read, up to the first part that is not.
  Status AddParts(Part* just_read);
  Status AddSamples(const Part& part) HR_REQUIRES(mu_);
  Result<IndexWithData> Finish();

  const IndexReader& index_;
  const RandomAccessFile* shard_;
  FileSystem* fs_;
  const std::string folder_;
  const BuildOptions& options_;
  const Context& ctx_;
  // Each element belongs to the thread that took it, from when it is read on to who holds mu_.
  std::vector<Part> parts_;

  Mutex mu_;  // leaf; no I/O under it
  uint64_t num_added_ HR_GUARDED_BY(mu_) = 0;
  IndexBuilder builder_ HR_GUARDED_BY(mu_);
  uint32_t shard_crc32c_ HR_GUARDED_BY(mu_) = 0;  // of the parts that were added
};

Status DataPass::CutIntoParts() {
  IndexSample sample;
  uint64_t bytes = 0;
  parts_.emplace_back();
  for (uint64_t i = 0; i < index_.num_samples(); ++i) {
    HR_RETURN_IF_ERROR(index_.Get(i, &sample));
    uint64_t end = std::max(parts_.back().end, sample.record.offset + sample.record.length);
    for (const IndexField& field : sample.fields) {
      if (field.in_index) continue;
      bytes += field.length;
      end = std::max(end, field.offset + field.length);
    }
    parts_.back().end = end;
    parts_.back().end_sample = i + 1;
    if (bytes < kPartBytes && i + 1 - parts_.back().first_sample < kPartSamples) continue;
    bytes = 0;
    parts_.push_back({.first_sample = i + 1,
                      .end_sample = i + 1,
                      .begin = end,
                      .end = end,
                      .crc32c = 0,
                      .facts = {},
                      .read = false});
  }
  if (shard_) parts_.back().end = shard_->size();
  return OkStatus();
}

Status DataPass::ReadParts(Crew* crew) {
  RangeReader reader(options_.seek_spacing, ctx_);
  IndexSample sample;
  while (std::optional<uint64_t> part = crew->Take()) {
    HR_RETURN_IF_ERROR(ReadPart(&parts_[*part], &reader, &sample));
    HR_RETURN_IF_ERROR(AddParts(&parts_[*part]));
  }
  return OkStatus();
}

Status DataPass::ReadPart(Part* part, RangeReader* reader, IndexSample* sample) {
  Progress progress{part->begin, 0};
  for (uint64_t i = part->first_sample; i < part->end_sample; ++i) {
    HR_RETURN_IF_ERROR(index_.Get(i, sample));
    HR_RETURN_IF_ERROR(
        ReadSample(*sample, part, &progress, reader)
            .At({.file = {}, .offset = {}, .key = std::string(sample->key), .field = {}}));
    if (options_.progress) options_.progress->samples.fetch_add(1, std::memory_order_relaxed);
  }
  if (!shard_) return OkStatus();
  HR_RETURN_IF_ERROR(ReadGap(part->end, &progress, reader));
  part->crc32c = progress.crc32c;
  return OkStatus();
}

Status DataPass::ReadSample(const IndexSample& sample, Part* part, Progress* progress,
                            RangeReader* reader) {
  if (index_.kind() != ShardKind::kRecords) return ReadFields(sample, part, progress, reader);
  const RecordRange& record = sample.record;
  HR_RETURN_IF_ERROR(ReadGap(record.offset, progress, reader));
  Progress inside{record.offset, 0};
  const size_t first = part->facts.size();
  HR_RETURN_IF_ERROR(ReadFields(sample, part, &inside, reader));
  HR_RETURN_IF_ERROR(ReadGap(record.offset + record.length, &inside, reader));
  progress->at = inside.at;
  progress->crc32c = JoinCrc32c(progress->crc32c, inside.crc32c, record.length);
  return CheckRecord(record, inside.crc32c, std::span(part->facts).subspan(first));
}

Status DataPass::CheckRecord(const RecordRange& record, uint32_t found,
                             std::span<FieldFacts> facts) const {
  if (found == record.crc32c) return OkStatus();
  if (!options_.allow_damage)
    return Error(Code::kDataLoss,
                 "wrong checksum: the record of {} bytes at offset {} of {} has CRC32C {:08x}, it "
                 "says {:08x} itself. Get a good copy, or index it as it is with `headrace index "
                 "--allow-damage`: the sample is then bad when it is read",
                 record.length, record.offset, shard_->path(), found, record.crc32c)
        .At({.file = shard_->path(), .offset = record.offset, .key = {}, .field = {}});
  for (FieldFacts& one : facts) one = {};
  return OkStatus();
}

Status DataPass::ReadFields(const IndexSample& sample, Part* part, Progress* progress,
                            RangeReader* reader) {
  for (const IndexField& field : sample.fields) {
    if (field.in_index) continue;
    part->facts.emplace_back();
    HR_RETURN_IF_ERROR(ReadField(field, part, progress, reader));
  }
  return OkStatus();
}

// Reads what lies between fields.
Status DataPass::ReadGap(uint64_t end, Progress* progress, RangeReader* reader) {
  CountBytes(end - progress->at);
  HR_ASSIGN_OR_RETURN(progress->crc32c, reader->ChecksumOf(*shard_, progress->at,
                                                           end - progress->at, progress->crc32c));
  progress->at = end;
  return OkStatus();
}

// Reads one field into the last of the part's facts.
Status DataPass::ReadField(const IndexField& field, Part* part, Progress* progress,
                           RangeReader* reader) {
  FieldFacts* facts = &part->facts.back();
  if (!shard_) {
    CountBytes(field.length);
    return reader->ReadFile(fs_, JoinPath(folder_, field.value), field.length, facts);
  }
  HR_RETURN_IF_ERROR(ReadGap(field.offset, progress, reader));
  CountBytes(field.length);
  HR_RETURN_IF_ERROR(reader->Read(*shard_, field.offset, field.length, field.is_array, facts));
  progress->crc32c = JoinCrc32c(progress->crc32c, *facts->crc32c, field.length);
  progress->at = field.offset + field.length;
  return OkStatus();
}

Status DataPass::AddParts(Part* just_read) {
  MutexLock lock(&mu_);
  just_read->read = true;
  for (; num_added_ < parts_.size() && parts_[num_added_].read; ++num_added_) {
    Part& part = parts_[num_added_];
    HR_RETURN_IF_ERROR(AddSamples(part));
    shard_crc32c_ = JoinCrc32c(shard_crc32c_, part.crc32c, part.end - part.begin);
    part.facts = {};
  }
  return OkStatus();
}

Status DataPass::AddSamples(const Part& part) {
  IndexSample sample;
  std::vector<IndexBuilder::Field> fields;
  size_t next = 0;
  for (uint64_t i = part.first_sample; i < part.end_sample; ++i) {
    HR_RETURN_IF_ERROR(index_.Get(i, &sample));
    fields.clear();
    for (const IndexField& field : sample.fields) {
      IndexBuilder::Field& entry = fields.emplace_back();
      entry.name = index_.field_names()[field.name];
      entry.offset = field.offset;
      entry.length = field.length;
      entry.in_index = field.in_index;
      entry.value = field.value;
      if (field.is_array) entry.array_form = field.value;
      if (field.in_index) continue;
      entry.crc32c = part.facts[next].crc32c;
      entry.seek_points = part.facts[next++].seek_points;
    }
    HR_RETURN_IF_ERROR(builder_.Add(sample.key, fields, sample.record));
  }
  return OkStatus();
}

Result<IndexWithData> DataPass::Finish() {
  HR_RETURN_IF_ERROR(ctx_.Check());
  MutexLock lock(&mu_);
  IndexWithData result;
  if (shard_) result.shard_crc32c = shard_crc32c_;
  // With `checksums` they are part of what the version stands for.
  std::optional<uint32_t> samples_crc32c;
  if (!options_.checksums) samples_crc32c = index_.samples_crc32c();
  HR_ASSIGN_OR_RETURN(result.bytes, builder_.Finish(index_.identity(), samples_crc32c));
  return result;
}

}  // namespace

Result<IndexWithData> AddDataOfShard(std::string index, const RandomAccessFile& file,
                                     const BuildOptions& options, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(auto reader, IndexReader::FromBytes(std::move(index), file.path()));
  return DataPass(*reader, &file, nullptr, {}, options, ctx).Run();
}

Result<IndexWithData> AddDataOfFiles(std::string index, FileSystem* fs, const std::string& folder,
                                     const BuildOptions& options, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(auto reader, IndexReader::FromBytes(std::move(index), folder));
  return DataPass(*reader, nullptr, fs, folder, options, ctx).Run();
}

Status FinishShardIndex(IndexBuilder* builder, const RandomAccessFile& file,
                        const BuildOptions& options, const Context& ctx, BuiltIndex* built,
                        std::optional<uint32_t> samples_crc32c) {
  HR_ASSIGN_OR_RETURN(ShardIdentity identity, IdentifyShard(file, ctx));
  built->num_samples = builder->num_samples();
  built->size_bytes = file.size();
  built->fields = builder->SortedFieldNames();
  HR_ASSIGN_OR_RETURN(built->bytes, builder->Finish(identity, samples_crc32c));
  if (options.progress) options.progress->total_samples.fetch_add(built->num_samples);
  if (!options.reads_data()) return OkStatus();
  HR_ASSIGN_OR_RETURN(IndexWithData data,
                      AddDataOfShard(std::move(built->bytes), file, options, ctx));
  built->bytes = std::move(data.bytes);
  if (options.checksums) built->shard_crc32c = data.shard_crc32c;
  return OkStatus();
}

}  // namespace headrace::dataset
