#include <algorithm>
#include <array>
#include <atomic>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/index_format.h"

namespace headrace::dataset {

using namespace index_format;  // NOLINT: the layout is this file's subject

struct IndexReader::Rep {
  std::string name;
  std::unique_ptr<MappedFile> mapped;
  Bytes file;
  ShardKind kind = ShardKind::kTar;
  bool may_have_arrays = false;
  uint64_t num_samples = 0, num_fields = 0, num_unchecked = 0;
  ShardIdentity identity;
  uint32_t header_crc = 0, samples_crc = 0;
  uint64_t chunk_table = 0;  // where the table starts, which is where the body ends
  std::array<Bytes, kLastSection + 1> sections;
  std::vector<std::string> field_names;
  // One bit for each chunk that was checked and found right.
  std::vector<std::atomic<uint64_t>> checked;

  Status Damaged(uint64_t offset, std::string_view what) const;
  // `status`, unless the mapped file has gone while it was made: then that.
  Status Unless(Status status) const;
  Status ReadAll();
  Status ReadHeader();
  Status ReadSectionTable();
  Status CheckSectionSizes() const;
  Status CheckChunkTable();
  Status ReadFieldNames();
  Status ReadSamplesCrc();
  uint64_t OffsetOf(Bytes part) const { return static_cast<uint64_t>(part.data() - file.data()); }
  Status CheckChunk(uint64_t chunk);
  Status Touch(Bytes part);
  Result<Bytes> Record(uint64_t i);
  // The part of section `data` that entries i and i + 1 of the section `table` enclose.
  Result<Bytes> Slice(SectionType table, SectionType data, uint64_t i, std::string_view what);
  Status CheckSeekPoints();
  Status Decode(Bytes record, IndexSample* out, uint64_t* first_field_ordinal) const;
  // False when the field makes no sense.
  bool DecodeField(RecordCursor* cursor, IndexField* field, uint64_t* previous_end) const;
  RecordRange DecodeRange(RecordCursor* cursor) const;
  Result<std::string_view> KeyOf(uint64_t i);
  Result<uint64_t> Find(std::string_view key);
};

Status IndexReader::Rep::Damaged(uint64_t offset, std::string_view what) const {
  return Error(Code::kDataLoss,
               "index {} is damaged at offset {}: {}. Make it again with `headrace index`", name,
               offset, what)
      .At({.file = name, .offset = offset, .key = {}, .field = {}});
}

Status IndexReader::Rep::Unless(Status status) const {
  Status there = mapped ? mapped->Check() : OkStatus();
  if (there.ok()) return status;
  return std::move(there)
      .Prefix("an index")
      .At({.file = name, .offset = {}, .key = {}, .field = {}});
}

Status IndexReader::Rep::ReadAll() {
  HR_RETURN_IF_ERROR(ReadHeader());
  HR_RETURN_IF_ERROR(ReadSectionTable());
  HR_RETURN_IF_ERROR(CheckChunkTable());
  HR_RETURN_IF_ERROR(ReadFieldNames());
  return ReadSamplesCrc();
}

Status IndexReader::Rep::ReadHeader() {
  if (file.size() < kMagic.size() || AsText(file.first(kMagic.size())) != kMagic)
    return Error(Code::kDataLoss, "{} is not a Headrace index: it does not begin with HRIDX", name)
        .At({.file = name, .offset = 0, .key = {}, .field = {}});
  if (file.size() < kHeaderBytes)
    return Damaged(0, fmt::format("the file has {} bytes, its header alone has {}", file.size(),
                                  kHeaderBytes));
  const std::byte* h = file.data();
  header_crc = LoadLittle<uint32_t>(h + kAtHeaderCrc);
  if (Crc32c(file.first(kAtHeaderCrc)) != header_crc)
    return Damaged(kAtHeaderCrc, "the header does not match its CRC32C");
  uint32_t version = LoadLittle<uint32_t>(h + kAtVersion);
  if (version < kFirstVersion || version > kVersion)
    return Error(Code::kFailedPrecondition,
                 "index {} has version {}, this program reads versions {} to {}: use a newer "
                 "headrace, or make the index again with `headrace index`",
                 name, version, kFirstVersion, kVersion)
        .At({.file = name, .offset = kAtVersion, .key = {}, .field = {}});
  uint64_t file_bytes = LoadLittle<uint64_t>(h + kAtFileBytes);
  if (file_bytes != file.size())
    return Damaged(file.size(), fmt::format("the file has {} bytes, its header says {}",
                                            file.size(), file_bytes));
  uint32_t kind_number = LoadLittle<uint32_t>(h + kAtKind);
  if (kind_number < 1 || kind_number > (version == kFirstVersion ? 2 : 3))
    return Damaged(kAtKind, fmt::format("unknown kind of shard {}", kind_number));
  kind = static_cast<ShardKind>(kind_number);
  may_have_arrays = version > kFirstVersion && kind != ShardKind::kFiles;
  num_samples = LoadLittle<uint64_t>(h + kAtNumSamples);
  num_fields = LoadLittle<uint64_t>(h + kAtNumFields);
  num_unchecked = LoadLittle<uint64_t>(h + kAtNumUnchecked);
  identity = {.size_bytes = LoadLittle<uint64_t>(h + kAtShardBytes),
              .head_crc32c = LoadLittle<uint32_t>(h + kAtShardHead),
              .tail_crc32c = LoadLittle<uint32_t>(h + kAtShardTail)};
  chunk_table = LoadLittle<uint64_t>(h + kAtChunkTable);
  return OkStatus();
}

Status IndexReader::Rep::ReadSectionTable() {
  if (chunk_table < kHeaderBytes || chunk_table > file.size())
    return Damaged(kAtChunkTable, "the table of chunk checksums lies outside the file");
  uint32_t count = LoadLittle<uint32_t>(file.data() + kAtNumSections);
  if (count > kMaxSections) return Damaged(kAtNumSections, "too many sections");
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t at = kAtSections + i * kSectionBytes;
    const std::byte* entry = file.data() + at;
    uint32_t type = LoadLittle<uint32_t>(entry);
    uint32_t flags = LoadLittle<uint32_t>(entry + 4);
    uint64_t offset = LoadLittle<uint64_t>(entry + 8);
    uint64_t length = LoadLittle<uint64_t>(entry + 16);
    if (offset < kHeaderBytes || offset > chunk_table || length > chunk_table - offset)
      return Damaged(at, fmt::format("section {} lies outside the body", type));
    if (type >= kFieldNames && type <= kLastSection) {
      sections[type] = file.subspan(offset, length);
    } else if ((flags & kSectionRequired) != 0) {
      return Error(Code::kFailedPrecondition,
                   "index {} has a section of type {} that this program must know and does not: "
                   "use a newer headrace",
                   name, type)
          .At({.file = name, .offset = at, .key = {}, .field = {}});
    }
  }
  return CheckSectionSizes();
}

