#include <algorithm>
#include <chrono>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/learned_seek_points.h"
#include "headrace/dataset/open_dataset.h"

namespace headrace::dataset {
namespace {

// Fields of one sample that lie this near to each other are read together.
constexpr uint64_t kMaxGapBytes = 8 << 10;

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// Bytes that readers get of a field. An index checks its array forms.
uint64_t PresentedBytes(const IndexField& field) {
  ArrayForm form;
  return field.is_array && ArrayForm::Parse(field.value, &form) ? NpyBytes(form) : field.length;
}

class OpenSampleReader : public SampleReader {
 public:
  OpenSampleReader(std::shared_ptr<const OpenDataset> dataset, const ReadOptions& options)
      : dataset_(std::move(dataset)), options_(options) {
    if (options_.seek_points && options_.learn_seek_points && dataset_->side())
      learned_seek_points_ = std::make_unique<LearnedSeekPoints>(dataset_->side(), dataset_.get(),
                                                                 options_.learn_seek_points);
  }

  void Prefetch(std::span<const uint64_t> sample_ids) const override;
  void WillRead(uint64_t sample_id, std::span<const FieldId> wanted, const Context& ctx) override;
  Result<SampleView> Locate(uint64_t sample_id) override;
  Result<SampleView> Read(uint64_t sample_id, std::span<const FieldId> wanted,
                          const Context& ctx) override;
  Status ReadField(const FieldEntry& entry, MutableBytes out, const Context& ctx) override;
  Location Where(const FieldEntry& entry) const override;
  const Cost& last_cost() const override { return cost_; }
  uint64_t memory_bytes() const override;

 private:
  // A field that is to be read: its place in entries_, where its stored bytes go, and for an array
  // where the .npy goes.
  struct Pick {
    uint32_t entry = 0;
    uint64_t buffer_offset = 0;
    uint64_t array_offset = 0;
  };
  // A stretch of the shard that one read gets.
  struct Run {
    uint64_t begin = 0, end = 0, buffer_offset = 0;
  };

  Result<SampleView> ReadOnce(uint64_t sample_id, std::span<const FieldId> wanted,
                              const Context& ctx);
  Status ReadFieldOnce(uint32_t entry, MutableBytes out, const Context& ctx);
  Status LocateSample(uint64_t sample_id);
  void PickFields(std::span<const FieldId> wanted);
  Status ReadRanges(const Context& ctx);
  Status ReadRecord(const Context& ctx);
  // True when the picked fields' own checksums do not cover them and the record's must.
  bool NeedsRecord() const;
  Status ReadFiles(const Context& ctx);
  Status ReadOneFile(uint32_t entry, MutableBytes out, bool has_spare_byte);
  Status ReadRangeField(uint32_t entry, MutableBytes out, const Context& ctx);
  void PlanRuns();
  Status ReadRuns(const Context& ctx);
  Status ReadFrom(ShardFiles::File* file, uint64_t offset, MutableBytes out,
                  const Context& ctx) const;
  // Makes .npy arrays of the picked fields that are arrays; their bytes lie in buffer_.
  Status MakeArrays();
  Status MakeArray(uint32_t entry, Bytes stored, MutableBytes out) const;
  Status Reserve(uint64_t bytes);
  Status NoMemory(uint64_t bytes) const;
  Status CheckRange(const FieldEntry& entry) const;
  // `computed` gets the checksum when there was reason to compute it.
  Status CheckBytes(uint32_t entry, Bytes bytes, std::optional<uint32_t>* computed);
  void GiveSeekPoints(uint32_t entry, FieldView* view);
  Status Fault(Code code, uint32_t entry, std::string message) const;
  // Fills in what is unknown of a fault's place. `entry` = number of entries: the whole sample.
  Status Place(Status status, uint32_t entry) const;
  SampleView View() const {
    return {.id = id_,
            .key = sample_.key,
            .shard = dataset_->shards()[shard_].name,
            .entries = entries_,
            .fields = views_};
  }

