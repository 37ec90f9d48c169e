#include "headrace/dataset/mds.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/dataset/manifest.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;
constexpr uint64_t kVersion = 2;
constexpr size_t kMaxColumns = 4096;
// Offsets in a shard have 32 bits.
constexpr uint64_t kMaxShardBytes = UINT32_MAX;

std::optional<ElementType> ElementOf(std::string_view name) {
  struct Row {
    std::string_view name;
    ElementType element;
  };
  static constexpr Row kRows[] = {
      {"uint8", ElementType::kUint8},     {"int8", ElementType::kInt8},
      {"uint16", ElementType::kUint16},   {"int16", ElementType::kInt16},
      {"uint32", ElementType::kUint32},   {"int32", ElementType::kInt32},
      {"uint64", ElementType::kUint64},   {"int64", ElementType::kInt64},
      {"float16", ElementType::kFloat16}, {"float32", ElementType::kFloat32},
      {"float64", ElementType::kFloat64}};
  for (const Row& row : kRows)
    if (row.name == name) return row.element;
  return std::nullopt;
}

// "3,4" as dimensions.
Result<std::vector<uint64_t>> ParseShape(std::string_view text) {
  std::vector<uint64_t> shape;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    uint64_t dim = 0;
    auto [stop, fault] = std::from_chars(text.data() + begin, text.data() + end, dim);
    if (fault != std::errc() || stop != text.data() + end || dim == 0)
      return Error(Code::kInvalidArgument, "'{}' is no shape: expected numbers such as 3,224,224",
                   EscapeText(text));
    shape.push_back(dim);
    begin = end + 1;
  }
  return shape;
}

Result<MdsEncoding> ParseNdarray(std::string_view config) {
  MdsEncoding encoding{MdsEncoding::Form::kNdarray, {}, {}};
  const size_t colon = std::min(config.find(':'), config.size());
  encoding.element = ElementOf(config.substr(0, colon));
  if (!encoding.element)
    return Error(Code::kInvalidArgument, "'{}' is no type of an ndarray's elements",
                 EscapeText(config.substr(0, colon)));
  if (colon == config.size()) return encoding;
  HR_ASSIGN_OR_RETURN(encoding.shape, ParseShape(config.substr(colon + 1)));
  HR_RETURN_IF_ERROR(ArrayForm::Make(*encoding.element, *encoding.shape).status());
  return encoding;
}

// As in the manifest: no two contents have the same form.
void PutText(std::string_view text, std::string* out) {
  out->append(std::to_string(text.size())).append(":").append(text).append(",");
}
void PutNumber(uint64_t number, std::string* out) { PutText(std::to_string(number), out); }

// Reads one shard's object.
class ShardParser {
 public:
  explicit ShardParser(const Json& object) : object_(object) {}

  Result<MdsShard> Parse() {
    HR_RETURN_IF_ERROR(CheckFormat());
    HR_ASSIGN_OR_RETURN(shard_.samples, object_.GetUint("samples"));
    if (shard_.samples >= UINT32_MAX)
      return Error(Code::kInvalidArgument, "samples: {} are too many", shard_.samples);
    HR_ASSIGN_OR_RETURN(shard_.raw, ParseFile("raw_data"));
    if (shard_.raw.bytes > kMaxShardBytes)
      return Error(Code::kInvalidArgument, "raw_data: {} bytes are more than a shard can have",
                   shard_.raw.bytes);
    HR_RETURN_IF_ERROR(ParsePacked());
    HR_RETURN_IF_ERROR(ParseColumns());
    return std::move(shard_);
  }

 private:
  Status CheckFormat() const {
    HR_ASSIGN_OR_RETURN(std::string format, object_.GetString("format"));
    if (format != "mds")
      return Error(Code::kUnimplemented,
                   "the format '{}' is not supported, only 'mds' is: write the dataset again with "
                   "MDSWriter",
                   EscapeText(format));
    HR_ASSIGN_OR_RETURN(uint64_t version, object_.GetUint("version"));
    if (version == kVersion) return OkStatus();
    return Error(Code::kUnimplemented, "version {} is not supported, only {} is", version,
                 kVersion);
  }