Status IndexReader::Rep::CheckSectionSizes() const {
  if (num_samples > kMaxSamples)
    return Damaged(kAtNumSamples, fmt::format("{} samples are too many", num_samples));
  if (sections[kOffsets].size() != (num_samples + 1) * 8)
    return Damaged(kAtSections, "the offset table does not fit the number of samples");
  if (sections[kKeyHashes].size() != num_samples * 8)
    return Damaged(kAtSections, "the key table does not fit the number of samples");
  // A field takes at least three bytes of its record.
  if (num_fields > sections[kRecords].size() || num_unchecked > num_fields)
    return Damaged(kAtNumFields, "more fields than the records can hold");
  if (!sections[kSeekOffsets].empty() && sections[kSeekOffsets].size() != (num_fields + 1) * 8)
    return Damaged(kAtSections, "the table of seek points does not fit the number of fields");
  return OkStatus();
}

Status IndexReader::Rep::CheckChunkTable() {
  uint64_t num_chunks = (chunk_table - kHeaderBytes + kChunkBytes - 1) / kChunkBytes;
  Bytes table = file.subspan(chunk_table);
  if (table.size() != num_chunks * 4)
    return Damaged(chunk_table, fmt::format("the table of chunk checksums has {} bytes, not {}",
                                            table.size(), num_chunks * 4));
  if (Crc32c(table) != LoadLittle<uint32_t>(file.data() + kAtChunkTableCrc))
    return Damaged(chunk_table, "the table of chunk checksums does not match its CRC32C");
  checked = std::vector<std::atomic<uint64_t>>((num_chunks + 63) / 64);
  return OkStatus();
}

Status IndexReader::Rep::ReadFieldNames() {
  Bytes part = sections[kFieldNames];
  HR_RETURN_IF_ERROR(Touch(part));
  size_t at = 4;
  uint32_t count = part.size() < 4 ? 0 : LoadLittle<uint32_t>(part.data());
  if (part.size() < 4 || count > kMaxFieldNames)
    return Damaged(OffsetOf(part), "the table of field names has no right count");
  for (uint32_t i = 0; i < count; ++i) {
    size_t rest = part.size() - at;
    size_t length = rest < 2 ? 0 : LoadLittle<uint16_t>(part.data() + at);
    if (rest < 2 || length > rest - 2)
      return Damaged(OffsetOf(part), "the table of field names ends too early");
    field_names.emplace_back(AsText(part.subspan(at + 2, length)));
    at += 2 + length;
  }
  return OkStatus();
}