  const std::shared_ptr<const OpenDataset> dataset_;
  const ReadOptions options_;
  uint64_t id_ = 0;
  uint32_t shard_ = 0;
  bool located_ = false;
  const OpenDataset::ShardState* state_ = nullptr;
  LearnedChecksums* learned_ = nullptr;  // null: not needed for this sample
  std::unique_ptr<LearnedSeekPoints> learned_seek_points_;
  uint64_t first_ordinal_ = 0;
  IndexSample sample_;
  std::vector<FieldEntry> entries_;  // parallel to sample_.fields
  std::vector<Pick> picks_;          // in the order of the result
  std::vector<uint32_t> by_offset_;  // places in picks_
  std::vector<Run> runs_;
  std::vector<FieldView> views_;
  std::string path_;  // of a field's own file
  AlignedBuffer buffer_;
  AlignedBuffer arrays_;
  bool record_in_buffer_ = false;  // of the located sample, checked, at the buffer's start
  Cost cost_;
};

Status OpenSampleReader::Place(Status status, uint32_t entry) const {
  if (status.ok()) return status;
  if (entry < entries_.size()) return std::move(status).At(Where(entries_[entry]));
  return std::move(status).At({.file = dataset_->shards()[shard_].name,
                               .offset = {},
                               .key = std::string(sample_.key),
                               .field = {}});
}

Location OpenSampleReader::Where(const FieldEntry& entry) const {
  Location location{.file = dataset_->shards()[shard_].name,
                    .offset = {},
                    .key = std::string(sample_.key),
                    .field = dataset_->fields()[entry.field]};
  if (entry.in_index) return location;
  location.offset = entry.offset;
  if (state_->index->kind() != ShardKind::kFiles) return location;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].field == entry.field)
      location.file = JoinPath(dataset_->data_folder(), sample_.fields[i].value);
  return location;
}

Status OpenSampleReader::Fault(Code code, uint32_t entry, std::string message) const {
  return Place(Status(code, std::move(message)), entry);
}

Status OpenSampleReader::LocateSample(uint64_t sample_id) {
  located_ = false;
  if (sample_id >= dataset_->num_samples())
    return Error(Code::kOutOfRange, "the dataset {} has {} samples, there is no number {}",
                 dataset_->path(), dataset_->num_samples(), sample_id);
  id_ = sample_id;
  shard_ = dataset_->ShardOf(sample_id);
  sample_.key = {};
  entries_.clear();
  views_.clear();
  record_in_buffer_ = false;
  HR_ASSIGN_OR_RETURN(state_, dataset_->State(shard_));
  HR_RETURN_IF_ERROR(Place(
      state_->index->Get(sample_id - dataset_->first_sample(shard_), &sample_, &first_ordinal_),
      UINT32_MAX));
  learned_ = nullptr;
  for (size_t i = 0; i < sample_.fields.size(); ++i) {
    const IndexField& field = sample_.fields[i];
    FieldEntry& entry = entries_.emplace_back();
    entry.field = state_->field_ids[field.name];
    entry.offset = field.offset;
    entry.length = PresentedBytes(field);
    entry.crc32c = field.crc32c;
    entry.in_index = field.in_index;
    entry.in_record = state_->index->kind() == ShardKind::kRecords && !field.in_index;
    if (entry.crc32c || !options_.learn_checksums) continue;
    if (!learned_) learned_ = dataset_->Learned(shard_, *state_);
    entry.crc32c = learned_->Load(first_ordinal_ + i);
    entry.learned = entry.crc32c.has_value();
  }
  located_ = true;
  return OkStatus();
}

void OpenSampleReader::Prefetch(std::span<const uint64_t> sample_ids) const {
  auto for_each = [&](auto hint) {
    for (uint64_t id : sample_ids) {
      if (id >= dataset_->num_samples()) continue;
      uint32_t shard = dataset_->ShardOf(id);
      if (const IndexReader* index = dataset_->IndexIfMapped(shard))
        (index->*hint)(id - dataset_->first_sample(shard));
    }
  };
  for_each(&IndexReader::PrefetchPlace);
  for_each(&IndexReader::PrefetchRecord);
}