  Result<MdsFile> ParseFile(std::string_view member) const {
    const Json* object = object_.Find(member);
    if (!object || !object->is_object())
      return Error(Code::kInvalidArgument, "{}: expected an object", member);
    MdsFile file;
    auto name = object->GetString("basename");
    if (!name.ok()) return std::move(name).status().Prefix(member);
    file.name = *std::move(name);
    Status inside = CheckRelativeName(file.name);
    if (!inside.ok()) return std::move(inside).Prefix(member);
    auto bytes = object->GetUint("bytes");
    if (!bytes.ok()) return std::move(bytes).status().Prefix(member);
    file.bytes = *bytes;
    const Json* hashes = object->Find("hashes");
    if (!hashes) return file;
    for (const auto& [algorithm, digest] : hashes->members())
      file.hashes.emplace_back(algorithm, digest.AsString());
    std::sort(file.hashes.begin(), file.hashes.end());
    return file;
  }

  Status ParsePacked() {
    const Json* compression = object_.Find("compression");
    const Json* packed = object_.Find("zip_data");
    const bool is_packed = packed && !packed->is_null();
    if (!is_packed) return OkStatus();
    HR_ASSIGN_OR_RETURN(shard_.packed, ParseFile("zip_data"));
    if (!compression || !compression->is_string())
      return Error(Code::kInvalidArgument, "compression: expected a name, since zip_data is given");
    HR_ASSIGN_OR_RETURN(shard_.compression, ParseCompression(compression->AsString()));
    return OkStatus();
  }

  Result<const Json::Array*> Column(std::string_view member) const {
    const Json* array = object_.Find(member);
    if (array && array->is_array()) return &array->items();
    return Error(Code::kInvalidArgument, "{}: expected an array", member);
  }

  Status ParseColumns() {
    HR_ASSIGN_OR_RETURN(const Json::Array* names, Column("column_names"));
    HR_ASSIGN_OR_RETURN(const Json::Array* encodings, Column("column_encodings"));
    HR_ASSIGN_OR_RETURN(const Json::Array* sizes, Column("column_sizes"));
    if (names->size() != encodings->size() || names->size() != sizes->size())
      return Error(Code::kInvalidArgument,
                   "column_names has {} elements, column_encodings {} and column_sizes {}",
                   names->size(), encodings->size(), sizes->size());
    if (names->size() > kMaxColumns)
      return Error(Code::kUnimplemented, "{} columns are more than the {} that are supported",
                   names->size(), kMaxColumns);
    std::set<std::string_view> seen;
    for (size_t i = 0; i < names->size(); ++i) {
      MdsColumn& column = shard_.columns.emplace_back();
      column.name = (*names)[i].AsString();
      column.encoding_name = (*encodings)[i].AsString();
      if (!(*names)[i].is_string() || column.name.empty() || column.name.size() > 65535 ||
          !seen.insert((*names)[i].AsString()).second)
        return Error(Code::kInvalidArgument, "column_names[{}]: expected a name of its own", i);
      Status parsed = ParseColumn((*sizes)[i], &column);
      if (!parsed.ok())
        return std::move(parsed).Prefix(fmt::format("column '{}'", EscapeText(column.name)));
    }
    return OkStatus();
  }

  static Status ParseColumn(const Json& size, MdsColumn* column) {
    HR_ASSIGN_OR_RETURN(column->encoding, MdsEncoding::Parse(column->encoding_name));
    if (!size.is_null() && !size.is_integer())
      return Error(Code::kInvalidArgument, "its size is neither null nor a number");
    const uint64_t bytes = size.AsUint();
    if (bytes > 0) column->fixed_bytes = bytes;
    auto expected = column->encoding.FixedBytes();
    if (!expected || !column->fixed_bytes || *expected == *column->fixed_bytes) return OkStatus();
    return Error(Code::kInvalidArgument, "its size is {} bytes, the encoding '{}' has {}", bytes,
                 EscapeText(column->encoding_name), *expected);
  }

  const Json& object_;
  MdsShard shard_;
};

}  // namespace