Status IndexReader::Rep::ReadSamplesCrc() {
  Bytes part = sections[kSamplesCrc];
  samples_crc = header_crc;
  if (part.empty()) return OkStatus();
  if (part.size() != 4)
    return Damaged(kAtSections, fmt::format("section {} has {} bytes, not 4",
                                            static_cast<int>(kSamplesCrc), part.size()));
  HR_RETURN_IF_ERROR(Touch(part));
  samples_crc = LoadLittle<uint32_t>(part.data());
  return OkStatus();
}

Status IndexReader::Rep::CheckChunk(uint64_t chunk) {
  uint64_t begin = kHeaderBytes + chunk * kChunkBytes;
  uint64_t end = std::min<uint64_t>(begin + kChunkBytes, chunk_table);
  uint32_t expected = LoadLittle<uint32_t>(file.data() + chunk_table + chunk * 4);
  uint32_t found = Crc32c(file.subspan(begin, end - begin));
  if (found != expected)
    return Damaged(begin, fmt::format("the chunk of {} bytes there has CRC32C {:08x}, expected "
                                      "{:08x}",
                                      end - begin, found, expected));
  checked[chunk / 64].fetch_or(uint64_t{1} << (chunk % 64), std::memory_order_relaxed);
  return OkStatus();
}

// Makes sure that every chunk under `part`, which lies in the body, has been checked.
Status IndexReader::Rep::Touch(Bytes part) {
  if (part.empty()) return OkStatus();
  uint64_t first = (OffsetOf(part) - kHeaderBytes) / kChunkBytes;
  uint64_t last = (OffsetOf(part) + part.size() - 1 - kHeaderBytes) / kChunkBytes;
  for (uint64_t chunk = first; chunk <= last; ++chunk) {
    uint64_t word = checked[chunk / 64].load(std::memory_order_relaxed);
    if ((word >> (chunk % 64) & 1) == 0) HR_RETURN_IF_ERROR(CheckChunk(chunk));
  }
  return OkStatus();
}

Result<Bytes> IndexReader::Rep::Record(uint64_t i) {
  if (i >= num_samples)
    return Error(Code::kOutOfRange, "index {} has {} samples, there is no number {}", name,
                 num_samples, i);
  return Slice(kOffsets, kRecords, i, "the record of sample");
}

Result<Bytes> IndexReader::Rep::Slice(SectionType table, SectionType data, uint64_t i,
                                      std::string_view what) {
  Bytes entry = sections[table].subspan(i * 8, 16);
  HR_RETURN_IF_ERROR(Touch(entry));
  uint64_t begin = LoadLittle<uint64_t>(entry.data());
  uint64_t end = LoadLittle<uint64_t>(entry.data() + 8);
  if (begin > end || end > sections[data].size())
    return Damaged(OffsetOf(entry), fmt::format("{} {} lies outside its section", what, i));
  Bytes slice = sections[data].subspan(begin, end - begin);
  HR_RETURN_IF_ERROR(Touch(slice));
  return slice;
}

// That the records of seek points lie one behind the other and fill their section.
Status IndexReader::Rep::CheckSeekPoints() {
  Bytes table = sections[kSeekOffsets];
  if (table.empty()) return OkStatus();
  HR_RETURN_IF_ERROR(Touch(table));
  uint64_t before = 0;
  for (uint64_t i = 0; i <= num_fields; ++i) {
    uint64_t offset = LoadLittle<uint64_t>(table.data() + i * 8);
    if (offset < before || (i == 0 && offset != 0))
      return Damaged(OffsetOf(table) + i * 8, "the table of seek points does not ascend from 0");
    before = offset;
  }
  if (before == sections[kSeekRecords].size()) return OkStatus();
  return Damaged(OffsetOf(table) + num_fields * 8,
                 "the table of seek points does not end where their section ends");
}