void OpenSampleReader::WillRead(uint64_t sample_id, std::span<const FieldId> wanted,
                                const Context& ctx) {
  if (sample_id >= dataset_->num_samples()) return;
  const uint32_t shard = dataset_->ShardOf(sample_id);
  if (!dataset_->IndexIfMapped(shard)) return;
  ShardFiles::File file = dataset_->FileIfOpen(shard);
  if (!file || !LocateSample(sample_id).ok()) return;
  located_ = false;
  if (state_->index->kind() == ShardKind::kFiles) return;
  PickFields(wanted);
  for (const Pick& pick : picks_)
    if (!entries_[pick.entry].in_index && !CheckRange(entries_[pick.entry]).ok()) return;
  if (NeedsRecord()) return file->WillRead(sample_.record.offset, sample_.record.length, ctx);
  PlanRuns();
  for (const Run& run : runs_) file->WillRead(run.begin, run.end - run.begin, ctx);
}

Result<SampleView> OpenSampleReader::Locate(uint64_t sample_id) {
  HR_RETURN_IF_ERROR(LocateSample(sample_id));
  return View();
}

void OpenSampleReader::PickFields(std::span<const FieldId> wanted) {
  picks_.clear();
  if (wanted.empty()) {
    for (uint32_t i = 0; i < entries_.size(); ++i) picks_.push_back({i});
    return;
  }
  for (FieldId field : wanted) {
    for (uint32_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].field == field) picks_.push_back({i});
  }
}

// Bytes that came wrong over a network, and may be in a cache since, are asked for once more.
Result<SampleView> OpenSampleReader::Read(uint64_t sample_id, std::span<const FieldId> wanted,
                                          const Context& ctx) {
  auto view = ReadOnce(sample_id, wanted, ctx);
  if (view.ok() || view.status().code() != Code::kDataLoss || !located_ ||
      !dataset_->Distrust(shard_, sample_))
    return view;
  return ReadOnce(sample_id, wanted, ctx);
}

Result<SampleView> OpenSampleReader::ReadOnce(uint64_t sample_id, std::span<const FieldId> wanted,
                                              const Context& ctx) {
  cost_ = {};
  HR_RETURN_IF_ERROR(LocateSample(sample_id));
  PickFields(wanted);
  if (state_->index->kind() == ShardKind::kFiles) {
    HR_RETURN_IF_ERROR(ReadFiles(ctx));
  } else {
    HR_RETURN_IF_ERROR(NeedsRecord() ? ReadRecord(ctx) : ReadRanges(ctx));
    HR_RETURN_IF_ERROR(MakeArrays());
  }
  for (const Pick& pick : picks_) {
    const FieldEntry& entry = entries_[pick.entry];
    const IndexField& field = sample_.fields[pick.entry];
    Bytes stored = entry.in_index ? AsBytes(field.value)
                                  : Bytes(buffer_.data() + pick.buffer_offset, field.length);
    FieldView& view = views_.emplace_back();
    view.field = entry.field;
    view.data = field.is_array ? Bytes(arrays_.data() + pick.array_offset, entry.length) : stored;
    HR_RETURN_IF_ERROR(CheckBytes(pick.entry, stored, &view.crc32c));
    if (field.is_array) view.crc32c.reset();
    if (options_.seek_points) GiveSeekPoints(pick.entry, &view);
  }
  return View();
}

bool OpenSampleReader::NeedsRecord() const {
  if (!options_.verify_checksums || state_->index->kind() != ShardKind::kRecords) return false;
  // A sample without the wanted fields may have lost their names to damage.
  return options_.whole_records || picks_.empty() ||
         std::any_of(picks_.begin(), picks_.end(), [&](const Pick& pick) {
           const FieldEntry& entry = entries_[pick.entry];
           return entry.in_record && !entry.crc32c;
         });
}