Result<MdsEncoding> MdsEncoding::Parse(std::string_view name) {
  constexpr std::string_view kNdarrayPrefix = "ndarray:";
  for (std::string_view known :
       {"bytes", "str", "json", "jpeg", "png", "str_int", "str_float", "str_decimal", "jpeg_array",
        "jpegarray", "list[jpeg]", "list[png]", "list[pil]"})
    if (name == known) return MdsEncoding{};
  if (name == "int") return MdsEncoding{Form::kNumber, ElementType::kInt64, {}};
  if (auto element = ElementOf(name)) return MdsEncoding{Form::kNumber, element, {}};
  if (name == "ndarray") return MdsEncoding{Form::kNdarray, {}, {}};
  if (name.starts_with(kNdarrayPrefix)) return ParseNdarray(name.substr(kNdarrayPrefix.size()));
  if (name == "pil") return MdsEncoding{Form::kPil, {}, {}};
  if (name == "pkl")
    return Error(Code::kUnimplemented,
                 "the encoding 'pkl' is not read, since a pickled object can run any code when it "
                 "is loaded. Write the column again as json, ndarray or bytes");
  return Error(Code::kUnimplemented,
               "the encoding '{}' is not known. Write the column again as bytes, str, json, jpeg, "
               "png, ndarray or a number type such as int64",
               EscapeText(name));
}

std::optional<uint64_t> MdsEncoding::FixedBytes() const {
  if (form == Form::kNumber) return ElementBytes(*element);
  if (form != Form::kNdarray || !shape) return std::nullopt;
  auto array = ArrayForm::Make(*element, *shape);
  return array.ok() ? std::optional(array->StoredBytes()) : std::nullopt;
}

uint32_t MdsShard::Identity() const {
  std::string text;
  PutText("mds-shard-1", &text);
  PutText(raw.name, &text);
  PutNumber(raw.bytes, &text);
  PutNumber(raw.hashes.size(), &text);
  for (const auto& [algorithm, digest] : raw.hashes) {
    PutText(algorithm, &text);
    PutText(digest, &text);
  }
  PutNumber(samples, &text);
  PutNumber(columns.size(), &text);
  for (const MdsColumn& column : columns) {
    PutText(column.name, &text);
    PutText(column.encoding_name, &text);
    PutNumber(column.fixed_bytes.value_or(0), &text);
  }
  return Crc32c(AsBytes(text));
}

Result<MdsIndex> MdsIndex::FromJson(std::string_view text, std::string_view file_name) {
  auto place = [&](Status status) {
    return std::move(status).Prefix(file_name).At(
        {.file = std::string(file_name), .offset = {}, .key = {}, .field = {}});
  };
  auto json = Json::Parse(text);
  if (!json.ok()) return place(std::move(json).status());
  auto version = json->GetUint("version");
  if (!version.ok()) return place(std::move(version).status());
  if (*version != kVersion)
    return place(
        Error(Code::kUnimplemented, "version {} is not supported, only {} is", *version, kVersion));
  const Json* shards = json->Find("shards");
  if (!shards || !shards->is_array())
    return place(Status(Code::kInvalidArgument, "shards: expected an array"));
  MdsIndex index;
  for (const Json& object : shards->items()) {
    auto shard = ShardParser(object).Parse();
    if (!shard.ok())
      return place(
          std::move(shard).status().Prefix(fmt::format("shards[{}]", index.shards.size())));
    index.shards.push_back(*std::move(shard));
  }
  return index;
}

bool MdsIndex::LooksLikeOne(std::string_view text) {
  auto json = Json::Parse(text);
  // A damaged one should be told as such, not taken for a file of somebody else's.
  if (!json.ok()) return text.find("\"shards\"") != std::string_view::npos;
  return json->Find("shards") != nullptr;
}

std::vector<std::string> MdsIndex::ColumnNames() const {
  std::set<std::string> names;
  for (const MdsShard& shard : shards)
    for (const MdsColumn& column : shard.columns) names.insert(column.name);
  return {names.begin(), names.end()};
}

Result<std::string> ReadMdsIndexText(FileSystem* fs, const std::string& folder) {
  auto text = fs->ReadWhole(JoinPath(folder, kMdsIndexName), kMaxIndexBytes);
  // A bucket that may be read and not listed says "not allowed" of what is not there.
  const Code code = text.status().code();
  if (code == Code::kNotFound || (code == Code::kPermissionDenied && IsUrl(folder)))
    return std::string();
  if (text.ok() && !MdsIndex::LooksLikeOne(*text)) return std::string();
  return text;
}

}  // namespace headrace::dataset