bool IndexReader::Rep::DecodeField(RecordCursor* cursor, IndexField* field,
                                   uint64_t* previous_end) const {
  field->name = static_cast<uint32_t>(std::min<uint64_t>(cursor->Varint(), UINT32_MAX));
  uint8_t flags = cursor->Byte();
  field->in_index = (flags & kFieldInIndex) != 0;
  field->is_array = (flags & kFieldIsArray) != 0;
  if (field->in_index) {
    field->length = cursor->Varint();
    field->value = cursor->Text(field->length);
  } else {
    const bool is_range = kind != ShardKind::kFiles;
    if (is_range) field->offset = *previous_end + UnZigZag(cursor->Varint());
    field->length = cursor->Varint();
    if (is_range) *previous_end = field->offset + field->length;
    if (!is_range || field->is_array) field->value = cursor->Text(cursor->Varint());
  }
  if ((flags & kFieldHasCrc) != 0) field->crc32c = cursor->Word();
  if (!cursor->ok() || field->name >= field_names.size()) return false;
  ArrayForm form;
  return !field->is_array ||
         (may_have_arrays && !field->in_index && ArrayForm::Parse(field->value, &form));
}

RecordRange IndexReader::Rep::DecodeRange(RecordCursor* cursor) const {
  RecordRange range;
  if (kind != ShardKind::kRecords) return range;
  range.offset = cursor->Varint();
  range.length = cursor->Varint();
  range.crc32c = cursor->Word();
  return range;
}

Status IndexReader::Rep::Decode(Bytes record, IndexSample* out,
                                uint64_t* first_field_ordinal) const {
  RecordCursor cursor(record);
  out->fields.clear();
  out->key = cursor.Text(cursor.Varint());
  uint64_t ordinal = cursor.Varint();
  uint64_t count = cursor.Varint();
  bool fits = cursor.ok() && count <= kMaxFieldsOfSample && ordinal <= num_fields &&
              count <= num_fields - ordinal;
  out->record = DecodeRange(&cursor);
  uint64_t previous_end = out->record.offset;
  for (uint64_t k = 0; fits && k < count; ++k)
    fits = DecodeField(&cursor, &out->fields.emplace_back(), &previous_end);
  if (!fits || !cursor.at_end())
    return Damaged(OffsetOf(record), "the record there cannot be decoded");
  if (first_field_ordinal) *first_field_ordinal = ordinal;
  return OkStatus();
}

Result<std::string_view> IndexReader::Rep::KeyOf(uint64_t i) {
  HR_ASSIGN_OR_RETURN(Bytes record, Record(i));
  RecordCursor cursor(record);
  std::string_view key = cursor.Text(cursor.Varint());
  if (!cursor.ok()) return Damaged(OffsetOf(record), "the record there cannot be decoded");
  return key;
}

IndexReader::IndexReader() : rep_(std::make_unique<Rep>()) {}
IndexReader::~IndexReader() = default;

Result<std::unique_ptr<IndexReader>> IndexReader::Open(std::unique_ptr<MappedFile> file,
                                                       std::string name) {
  std::unique_ptr<IndexReader> reader(new IndexReader);
  Rep& rep = *reader->rep_;
  rep.name = std::move(name);
  rep.mapped = std::move(file);
  rep.file = rep.mapped ? rep.mapped->bytes() : Bytes();
  HR_RETURN_IF_ERROR(rep.Unless(rep.ReadAll()));
  return reader;
}