// That the stored bytes of a field lie in the shard, and inside its sample's record.
Status OpenSampleReader::CheckRange(const FieldEntry& entry) const {
  const uint32_t number = static_cast<uint32_t>(&entry - entries_.data());
  const IndexField& field = sample_.fields[number];
  uint64_t begin = 0, end = state_->index->identity().size_bytes;
  if (state_->index->kind() == ShardKind::kRecords) {
    const RecordRange& record = sample_.record;
    if (record.length <= end && record.offset <= end - record.length) {
      begin = record.offset;
      end = begin + record.length;
    } else {
      end = 0;
    }
  }
  ArrayForm form;
  bool fits = field.offset >= begin && field.offset <= end && field.length <= end - field.offset;
  if (field.is_array && ArrayForm::Parse(field.value, &form))
    fits = fits && (form.element == ElementType::kVarint64 ? form.num_elements() <= field.length
                                                           : form.StoredBytes() == field.length);
  if (fits) return OkStatus();
  return Fault(Code::kDataLoss, number,
               fmt::format("index {} names {} bytes at offset {} of a shard of {} bytes, which do "
                           "not fit there: it is damaged. Make it again with `headrace index`",
                           state_->index->name(), field.length, field.offset,
                           state_->index->identity().size_bytes));
}

Status OpenSampleReader::Reserve(uint64_t bytes) {
  return buffer_.Reserve(bytes) ? OkStatus() : NoMemory(bytes);
}

Status OpenSampleReader::NoMemory(uint64_t bytes) const {
  return Fault(Code::kResourceExhausted, UINT32_MAX,
               fmt::format("no memory for the {} bytes of the sample; raise the process's memory "
                           "limit, or ask for fewer fields",
                           bytes));
}

// Joins picked ranges that lie near each other, and gives each pick its place in the buffer.
void OpenSampleReader::PlanRuns() {
  by_offset_.clear();
  for (uint32_t i = 0; i < picks_.size(); ++i)
    if (!entries_[picks_[i].entry].in_index) by_offset_.push_back(i);
  std::sort(by_offset_.begin(), by_offset_.end(), [this](uint32_t a, uint32_t b) {
    return entries_[picks_[a].entry].offset < entries_[picks_[b].entry].offset;
  });
  runs_.clear();
  for (uint32_t i : by_offset_) {
    const IndexField& entry = sample_.fields[picks_[i].entry];
    uint64_t end = entry.offset + entry.length;
    if (runs_.empty() || entry.offset > runs_.back().end + kMaxGapBytes) {
      constexpr uint64_t kAlign = AlignedBuffer::kAlignment;
      uint64_t used =
          runs_.empty() ? 0 : runs_.back().buffer_offset + runs_.back().end - runs_.back().begin;
      runs_.push_back({entry.offset, end, (used + kAlign - 1) / kAlign * kAlign});
    }
    Run& run = runs_.back();
    run.end = std::max(run.end, end);
    picks_[i].buffer_offset = run.buffer_offset + entry.offset - run.begin;
  }
}

Status OpenSampleReader::ReadRanges(const Context& ctx) {
  for (const Pick& pick : picks_)
    if (!entries_[pick.entry].in_index) HR_RETURN_IF_ERROR(CheckRange(entries_[pick.entry]));
  PlanRuns();
  return runs_.empty() ? OkStatus() : ReadRuns(ctx);
}

// Reads the sample's record whole and holds it against the checksum it has in its shard.
Status OpenSampleReader::ReadRecord(const Context& ctx) {
  for (const FieldEntry& entry : entries_)
    if (!entry.in_index) HR_RETURN_IF_ERROR(CheckRange(entry));
  const RecordRange& record = sample_.record;
  by_offset_.clear();
  runs_.clear();
  runs_.push_back({record.offset, record.offset + record.length, 0});
  for (Pick& pick : picks_) pick.buffer_offset = sample_.fields[pick.entry].offset - record.offset;
  HR_RETURN_IF_ERROR(ReadRuns(ctx));
  uint64_t start = NowNs();
  const uint32_t found = Crc32c(Bytes(buffer_.data(), record.length));
  cost_.checksum_ns += NowNs() - start;
  record_in_buffer_ = found == record.crc32c;
  if (record_in_buffer_) return OkStatus();
  return Place(
      Error(Code::kDataLoss,
            "wrong checksum: the record of {} bytes has CRC32C {:08x}, it says {:08x} itself. The "
            "data changed or is damaged: get a good copy of it",
            record.length, found, record.crc32c)
          .At({.file = {}, .offset = record.offset, .key = {}, .field = {}}),
      UINT32_MAX);
}

