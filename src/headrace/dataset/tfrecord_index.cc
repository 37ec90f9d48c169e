// BuildTfRecordIndex: each record of a TFRecord file is a sample, each feature of its Example a
// field.
#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/index_data.h"
#include "headrace/dataset/tf_example.h"
#include "headrace/dataset/tfrecord.h"

namespace headrace::dataset {
namespace {

constexpr size_t kMaxDamageKept = 1000;
// Numbers that lie scattered are copied into the index: no more of one feature.
constexpr uint64_t kMaxScatteredValues = 65536;

class TfRecordIndexer {
 public:
  TfRecordIndexer(const RandomAccessFile& file, std::string_view name, const BuildOptions& options,
                  const Context& ctx)
      : file_(file),
        name_(name),
        options_(options),
        ctx_(ctx),
        window_(file, ctx),
        scanner_(&window_, ctx),
        builder_(ShardKind::kRecords) {}

  Result<BuiltIndex> Run() {
    HR_RETURN_IF_ERROR(scanner_.CheckStart());
    HR_RETURN_IF_ERROR(TakeRecords());
    HR_RETURN_IF_ERROR(FinishShardIndex(&builder_, file_, options_, ctx_, &built_));
    return std::move(built_);
  }

 private:
  // A field of the sample that is being put together. The memory of its texts is used again.
  struct Part {
    std::string name, array_form, value;
    uint64_t offset = 0, length = 0;
    bool in_index = false;
  };

  Status TakeRecords();
  // `lost`: where the next record begins is not known.
  Status TakeDamage(TarDamage damage, bool lost);
  Status TakeRecord(TfRecord* record);
  Status CheckRecord(TfRecord* record) {
    HR_RETURN_IF_ERROR(scanner_.ReadChecksum(record));
    return scanner_.CheckData(*record);
  }
  Status ExplainNoExample(TfRecord* record, Status fault);
  Status AddFeature(const TfFeature& feature);
  Status AddBytes(const TfFeature& feature);
  Status AddNumbers(const TfFeature& feature);
  Status AddScatteredNumbers(const TfFeature& feature, uint64_t count, Part* part);
  Status AddSample(const TfRecord& record);
  Part* NextPart() {
    if (num_parts_ == parts_.size()) parts_.emplace_back();
    Part* part = &parts_[num_parts_++];
    part->name.clear();
    part->array_form.clear();
    part->value.clear();
    part->in_index = false;
    return part;
  }
  void SetKey(const TfRecord& record) { key_ = fmt::format("{}/{:08}", name_, record.number); }
  Location At(uint64_t offset) const {
    return {.file = file_.path(), .offset = offset, .key = key_, .field = {}};
  }