namespace {

// Bytes in memory, seen as a mapped file.
class BytesAsFile : public MappedFile {
 public:
  explicit BytesAsFile(std::string bytes) : bytes_(std::move(bytes)) {}
  Bytes bytes() const override { return AsBytes(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

Result<std::unique_ptr<IndexReader>> IndexReader::FromBytes(std::string bytes, std::string name) {
  return Open(std::make_unique<BytesAsFile>(std::move(bytes)), std::move(name));
}

ShardKind IndexReader::kind() const { return rep_->kind; }
uint64_t IndexReader::num_samples() const { return rep_->num_samples; }
uint64_t IndexReader::num_fields() const { return rep_->num_fields; }
uint64_t IndexReader::num_unchecked_fields() const { return rep_->num_unchecked; }
const ShardIdentity& IndexReader::identity() const { return rep_->identity; }
const std::string& IndexReader::name() const { return rep_->name; }
uint32_t IndexReader::header_crc32c() const { return rep_->header_crc; }
uint32_t IndexReader::samples_crc32c() const { return rep_->samples_crc; }
std::span<const std::string> IndexReader::field_names() const { return rep_->field_names; }

Status IndexReader::Get(uint64_t i, IndexSample* out, uint64_t* first_field_ordinal) const {
  Result<Bytes> record = rep_->Record(i);
  return rep_->Unless(record.ok() ? rep_->Decode(*record, out, first_field_ordinal)
                                  : std::move(record).status());
}

Status IndexReader::Check() const { return rep_->Unless(OkStatus()); }

void IndexReader::PrefetchPlace(uint64_t i) const {
  if (i < rep_->num_samples) __builtin_prefetch(rep_->sections[kOffsets].data() + i * 8);
}

void IndexReader::PrefetchRecord(uint64_t i) const {
  if (i >= rep_->num_samples) return;
  constexpr uint64_t kLineBytes = 64;
  Bytes records = rep_->sections[kRecords];
  uint64_t begin = LoadLittle<uint64_t>(rep_->sections[kOffsets].data() + i * 8);
  for (uint64_t at : {begin, begin + kLineBytes})  // few records are longer
    if (at < records.size()) __builtin_prefetch(records.data() + at);
}

bool IndexReader::has_seek_points() const { return !rep_->sections[kSeekOffsets].empty(); }
uint64_t IndexReader::seek_points_bytes() const { return rep_->sections[kSeekRecords].size(); }

Result<Bytes> IndexReader::SeekPoints(uint64_t field_ordinal) const {
  if (field_ordinal >= rep_->num_fields)
    return Error(Code::kOutOfRange, "index {} has {} fields, there is no number {}", rep_->name,
                 rep_->num_fields, field_ordinal);
  if (!has_seek_points()) return Bytes();
  auto found = rep_->Slice(kSeekOffsets, kSeekRecords, field_ordinal, "the seek points of field");
  HR_RETURN_IF_ERROR(rep_->Unless(found.status()));
  return found;
}

Result<uint64_t> IndexReader::Find(std::string_view key) const {
  auto found = rep_->Find(key);
  HR_RETURN_IF_ERROR(rep_->Unless(found.status()));
  return found;
}

Result<uint64_t> IndexReader::Rep::Find(std::string_view key) {
  const uint32_t hash = Crc32c(AsBytes(key));
  Bytes table = sections[kKeyHashes];
  uint64_t low = 0, high = num_samples;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    HR_RETURN_IF_ERROR(Touch(table.subspan(middle * 8, 8)));
    if (LoadLittle<uint32_t>(table.data() + middle * 8) < hash)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < num_samples; ++low) {
    HR_RETURN_IF_ERROR(Touch(table.subspan(low * 8, 8)));
    if (LoadLittle<uint32_t>(table.data() + low * 8) != hash) break;
    uint64_t sample = LoadLittle<uint32_t>(table.data() + low * 8 + 4);
    HR_ASSIGN_OR_RETURN(std::string_view found, KeyOf(sample));
    if (found == key) return sample;
  }
  return Error(Code::kNotFound, "index {} has no sample with the key {}", name,
               EscapeText(key.substr(0, 200)));
}

Status IndexReader::VerifyAll() const {
  HR_RETURN_IF_ERROR(rep_->Unless(
      rep_->Touch(rep_->file.subspan(kHeaderBytes, rep_->chunk_table - kHeaderBytes))));
  IndexSample sample;
  uint64_t expected_ordinal = 0, ordinal = 0, unchecked = 0;
  for (uint64_t i = 0; i < rep_->num_samples; ++i) {
    HR_RETURN_IF_ERROR(Get(i, &sample, &ordinal));
    if (ordinal != expected_ordinal)
      return rep_->Damaged(kAtNumFields, fmt::format("the fields before sample {} are {}, its "
                                                     "record says {}",
                                                     i, expected_ordinal, ordinal));
    expected_ordinal += sample.fields.size();
    for (const IndexField& field : sample.fields) unchecked += !field.crc32c.has_value();
  }
  if (expected_ordinal != rep_->num_fields || unchecked != rep_->num_unchecked)
    return rep_->Damaged(kAtNumFields, "the counts of fields do not fit the records");
  return rep_->Unless(rep_->CheckSeekPoints());
}

Result<ShardIdentity> IdentifyShard(const RandomAccessFile& file, const Context& ctx) {
  constexpr uint64_t kEdgeBytes = 4096;
  std::array<std::byte, kEdgeBytes> edge;
  uint64_t length = std::min(file.size(), kEdgeBytes);
  MutableBytes part = MutableBytes(edge).first(length);
  HR_RETURN_IF_ERROR(file.ReadAt(0, part, ctx));
  ShardIdentity identity{.size_bytes = file.size(), .head_crc32c = Crc32c(part)};
  HR_RETURN_IF_ERROR(file.ReadAt(file.size() - length, part, ctx));
  identity.tail_crc32c = Crc32c(part);
  return identity;
}

}  // namespace headrace::dataset