Status OpenSampleReader::ReadRuns(const Context& ctx) {
  const uint32_t entry = by_offset_.empty() ? UINT32_MAX : picks_[by_offset_[0]].entry;
  uint64_t start = NowNs();
  auto file = dataset_->File(shard_);
  if (!file.ok()) return Place(std::move(file).status(), UINT32_MAX);
  HR_RETURN_IF_ERROR(Reserve(runs_.back().buffer_offset + runs_.back().end - runs_.back().begin));
  for (const Run& run : runs_) {
    MutableBytes out(buffer_.data() + run.buffer_offset, run.end - run.begin);
    HR_RETURN_IF_ERROR(Place(ReadFrom(&*file, run.begin, out, ctx), entry));
    cost_.bytes += out.size();
  }
  cost_.read_ns += NowNs() - start;
  return OkStatus();
}

// A handle on a network file system can go stale: then the file is opened anew, once. (What is at a
// URL was tried again already.)
Status OpenSampleReader::ReadFrom(ShardFiles::File* file, uint64_t offset, MutableBytes out,
                                  const Context& ctx) const {
  Status read = (*file)->ReadAt(offset, out, ctx);
  if (read.code() != Code::kUnavailable || IsUrl(dataset_->data_folder())) return read;
  HR_ASSIGN_OR_RETURN(*file, dataset_->Reopen(shard_, *file));
  return (*file)->ReadAt(offset, out, ctx);
}

Status OpenSampleReader::MakeArrays() {
  constexpr uint64_t kAlign = AlignedBuffer::kAlignment;
  uint64_t total = 0;
  for (Pick& pick : picks_) {
    if (!sample_.fields[pick.entry].is_array) continue;
    pick.array_offset = total;
    total += (entries_[pick.entry].length + kAlign - 1) / kAlign * kAlign;
  }
  if (total == 0) return OkStatus();
  if (!arrays_.Reserve(total)) return NoMemory(total);
  for (const Pick& pick : picks_) {
    const IndexField& field = sample_.fields[pick.entry];
    if (!field.is_array) continue;
    HR_RETURN_IF_ERROR(
        MakeArray(pick.entry, Bytes(buffer_.data() + pick.buffer_offset, field.length),
                  MutableBytes(arrays_.data() + pick.array_offset, entries_[pick.entry].length)));
  }
  return OkStatus();
}

// Damage of the bytes is told by the checksum where there is one, else by their form.
Status OpenSampleReader::MakeArray(uint32_t number, Bytes stored, MutableBytes out) const {
  ArrayForm form;
  const bool known = ArrayForm::Parse(sample_.fields[number].value, &form);
  Status made = known ? WriteNpy(form, stored, out) : Status(Code::kInternal, "no array form");
  if (made.ok() || !options_.verify_checksums || !entries_[number].crc32c) {
    return Place(std::move(made), number);
  }
  return OkStatus();  // CheckBytes says more
}

Status OpenSampleReader::ReadFiles(const Context& ctx) {
  constexpr uint64_t kAlign = AlignedBuffer::kAlignment;
  constexpr uint64_t kMaxFileBytes = uint64_t{1} << 46;
  uint64_t total = 0;
  for (Pick& pick : picks_) {
    const FieldEntry& entry = entries_[pick.entry];
    if (entry.in_index) continue;
    if (entry.length > kMaxFileBytes)
      return Fault(
          Code::kDataLoss, pick.entry,
          fmt::format("index {} names a file of {} bytes: it is damaged. Make it again with "
                      "`headrace index`",
                      state_->index->name(), entry.length));
    pick.buffer_offset = total;
    total += (entry.length + 1 + kAlign - 1) / kAlign * kAlign;
  }
  if (total == 0) return OkStatus();
  uint64_t start = NowNs();
  HR_RETURN_IF_ERROR(Reserve(total));
  for (const Pick& pick : picks_) {
    const FieldEntry& entry = entries_[pick.entry];
    if (entry.in_index) continue;
    HR_RETURN_IF_ERROR(Place(ctx.Check(), pick.entry));
    MutableBytes out(buffer_.data() + pick.buffer_offset, entry.length + 1);
    HR_RETURN_IF_ERROR(ReadOneFile(pick.entry, out, true));
  }
  cost_.read_ns += NowNs() - start;
  return OkStatus();
}