  const RandomAccessFile& file_;
  const std::string_view name_;
  const BuildOptions& options_;
  const Context& ctx_;
  FileWindow window_;
  TfRecordScanner scanner_;
  IndexBuilder builder_;
  BuiltIndex built_;
  TfExample example_;
  std::string key_;
  std::string scattered_;  // the values of a feature, one behind the other
  std::vector<Part> parts_;
  size_t num_parts_ = 0;
  std::vector<IndexBuilder::Field> fields_;
};

Status TfRecordIndexer::TakeRecords() {
  TfRecord record;
  std::optional<TarDamage> damage;
  for (;;) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_ASSIGN_OR_RETURN(bool more, scanner_.Next(&record, &damage));
    if (more) {
      HR_RETURN_IF_ERROR(TakeRecord(&record));
    } else if (damage) {
      HR_RETURN_IF_ERROR(TakeDamage(*std::move(damage), true));
    } else {
      return OkStatus();
    }
  }
}

Status TfRecordIndexer::TakeDamage(TarDamage damage, bool lost) {
  if (!options_.allow_damage)
    return Error(
               Code::kDataLoss,
               "{} is damaged at offset {}: {}. Get a good copy, or make an index of what is left "
               "with `headrace index --allow-damage`",
               file_.path(), damage.offset, damage.reason)
        .At({.file = file_.path(), .offset = damage.offset, .key = {}, .field = {}});
  if (lost) HR_RETURN_IF_ERROR(scanner_.Resync(&damage));
  ++built_.scan.num_damaged;
  if (built_.scan.damage.size() < kMaxDamageKept) built_.scan.damage.push_back(std::move(damage));
  return OkStatus();
}

Status TfRecordIndexer::TakeRecord(TfRecord* record) {
  ++built_.scan.num_members;
  built_.scan.end_offset = record->offset + record->length + kTfFooterBytes;
  SetKey(*record);
  Status parsed = example_.Parse(&window_, record->offset, record->length);
  // What says nothing at all is rare enough to be checked at once.
  if (parsed.ok() && example_.features().empty() && record->length > 0)
    parsed = CheckRecord(record);
  if (!parsed.ok()) return ExplainNoExample(record, std::move(parsed));
  HR_RETURN_IF_ERROR(scanner_.ReadChecksum(record));
  num_parts_ = 0;
  for (const TfFeature& feature : example_.features())
    HR_RETURN_IF_ERROR(AddFeature(feature).At(At(record->offset)));
  return AddSample(*record);
}

// A record that cannot be parsed is damaged, or it is something else: its checksum tells.
Status TfRecordIndexer::ExplainNoExample(TfRecord* record, Status fault) {
  if (fault.code() != Code::kDataLoss && fault.code() != Code::kUnimplemented) return fault;
  Status damaged = CheckRecord(record);
  if (!damaged.ok() && damaged.code() != Code::kDataLoss) return damaged;
  if (options_.allow_damage && damaged.ok()) {
    if (built_.num_skipped++ == 0) built_.first_skipped = key_;
    return OkStatus();
  }
  if (!damaged.ok())
    return TakeDamage(
        {record->offset - kTfHeaderBytes, record->offset + record->length + kTfFooterBytes,
         "the record there does not match its checksum"},
        false);
  return Error(
             fault.code() == Code::kUnimplemented ? fault.code() : Code::kInvalidArgument,
             "record {} of {} is no tf.train.Example that can be read: {}. Its checksum is right. "
             "`headrace index --allow-damage` leaves such records out",
             record->number, file_.path(), fault.message())
      .At(At(record->offset));
}

Status TfRecordIndexer::AddFeature(const TfFeature& feature) {
  switch (feature.kind) {
    case TfFeatureKind::kNone:
      return OkStatus();
    case TfFeatureKind::kBytes:
      return AddBytes(feature);
    default:
      return AddNumbers(feature);
  }
}

// The first value is the field NAME, the others are NAME[1], NAME[2]...
Status TfRecordIndexer::AddBytes(const TfFeature& feature) {
  for (size_t i = 0; i < feature.num_values; ++i) {
    const TfValues& value = example_.values(feature)[i];
    Part* part = NextPart();
    part->name = feature.name;
    if (i > 0) part->name += fmt::format("[{}]", i);
    part->offset = value.offset;
    part->length = value.length;
  }
  return OkStatus();
}

Status TfRecordIndexer::AddNumbers(const TfFeature& feature) {
  const TfValues* values = example_.values(feature);
  uint64_t count = 0;
  for (size_t i = 0; i < feature.num_values; ++i) count += values[i].count;
  Part* part = NextPart();
  part->name = feature.name;
  // One value with a tag of its own lies as a packed one does.
  if (feature.num_values != 1) return AddScatteredNumbers(feature, count, part);
  const bool is_float = feature.kind == TfFeatureKind::kFloat;
  HR_ASSIGN_OR_RETURN(
      ArrayForm form,
      ArrayForm::Make(is_float ? ElementType::kFloat32 : ElementType::kVarint64, {&count, 1}));
  form.AppendTo(&part->array_form);
  part->offset = values[0].offset;
  part->length = values[0].length;
  return OkStatus();
}

Status TfRecordIndexer::AddScatteredNumbers(const TfFeature& feature, uint64_t count, Part* part) {
  if (count > kMaxScatteredValues)
    return Error(Code::kUnimplemented,
                 "the feature '{}' has {} numbers that are not packed, which is supported up to "
                 "{}: write the file again with a current protobuf",
                 EscapeText(feature.name), count, kMaxScatteredValues);
  scattered_.clear();
  for (size_t i = 0; i < feature.num_values; ++i) {
    const TfValues& stretch = example_.values(feature)[i];
    for (uint64_t done = 0; done < stretch.length;) {
      HR_ASSIGN_OR_RETURN(Bytes bytes,
                          window_.Get(stretch.offset + done,
                                      std::min(stretch.length - done, FileWindow::kMaxBytes)));
      if (bytes.empty()) return Error(Code::kDataLoss, "{} became shorter", file_.path());
      scattered_.append(AsText(bytes));
      done += bytes.size();
    }
  }
  const bool is_float = feature.kind == TfFeatureKind::kFloat;
  HR_ASSIGN_OR_RETURN(
      ArrayForm form,
      ArrayForm::Make(is_float ? ElementType::kFloat32 : ElementType::kVarint64, {&count, 1}));
  part->in_index = true;
  part->value.resize(NpyBytes(form));
  return WriteNpy(form, AsBytes(scattered_),
                  {reinterpret_cast<std::byte*>(part->value.data()), part->value.size()});
}

Status TfRecordIndexer::AddSample(const TfRecord& record) {
  fields_.clear();
  for (const Part& part : std::span(parts_).first(num_parts_))
    fields_.push_back({.name = part.name,
                       .offset = part.offset,
                       .length = part.length,
                       .crc32c = {},
                       .in_index = part.in_index,
                       .value = part.value,
                       .seek_points = {},
                       .array_form = part.array_form});
  // In the order of their bytes, as who reads all data goes through them.
  std::stable_sort(fields_.begin(), fields_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.in_index, a.offset) < std::pair(b.in_index, b.offset);
  });
  return builder_
      .Add(key_, fields_,
           {.offset = record.offset, .length = record.length, .crc32c = record.crc32c})
      .At(At(record.offset));
}

}  // namespace

Result<BuiltIndex> BuildTfRecordIndex(const RandomAccessFile& file, std::string_view name,
                                      const BuildOptions& options, const Context& ctx) {
  return TfRecordIndexer(file, name, options, ctx).Run();
}

Result<bool> IsTfRecordFile(FileSystem* fs, const std::string& path) {
  if (IsTfRecordName(path)) return true;
  if (path.ends_with(".tar")) return false;
  HR_ASSIGN_OR_RETURN(auto file, fs->OpenForRead(path));
  return LooksLikeTfRecord(*file, Context());
}

}  // namespace headrace::dataset
