// BuildTarIndex: groups the members of a tar into samples.
#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/index_data.h"
#include "headrace/dataset/index_format.h"

namespace headrace::dataset {
namespace {

using index_format::kMaxFieldsOfSample;

class TarIndexer {
 public:
  TarIndexer(const RandomAccessFile& file, const BuildOptions& options, const Context& ctx)
      : file_(file), options_(options), ctx_(ctx), builder_(ShardKind::kTar) {}

  Result<BuiltIndex> Run() {
    HR_ASSIGN_OR_RETURN(built_.scan,
                        ScanTar(file_, ctx_, [this](const TarMember& m) { return Take(m); }));
    HR_RETURN_IF_ERROR(FlushSample());
    if (built_.scan.num_damaged > 0 && !options_.allow_damage) return DamageError();
    HR_RETURN_IF_ERROR(CheckRepeatedKeys());
    HR_RETURN_IF_ERROR(FinishShardIndex(&builder_, file_, options_, ctx_, &built_));
    return std::move(built_);
  }

 private:
  struct Part {  // one member of the sample that is being put together
    std::string field;
    uint64_t header_offset, offset, length;
  };

  Status Take(const TarMember& member);
  Status TakeFile(const TarMember& member, std::string_view key, std::string_view field);
  Status FlushSample();
  Status CheckRepeatedKeys();
  Status DamageError() const;
  Status Refuse(Code code, uint64_t offset, std::string_view key, std::string message) const {
    return Status(code, std::move(message))
        .At({.file = file_.path(), .offset = offset, .key = std::string(key), .field = {}});
  }

  const RandomAccessFile& file_;
  const BuildOptions& options_;
  const Context& ctx_;
  IndexBuilder builder_;
  BuiltIndex built_;
  std::string key_;
  std::vector<Part> parts_;  // empty: no sample is open
  size_t num_parts_ = 0;     // used ones; the others keep their strings' memory
  std::vector<IndexBuilder::Field> fields_;
  std::vector<uint64_t> sample_offsets_;  // of each sample's first header
};

Status TarIndexer::Take(const TarMember& member) {
  if (member.kind == TarMemberKind::kSparse)
    return Refuse(
        Code::kUnimplemented, member.header_offset, member.path,
        fmt::format("the member {} of {} is stored sparse, so its bytes are not one range. "
                    "Unpack it and make the tar again without --sparse",
                    EscapeText(member.path), file_.path()));
  std::string_view key, field;
  if (member.kind == TarMemberKind::kFile && SplitMemberPath(member.path, &key, &field))
    return TakeFile(member, key, field);
  if (member.kind == TarMemberKind::kDirectory) return OkStatus();
  if (built_.num_skipped++ == 0) built_.first_skipped = member.path;
  return OkStatus();
}

Status TarIndexer::TakeFile(const TarMember& member, std::string_view key, std::string_view field) {
  if (num_parts_ > 0 && key != key_) HR_RETURN_IF_ERROR(FlushSample());
  if (num_parts_ == 0) key_ = key;
  for (size_t i = 0; i < num_parts_; ++i) {
    if (parts_[i].field != field) continue;
    return Refuse(Code::kInvalidArgument, member.header_offset, key,
                  fmt::format("{} has the field '{}' of sample {} twice, at offsets {} and {}: a "
                              "sample may have each field once",
                              file_.path(), EscapeText(field), EscapeText(key),
                              parts_[i].header_offset, member.header_offset));
  }
  if (num_parts_ == kMaxFieldsOfSample)
    return Refuse(
        Code::kInvalidArgument, member.header_offset, key,
        fmt::format("{} has more than {} members with the key {}: a sample has fewer fields",
                    file_.path(), kMaxFieldsOfSample, EscapeText(key)));
  if (num_parts_ == parts_.size()) parts_.emplace_back();
  Part& part = parts_[num_parts_++];
  part.field = field;
  part.header_offset = member.header_offset;
  part.offset = member.data_offset;
  part.length = member.size_bytes;
  return OkStatus();
}

Status TarIndexer::FlushSample() {
  if (num_parts_ == 0) return OkStatus();
  fields_.clear();
  for (size_t i = 0; i < num_parts_; ++i) {
    const Part& part = parts_[i];
    fields_.push_back({.name = part.field,
                       .offset = part.offset,
                       .length = part.length,
                       .crc32c = {},
                       .in_index = false,
                       .value = {},
                       .seek_points = {}});
  }
  sample_offsets_.push_back(parts_[0].header_offset);
  num_parts_ = 0;
  return builder_.Add(key_, fields_)
      .At({.file = file_.path(), .offset = sample_offsets_.back(), .key = key_, .field = {}});
}

Status TarIndexer::CheckRepeatedKeys() {
  if (options_.repeated_keys == RepeatedKeys::kSeparate) return OkStatus();
  auto repeated = builder_.FindRepeatedKey();
  if (!repeated) return OkStatus();
  std::string key(builder_.KeyOf(repeated->second));
  uint64_t first = sample_offsets_[repeated->first], again = sample_offsets_[repeated->second];
  return Refuse(
      Code::kInvalidArgument, again, key,
      fmt::format("{} has members of sample {} at offset {} and again, after other samples, "
                  "at offset {}: the members of a sample must stand together. Sort them "
                  "when the tar is made (`tar --sort=name`), or use `headrace pack`",
                  file_.path(), EscapeText(key), first, again));
}

Status TarIndexer::DamageError() const {
  const TarDamage& first = built_.scan.damage.front();
  return Refuse(
      Code::kDataLoss, first.offset, "",
      fmt::format("{} is damaged in {} place(s), first at offset {}: {}; reading could go on at "
                  "offset {}. Get a good copy, or make an index of what is left with "
                  "`headrace index --allow-damage`",
                  file_.path(), built_.scan.num_damaged, first.offset, first.reason,
                  first.resumed_at));
}

}  // namespace

Result<BuiltIndex> BuildTarIndex(const RandomAccessFile& file, const BuildOptions& options,
                                 const Context& ctx) {
  return TarIndexer(file, options, ctx).Run();
}

}  // namespace headrace::dataset