// Reads the file of a field. With a spare byte in `out` a file that has grown is noticed.
Status OpenSampleReader::ReadOneFile(uint32_t number, MutableBytes out, bool has_spare_byte) {
  const FieldEntry& entry = entries_[number];
  std::string_view name = sample_.fields[number].value;
  Status inside = CheckRelativeName(name);
  if (!inside.ok())
    return Fault(Code::kDataLoss, number,
                 fmt::format("index {} is damaged: {}", state_->index->name(), inside.message()));
  path_.assign(dataset_->data_folder()).append("/").append(name);
  auto found = dataset_->fs()->ReadInto(path_, out);
  const bool stale = !found.ok() && found.status().code() == Code::kUnavailable;
  if (stale && !IsUrl(path_)) found = dataset_->fs()->ReadInto(path_, out);
  if (found.ok() && *found == entry.length) {
    cost_.bytes += *found;
    return OkStatus();
  }
  Location place{.file = path_, .offset = {}, .key = {}, .field = {}};
  if (!found.ok()) return Place(std::move(found).status().At(std::move(place)), number);
  const char* more = has_spare_byte && *found > entry.length ? "more than " : "";
  place.offset = std::min<uint64_t>(*found, entry.length);
  return Place(
      Error(Code::kDataLoss,
            "{} has {}{} bytes, its index says {}: it changed after it was indexed. Make the "
            "index again with `headrace index`",
            path_, more, std::min<uint64_t>(*found, entry.length), entry.length)
          .At(std::move(place)),
      number);
}

void OpenSampleReader::GiveSeekPoints(uint32_t number, FieldView* view) {
  if (state_->index->has_seek_points()) {
    auto found = state_->index->SeekPoints(first_ordinal_ + number);
    if (found.ok()) view->seek_points = *found;
  } else if (learned_seek_points_ && !sample_.fields[number].is_array) {
    view->seek_points = learned_seek_points_->Get(view->field, id_, view->data, &view->crc32c);
    cost_.seek_points_ns += learned_seek_points_->last_ns();
  }
}

Status OpenSampleReader::CheckBytes(uint32_t number, Bytes bytes,
                                    std::optional<uint32_t>* computed) {
  const FieldEntry& entry = entries_[number];
  if (!options_.verify_checksums || entry.in_index) return OkStatus();
  if (!entry.crc32c && !learned_) return OkStatus();
  uint64_t start = NowNs();
  uint32_t found = Crc32c(bytes);
  cost_.checksum_ns += NowNs() - start;
  *computed = found;
  if (!entry.crc32c) {
    learned_->Store(first_ordinal_ + number, found);
    return OkStatus();
  }
  if (found == *entry.crc32c) return OkStatus();
  return Fault(
      Code::kDataLoss, number,
      fmt::format("wrong checksum: the {} bytes of field '{}' have CRC32C {:08x}, expected "
                  "{:08x} ({}). The data changed or is damaged: get a good copy of it",
                  bytes.size(), EscapeText(dataset_->fields()[entry.field]), found, *entry.crc32c,
                  entry.learned ? "learned at its first read" : "from the index"));
}

