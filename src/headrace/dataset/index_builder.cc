#include <algorithm>
#include <unordered_map>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/index_format.h"

namespace headrace::dataset {

using namespace index_format;  // NOLINT: the layout is this file's subject

namespace {

// Lays sections one after the other behind the header and writes the header last.
class FileLayout {
 public:
  FileLayout() : bytes_(kHeaderBytes, '\0') {}
  std::string* bytes() { return &bytes_; }
  void BeginSection(SectionType type, uint32_t flags = kSectionRequired) {
    Align();
    char* at = &bytes_[kAtSections + kSectionBytes * num_sections_++];
    StoreLittle<uint32_t>(at, type);
    StoreLittle<uint32_t>(at + 4, flags);
    StoreLittle<uint64_t>(at + 8, bytes_.size());
  }
  void EndSection() {
    char* at = &bytes_[kAtSections + kSectionBytes * (num_sections_ - 1)];
    StoreLittle<uint64_t>(at + 16, bytes_.size() - LoadLittle<uint64_t>(at + 8));
  }
  template <typename T>
  void Put(T value) {
    char word[sizeof(T)];
    StoreLittle(word, value);
    bytes_.append(word, sizeof word);
  }
  template <typename T>
  void SetHeader(size_t at, T value) {
    StoreLittle(&bytes_[at], value);
  }
  std::string Seal() {
    Align();
    size_t table = bytes_.size();
    for (size_t at = kHeaderBytes; at < table; at += kChunkBytes)
      Put(Crc32c(AsBytes(bytes_).subspan(at, std::min(kChunkBytes, table - at))));
    SetHeader<uint64_t>(kAtFileBytes, bytes_.size());
    SetHeader<uint64_t>(kAtChunkTable, table);
    SetHeader<uint32_t>(kAtChunkTableCrc, Crc32c(AsBytes(bytes_).subspan(table)));
    SetHeader<uint32_t>(kAtNumSections, num_sections_);
    SetHeader<uint32_t>(kAtHeaderCrc, Crc32c(AsBytes(bytes_).first(kAtHeaderCrc)));
    return std::move(bytes_);
  }

 private:
  void Align() { bytes_.append((8 - bytes_.size() % 8) % 8, '\0'); }
  std::string bytes_;
  uint32_t num_sections_ = 0;
};

}  // namespace

struct IndexBuilder::Rep {
  explicit Rep(ShardKind shard_kind) : kind(shard_kind) {}

  struct KeyHash {
    uint32_t hash;
    uint32_t sample;
    auto operator<=>(const KeyHash&) const = default;
  };
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  Status Check(std::string_view key, std::span<const Field> fields) const;
  Result<uint32_t> NameId(std::string_view name);
  void PutField(const Field& field, uint32_t name, uint64_t* previous_end);
  uint32_t Version() const;
  void PutSeekPoints(std::string_view record, uint64_t field_ordinal);
  uint64_t IndexBytes() const;  // a little more than the file will have
  void LaySamples(const ShardIdentity& identity, FileLayout* layout);
  void LaySeekPoints(FileLayout* layout);
  void SortHashes();

