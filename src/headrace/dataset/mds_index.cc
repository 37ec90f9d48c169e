// BuildMdsIndex: finds the samples of an MDS shard and the values in them. Layout: u32 number of
// samples, u32 offsets (one more than samples), the writer's settings, the samples. A sample: a u32
// size for each column without a fixed one, then the values.
#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/dataset/file_window.h"
#include "headrace/dataset/index_data.h"
#include "headrace/dataset/mds_content.h"

namespace headrace::dataset {
namespace {

constexpr size_t kMaxDamageKept = 1000;

// Where a value lies, or what is left of it.
struct Span {
  uint64_t at = 0, end = 0;
  uint64_t bytes() const { return end - at; }
};

// How Pillow's modes lie in memory.
struct PilMode {
  std::string_view name;
  ElementType element;
  uint64_t channels;
};
constexpr PilMode kPilModes[] = {
    {"L", ElementType::kUint8, 1},     {"P", ElementType::kUint8, 1},
    {"LA", ElementType::kUint8, 2},    {"La", ElementType::kUint8, 2},
    {"PA", ElementType::kUint8, 2},    {"RGB", ElementType::kUint8, 3},
    {"YCbCr", ElementType::kUint8, 3}, {"LAB", ElementType::kUint8, 3},
    {"HSV", ElementType::kUint8, 3},   {"RGBA", ElementType::kUint8, 4},
    {"RGBa", ElementType::kUint8, 4},  {"RGBX", ElementType::kUint8, 4},
    {"CMYK", ElementType::kUint8, 4},  {"I", ElementType::kInt32, 1},
    {"I;16", ElementType::kUint16, 1}, {"I;16L", ElementType::kUint16, 1},
    {"F", ElementType::kFloat32, 1}};

// The numbers that stand for types before an ndarray.
std::optional<ElementType> ElementOfCode(unsigned code) {
  switch (code) {
    case 8:
      return ElementType::kUint8;
    case 9:
      return ElementType::kInt8;
    case 16:
      return ElementType::kUint16;
    case 17:
      return ElementType::kInt16;
    case 18:
      return ElementType::kFloat16;
    case 32:
      return ElementType::kUint32;
    case 33:
      return ElementType::kInt32;
    case 34:
      return ElementType::kFloat32;
    case 64:
      return ElementType::kUint64;
    case 65:
      return ElementType::kInt64;
    case 66:
      return ElementType::kFloat64;
    default:
      return std::nullopt;
  }
}

uint64_t LoadNumber(Bytes bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

class MdsIndexer {
 public:
  MdsIndexer(const RandomAccessFile& file, const MdsShard& shard, const BuildOptions& options,
             const Context& ctx)
      : file_(file),
        shard_(shard),
        options_(options),
        ctx_(ctx),
        table_(file, ctx),
        window_(file, ctx),
        builder_(ShardKind::kTar) {
    for (const MdsColumn& column : shard.columns) num_sizes_ += column.fixed_bytes ? 0 : 1;
    sizes_.resize(num_sizes_);
    array_forms_.resize(shard.columns.size());
  }

  Result<BuiltIndex> Run() {
    HR_RETURN_IF_ERROR(CheckHead());
    for (uint64_t i = 0; i < shard_.samples; ++i) HR_RETURN_IF_ERROR(TakeOrLeaveOut(i));
    // What the version stands for is known before the shard was opened, unless samples are missing.
    std::optional<uint32_t> identity;
    if (built_.scan.num_damaged == 0) identity = shard_.Identity();
    HR_RETURN_IF_ERROR(FinishShardIndex(&builder_, file_, options_, ctx_, &built_, identity));
    return std::move(built_);
  }

 private:
  uint64_t TableEnd() const { return 4 + 4 * (shard_.samples + 1); }
  Status Wrong(uint64_t offset, std::string message, std::string_view field = {},
               Code code = Code::kDataLoss) const {
    return Status(code, std::move(message))
        .At({.file = file_.path(), .offset = offset, .key = key_, .field = std::string(field)});
  }
  // The bytes of a value's head: all of them, or a fault.
  Result<Bytes> Take(Span* span, uint64_t bytes, std::string_view field);
  Status CheckHead();
  Result<Span> SampleSpan(uint64_t i);
  Status TakeOrLeaveOut(uint64_t i);
  Status TakeSample(uint64_t i);
  Status TakeSizes(Span* sample);
  Status TakeValue(size_t column, Span value);
  Status TakeNdarray(const MdsColumn& column, Span* value, ArrayForm* form);
  Result<std::vector<uint64_t>> TakeShape(const MdsColumn& column, Span* value);
  Status TakePil(const MdsColumn& column, Span* value, ArrayForm* form);

  const RandomAccessFile& file_;
  const MdsShard& shard_;
  const BuildOptions& options_;
  const Context& ctx_;
  FileWindow table_;   // over the offsets
  FileWindow window_;  // over the samples
  IndexBuilder builder_;
  BuiltIndex built_;
  size_t num_sizes_ = 0;
  std::string key_;
  std::vector<uint32_t> sizes_;
  std::vector<std::string> array_forms_;  // of each column; their memory is used again
  std::vector<IndexBuilder::Field> fields_;
};

Result<Bytes> MdsIndexer::Take(Span* span, uint64_t bytes, std::string_view field) {
  if (bytes > span->bytes())
    return Wrong(span->at,
                 fmt::format("a value ends after {} bytes, in its first {}", span->bytes(), bytes),
                 field);
  HR_ASSIGN_OR_RETURN(Bytes taken, window_.Get(span->at, bytes));
  if (taken.size() < bytes) return Wrong(span->at, "the file became shorter while it was read");
  span->at += bytes;
  return taken;
}

Status MdsIndexer::CheckHead() {
  if (file_.size() != shard_.raw.bytes)
    return Wrong(file_.size(), fmt::format("{} has {} bytes, index.json says {}", file_.path(),
                                           file_.size(), shard_.raw.bytes));
  if (file_.size() < TableEnd())
    return Wrong(file_.size(), fmt::format("{} has {} bytes, the table of {} samples alone has {}",
                                           file_.path(), file_.size(), shard_.samples, TableEnd()));
  HR_ASSIGN_OR_RETURN(Bytes head, table_.Get(0, 4));
  if (head.size() == 4 && LoadLittle<uint32_t>(head.data()) == shard_.samples) return OkStatus();
  return Wrong(0, fmt::format("{} begins with another number of samples than the {} that "
                              "index.json says: it is damaged, or no MDS shard",
                              file_.path(), shard_.samples));
}

Result<Span> MdsIndexer::SampleSpan(uint64_t i) {
  const uint64_t at = 4 + 4 * i;
  HR_ASSIGN_OR_RETURN(Bytes pair, table_.Get(at, 8));
  if (pair.size() < 8) return Wrong(at, "the file became shorter while it was read");
  Span sample{LoadLittle<uint32_t>(pair.data()), LoadLittle<uint32_t>(pair.data() + 4)};
  const bool is_last = i + 1 == shard_.samples;
  if (sample.at >= TableEnd() && sample.at <= sample.end && sample.end <= file_.size() &&
      (!is_last || sample.end == file_.size()))
    return sample;
  return Wrong(at, fmt::format("{} is damaged: sample {} would lie from {} to {} of {} bytes",
                               file_.path(), i, sample.at, sample.end, file_.size()));
}

// Each sample has its place in the table, so that damage of one leaves the others as they are.
Status MdsIndexer::TakeOrLeaveOut(uint64_t i) {
  Status taken = TakeSample(i);
  if (taken.code() != Code::kDataLoss) {
    ++built_.scan.num_members;
    return taken;
  }
  if (!options_.allow_damage)
    return Error(Code::kDataLoss,
                 "{}. Get a good copy, or make an index of what is left with `headrace index "
                 "--allow-damage`",
                 taken.message())
        .At(taken.location());
  ++built_.scan.num_damaged;
  if (built_.scan.damage.size() < kMaxDamageKept) {
    const uint64_t at = taken.location().offset.value_or(0);
    built_.scan.damage.push_back({at, at, fmt::format("sample {}: {}", i, taken.message())});
  }
  return OkStatus();
}

Status MdsIndexer::TakeSample(uint64_t i) {
  HR_RETURN_IF_ERROR(ctx_.Check());
  key_ = fmt::format("{}/{:08}", shard_.raw.name, i);
  HR_ASSIGN_OR_RETURN(Span sample, SampleSpan(i));
  HR_RETURN_IF_ERROR(TakeSizes(&sample));
  fields_.clear();
  size_t next_size = 0;
  for (size_t c = 0; c < shard_.columns.size(); ++c) {
    const MdsColumn& column = shard_.columns[c];
    const uint64_t bytes = column.fixed_bytes ? *column.fixed_bytes : sizes_[next_size++];
    if (bytes > sample.bytes())
      return Wrong(sample.at,
                   fmt::format("{} is damaged: a value of {} bytes where its sample has {} left",
                               file_.path(), bytes, sample.bytes()),
                   column.name);
    HR_RETURN_IF_ERROR(TakeValue(c, {sample.at, sample.at + bytes}));
    sample.at += bytes;
  }
  if (sample.bytes() > 0)
    return Wrong(sample.at, fmt::format("{} is damaged: {} bytes of a sample belong to no column",
                                        file_.path(), sample.bytes()));
  return builder_.Add(key_, fields_)
      .At({.file = file_.path(), .offset = sample.at, .key = key_, .field = {}});
}

Status MdsIndexer::TakeSizes(Span* sample) {
  HR_ASSIGN_OR_RETURN(Bytes sizes, Take(sample, 4 * num_sizes_, ""));
  for (size_t i = 0; i < num_sizes_; ++i) sizes_[i] = LoadLittle<uint32_t>(sizes.data() + 4 * i);
  return OkStatus();
}

Status MdsIndexer::TakeValue(size_t c, Span value) {
  const MdsColumn& column = shard_.columns[c];
  const uint64_t begin = value.at;
  std::string* coded = &array_forms_[c];
  coded->clear();
  if (column.encoding.form != MdsEncoding::Form::kBytes) {
    ArrayForm form;
    if (column.encoding.form == MdsEncoding::Form::kNumber) {
      form.element = *column.encoding.element;
    } else if (column.encoding.form == MdsEncoding::Form::kNdarray) {
      HR_RETURN_IF_ERROR(TakeNdarray(column, &value, &form));
    } else {
      HR_RETURN_IF_ERROR(TakePil(column, &value, &form));
    }
    if (form.StoredBytes() != value.bytes())
      return Wrong(begin,
                   fmt::format("{} is damaged: a value of the encoding '{}' has {} bytes of "
                               "elements, its shape needs {}",
                               file_.path(), EscapeText(column.encoding_name), value.bytes(),
                               form.StoredBytes()),
                   column.name);
    form.AppendTo(coded);
  }
  IndexBuilder::Field& field = fields_.emplace_back();
  field.name = column.name;
  field.offset = value.at;
  field.length = value.bytes();
  field.array_form = *coded;
  return OkStatus();
}

Status MdsIndexer::TakeNdarray(const MdsColumn& column, Span* value, ArrayForm* form) {
  const uint64_t begin = value->at;
  std::optional<ElementType> element = column.encoding.element;
  if (!element) {
    HR_ASSIGN_OR_RETURN(Bytes code, Take(value, 1, column.name));
    element = ElementOfCode(std::to_integer<unsigned>(code[0]));
    if (!element)
      return Wrong(begin, fmt::format("an ndarray has the unknown type {}", LoadNumber(code)),
                   column.name);
  }
  auto shape = column.encoding.shape ? *column.encoding.shape : TakeShape(column, value);
  if (!shape.ok()) return std::move(shape).status();
  auto made = ArrayForm::Make(*element, *shape);
  if (!made.ok())
    return Wrong(begin, std::string(made.status().message()), column.name, Code::kUnimplemented);
  *form = *made;
  return OkStatus();
}

// One byte: number of dimensions, and how wide they are; then the dimensions.
Result<std::vector<uint64_t>> MdsIndexer::TakeShape(const MdsColumn& column, Span* value) {
  HR_ASSIGN_OR_RETURN(Bytes head, Take(value, 1, column.name));
  const unsigned code = std::to_integer<unsigned>(head[0]);
  const size_t num_dims = code >> 2, width = size_t{1} << (code & 3);
  HR_ASSIGN_OR_RETURN(Bytes dims, Take(value, num_dims * width, column.name));
  std::vector<uint64_t> shape(num_dims);
  for (size_t i = 0; i < num_dims; ++i) shape[i] = LoadNumber(dims.subspan(i * width, width));
  return shape;
}

// Width, height and the length of the mode's name, then the name, then rows of pixels.
Status MdsIndexer::TakePil(const MdsColumn& column, Span* value, ArrayForm* form) {
  constexpr uint32_t kMaxModeBytes = 16;
  const uint64_t begin = value->at;
  HR_ASSIGN_OR_RETURN(Bytes head, Take(value, 12, column.name));
  const uint64_t width = LoadLittle<uint32_t>(head.data());
  const uint64_t height = LoadLittle<uint32_t>(head.data() + 4);
  const uint32_t mode_bytes = LoadLittle<uint32_t>(head.data() + 8);
  if (mode_bytes > kMaxModeBytes) return Wrong(begin, "an image's mode is damaged", column.name);
  HR_ASSIGN_OR_RETURN(Bytes mode, Take(value, mode_bytes, column.name));
  for (const PilMode& known : kPilModes) {
    if (known.name != AsText(mode)) continue;
    const uint64_t dims[] = {height, width, known.channels};
    auto made = ArrayForm::Make(known.element, std::span(dims, known.channels > 1 ? 3 : 2));
    if (!made.ok()) return Wrong(begin, std::string(made.status().message()), column.name);
    *form = *made;
    return OkStatus();
  }
  return Wrong(begin,
               fmt::format("an image of the mode '{}' has no form as an array: write the column "
                           "again as png",
                           EscapeText(AsText(mode))),
               column.name, Code::kUnimplemented);
}

}  // namespace

Result<BuiltIndex> BuildMdsIndex(const RandomAccessFile& file, const MdsShard& shard,
                                 const BuildOptions& options, const Context& ctx) {
  return MdsIndexer(file, shard, options, ctx).Run();
}

}  // namespace headrace::dataset