Status OpenSampleReader::ReadField(const FieldEntry& entry, MutableBytes out, const Context& ctx) {
  cost_ = {};
  auto known = std::find_if(entries_.begin(), entries_.end(), [&](const FieldEntry& e) {
    return e.field == entry.field && e.offset == entry.offset && e.length == entry.length;
  });
  if (!located_ || known == entries_.end() || out.size() != entry.length)
    return Error(Code::kInvalidArgument,
                 "ReadField takes an entry of the last located sample and exactly its bytes: "
                 "expected {}, got room for {}",
                 entry.length, out.size());
  uint32_t number = static_cast<uint32_t>(known - entries_.begin());
  Status read = ReadFieldOnce(number, out, ctx);
  if (read.code() != Code::kDataLoss || !dataset_->Distrust(shard_, sample_)) return read;
  return ReadFieldOnce(number, out, ctx);
}

Status OpenSampleReader::ReadFieldOnce(uint32_t number, MutableBytes out, const Context& ctx) {
  const FieldEntry& entry = entries_[number];
  if (state_->index->kind() != ShardKind::kFiles && !entry.in_index)
    return ReadRangeField(number, out, ctx);
  uint64_t start = NowNs();
  if (entry.in_index) {
    std::ranges::copy(sample_.fields[number].value, reinterpret_cast<char*>(out.data()));
    HR_RETURN_IF_ERROR(Place(state_->index->Check(), number));
  } else {
    HR_RETURN_IF_ERROR(Place(ctx.Check(), number));
    HR_RETURN_IF_ERROR(ReadOneFile(number, out, false));
  }
  cost_.read_ns += NowNs() - start;
  std::optional<uint32_t> unused;
  return CheckBytes(number, out, &unused);
}

// Reads a field that is a range of the shard. An array, or what only its record's checksum covers,
// goes through the buffer.
Status OpenSampleReader::ReadRangeField(uint32_t number, MutableBytes out, const Context& ctx) {
  const FieldEntry& entry = entries_[number];
  const IndexField& field = sample_.fields[number];
  picks_.assign(1, {number});
  std::optional<uint32_t> unused;
  if (!NeedsRecord() && !field.is_array) {
    HR_RETURN_IF_ERROR(CheckRange(entry));
    uint64_t start = NowNs();
    auto file = dataset_->File(shard_);
    if (!file.ok()) return Place(std::move(file).status(), number);
    HR_RETURN_IF_ERROR(Place(ReadFrom(&*file, entry.offset, out, ctx), number));
    cost_.bytes += out.size();
    cost_.read_ns += NowNs() - start;
    return CheckBytes(number, out, &unused);
  }
  uint64_t at = field.offset - sample_.record.offset;
  if (!record_in_buffer_) {
    HR_RETURN_IF_ERROR(NeedsRecord() ? ReadRecord(ctx) : ReadRanges(ctx));
    at = picks_[0].buffer_offset;
  }
  Bytes stored(buffer_.data() + at, field.length);
  if (field.is_array) {
    HR_RETURN_IF_ERROR(MakeArray(number, stored, out));
  } else {
    std::copy(stored.begin(), stored.end(), out.begin());
  }
  return CheckBytes(number, stored, &unused);
}

uint64_t OpenSampleReader::memory_bytes() const {
  return buffer_.capacity() + arrays_.capacity() + sample_.fields.capacity() * sizeof(IndexField) +
         entries_.capacity() * sizeof(FieldEntry) + picks_.capacity() * sizeof(Pick) +
         by_offset_.capacity() * sizeof(uint32_t) + runs_.capacity() * sizeof(Run) +
         views_.capacity() * sizeof(FieldView) + path_.capacity() +
         (learned_seek_points_ ? learned_seek_points_->memory_bytes() : 0);
}

}  // namespace

Status SampleReader::AtField(const Status& fault, const SampleView& sample, FieldId field) const {
  Location where = Where(*sample.FindEntry(field));
  if (where.offset) *where.offset += fault.location().offset.value_or(0);
  return Status(fault.code(), std::string(fault.message())).At(std::move(where));
}

std::unique_ptr<SampleReader> SampleReader::Create(std::shared_ptr<const Dataset> dataset,
                                                   const ReadOptions& options) {
  // Dataset::Open is the only maker of datasets.
  return std::make_unique<OpenSampleReader>(std::static_pointer_cast<const OpenDataset>(dataset),
                                            options);
}

}  // namespace headrace::dataset