  ShardKind kind;
  std::string records;
  std::vector<uint64_t> offsets;  // of each record
  std::vector<KeyHash> hashes;
  bool hashes_sorted = false;
  std::vector<std::string> names;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> name_ids;
  std::vector<uint32_t> ids, sorted_ids;  // reused by Add
  // Where the seek points of each field start; as long as the last field that has some.
  std::vector<uint64_t> seek_offsets;
  std::vector<std::string> seek_blocks;  // the records; each block is given back once it is laid
  uint64_t seek_bytes = 0;
  uint64_t num_fields = 0;
  uint64_t num_unchecked = 0;
  bool has_arrays = false;
};

// The oldest that can hold what there is.
uint32_t IndexBuilder::Rep::Version() const {
  return has_arrays || kind == ShardKind::kRecords ? kVersion : kFirstVersion;
}

Status IndexBuilder::Rep::Check(std::string_view key, std::span<const Field> fields) const {
  if (key.size() > kMaxKeyBytes)
    return Error(Code::kInvalidArgument, "a sample key may have {} bytes, this one has {}: {}...",
                 kMaxKeyBytes, key.size(), EscapeText(key.substr(0, 60)));
  if (fields.size() > kMaxFieldsOfSample)
    return Error(Code::kInvalidArgument, "a sample may have {} fields, sample {} has {}",
                 kMaxFieldsOfSample, EscapeText(key), fields.size());
  if (offsets.size() >= kMaxSamples)
    return Error(Code::kResourceExhausted, "a shard may have {} samples: use more shards",
                 kMaxSamples);
  for (size_t i = 0; i < fields.size(); ++i) {
    std::string_view name = fields[i].name;
    if (name.empty() || name.size() > kMaxFieldNameBytes)
      return Error(Code::kInvalidArgument, "a field name has 1 to {} bytes, this one of {} has {}",
                   kMaxFieldNameBytes, EscapeText(key), name.size());
  }
  return OkStatus();
}

Result<uint32_t> IndexBuilder::Rep::NameId(std::string_view name) {
  if (auto it = name_ids.find(name); it != name_ids.end()) return it->second;
  if (names.size() >= kMaxFieldNames)
    return Error(Code::kResourceExhausted,
                 "a shard may have {} different field names; '{}' would be one more. Names of "
                 "members must be KEY.FIELD with few different fields",
                 kMaxFieldNames, EscapeText(name));
  uint32_t id = static_cast<uint32_t>(names.size());
  names.emplace_back(name);
  name_ids.emplace(name, id);
  return id;
}

void IndexBuilder::Rep::PutField(const Field& field, uint32_t name, uint64_t* previous_end) {
  std::optional<uint32_t> crc = field.in_index ? Crc32c(AsBytes(field.value)) : field.crc32c;
  const bool is_array = !field.array_form.empty();
  has_arrays |= is_array;
  PutVarint(name, &records);
  records.push_back(static_cast<char>((crc ? kFieldHasCrc : 0) |
                                      (field.in_index ? kFieldInIndex : 0) |
                                      (is_array ? kFieldIsArray : 0)));
  if (field.in_index) {
    PutVarint(field.value.size(), &records);
    records.append(field.value);
  } else {
    if (kind != ShardKind::kFiles) {
      PutVarint(ZigZag(field.offset - *previous_end), &records);
      *previous_end = field.offset + field.length;
    }
    PutVarint(field.length, &records);
    if (kind == ShardKind::kFiles || is_array) {
      std::string_view value = is_array ? field.array_form : field.value;
      PutVarint(value.size(), &records);
      records.append(value);
    }
  }
  if (crc) {
    char word[4];
    StoreLittle(word, *crc);
    records.append(word, sizeof word);
  } else {
    ++num_unchecked;
  }
}

void IndexBuilder::Rep::PutSeekPoints(std::string_view record, uint64_t field_ordinal) {
  if (record.empty()) return;
  constexpr size_t kBlockBytes = size_t{1} << 20;
  if (seek_blocks.empty() || record.size() > kBlockBytes - seek_blocks.back().size())
    seek_blocks.emplace_back().reserve(std::max(kBlockBytes, record.size()));
  seek_offsets.resize(field_ordinal + 1, seek_bytes);
  seek_blocks.back().append(record);
  seek_bytes += record.size();
}

uint64_t IndexBuilder::Rep::IndexBytes() const {
  constexpr uint64_t kNames = 65536;
  uint64_t bytes = kHeaderBytes + kNames + records.size() + 16 * offsets.size();
  if (seek_bytes != 0) bytes += seek_bytes + 8 * (num_fields + 1);
  return bytes + bytes / 1000;  // the chunk table
}

void IndexBuilder::Rep::SortHashes() {
  if (!hashes_sorted) std::sort(hashes.begin(), hashes.end());
  hashes_sorted = true;
}

IndexBuilder::IndexBuilder(ShardKind kind) : rep_(std::make_unique<Rep>(kind)) {}
IndexBuilder::~IndexBuilder() = default;
IndexBuilder::IndexBuilder(IndexBuilder&&) noexcept = default;
IndexBuilder& IndexBuilder::operator=(IndexBuilder&&) noexcept = default;
uint64_t IndexBuilder::num_samples() const { return rep_->offsets.size(); }
uint64_t IndexBuilder::num_fields() const { return rep_->num_fields; }

Status IndexBuilder::Add(std::string_view key, std::span<const Field> fields,
                         const RecordRange& record) {
  HR_RETURN_IF_ERROR(rep_->Check(key, fields));
  std::vector<uint32_t>& ids = rep_->ids;
  ids.resize(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    HR_ASSIGN_OR_RETURN(ids[i], rep_->NameId(fields[i].name));
  }
  std::vector<uint32_t>& sorted = rep_->sorted_ids;
  sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    return Error(Code::kInvalidArgument, "sample {} has the field '{}' twice", EscapeText(key),
                 EscapeText(rep_->names[*twice]));

  uint32_t sample = static_cast<uint32_t>(rep_->offsets.size());
  rep_->hashes.push_back({Crc32c(AsBytes(key)), sample});
  rep_->hashes_sorted = false;
  rep_->offsets.push_back(rep_->records.size());
  PutVarint(key.size(), &rep_->records);
  rep_->records.append(key);
  PutVarint(rep_->num_fields, &rep_->records);
  PutVarint(fields.size(), &rep_->records);
  if (rep_->kind == ShardKind::kRecords) {
    PutVarint(record.offset, &rep_->records);
    PutVarint(record.length, &rep_->records);
    char word[4];
    StoreLittle(word, record.crc32c);
    rep_->records.append(word, sizeof word);
  }
  uint64_t previous_end = record.offset;
  for (size_t i = 0; i < fields.size(); ++i) {
    rep_->PutField(fields[i], ids[i], &previous_end);
    rep_->PutSeekPoints(fields[i].seek_points, rep_->num_fields + i);
  }
  rep_->num_fields += fields.size();
  return OkStatus();
}

std::string_view IndexBuilder::KeyOf(uint64_t sample) const {
  RecordCursor cursor(AsBytes(rep_->records).subspan(rep_->offsets[sample]));
  uint64_t length = cursor.Varint();
  return cursor.Text(length);
}

std::optional<std::pair<uint64_t, uint64_t>> IndexBuilder::FindRepeatedKey() {
  rep_->SortHashes();
  const auto& hashes = rep_->hashes;
  std::vector<std::pair<std::string_view, uint64_t>> run;  // samples whose keys have equal hashes
  for (size_t begin = 0, end = 0; begin < hashes.size(); begin = end) {
    while (end < hashes.size() && hashes[end].hash == hashes[begin].hash) ++end;
    if (end - begin == 1) continue;
    run.clear();
    for (size_t i = begin; i < end; ++i)
      run.emplace_back(KeyOf(hashes[i].sample), hashes[i].sample);
    std::sort(run.begin(), run.end());
    for (size_t i = 1; i < run.size(); ++i)
      if (run[i - 1].first == run[i].first) return std::pair(run[i - 1].second, run[i].second);
  }
  return std::nullopt;
}

std::vector<std::string> IndexBuilder::SortedFieldNames() const {
  std::vector<std::string> names = rep_->names;
  std::sort(names.begin(), names.end());
  return names;
}

void IndexBuilder::Rep::LaySeekPoints(FileLayout* layout) {
  if (seek_bytes == 0) return;
  seek_offsets.resize(num_fields + 1, seek_bytes);
  layout->BeginSection(kSeekOffsets, 0);
  for (uint64_t offset : seek_offsets) layout->Put(offset);
  layout->EndSection();
  layout->BeginSection(kSeekRecords, 0);
  for (std::string& block : seek_blocks) {
    layout->bytes()->append(block);
    std::string().swap(block);
  }
  layout->EndSection();
}

// Everything but what is added for seek points.
void IndexBuilder::Rep::LaySamples(const ShardIdentity& identity, FileLayout* layout) {
  layout->BeginSection(kFieldNames);
  layout->Put<uint32_t>(static_cast<uint32_t>(names.size()));
  for (const std::string& name : names) {
    layout->Put<uint16_t>(static_cast<uint16_t>(name.size()));
    layout->bytes()->append(name);
  }
  layout->EndSection();
  layout->BeginSection(kOffsets);
  for (uint64_t offset : offsets) layout->Put(offset);
  layout->Put<uint64_t>(records.size());
  layout->EndSection();
  layout->BeginSection(kKeyHashes);
  for (const KeyHash& entry : hashes) {
    layout->Put(entry.hash);
    layout->Put(entry.sample);
  }
  layout->EndSection();
  layout->BeginSection(kRecords);
  layout->bytes()->append(records);
  layout->EndSection();
  layout->bytes()->replace(kAtMagic, kMagic.size(), kMagic);
  layout->SetHeader(kAtVersion, Version());
  layout->SetHeader(kAtKind, static_cast<uint32_t>(kind));
  layout->SetHeader<uint64_t>(kAtNumSamples, offsets.size());
  layout->SetHeader(kAtNumFields, num_fields);
  layout->SetHeader(kAtNumUnchecked, num_unchecked);
  layout->SetHeader(kAtShardBytes, identity.size_bytes);
  layout->SetHeader(kAtShardHead, identity.head_crc32c);
  layout->SetHeader(kAtShardTail, identity.tail_crc32c);
}

Result<std::string> IndexBuilder::Finish(const ShardIdentity& identity,
                                         std::optional<uint32_t> samples_crc32c) {
  rep_->SortHashes();
  if (!samples_crc32c && rep_->seek_bytes != 0) {
    FileLayout plain;
    rep_->LaySamples(identity, &plain);
    samples_crc32c = LoadLittle<uint32_t>(plain.Seal().data() + kAtHeaderCrc);
  }
  FileLayout layout;
  layout.bytes()->reserve(rep_->IndexBytes());
  rep_->LaySamples(identity, &layout);
  if (samples_crc32c) {
    layout.BeginSection(kSamplesCrc, 0);
    layout.Put(*samples_crc32c);
    layout.EndSection();
  }
  rep_->LaySeekPoints(&layout);
  return layout.Seal();
}

}  // namespace headrace::dataset
