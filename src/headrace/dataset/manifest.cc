#include "headrace/dataset/manifest.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"

namespace headrace::dataset {
namespace {

constexpr std::string_view kFormat = "headrace-manifest";
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;
constexpr size_t kMaxNameBytes = 4096;

// The canonical form is a sequence of texts, each as "LENGTH:BYTES,", so that no two contents have
// the same form.
void PutText(std::string_view text, std::string* out) {
  out->append(std::to_string(text.size())).append(":").append(text).append(",");
}
void PutNumber(uint64_t number, std::string* out) { PutText(std::to_string(number), out); }

std::string CanonicalContent(const Manifest& m) {
  std::string out;
  PutText("headrace-manifest-1", &out);
  PutText(m.kind, &out);
  PutNumber(m.fields.size(), &out);
  for (const std::string& field : m.fields) PutText(field, &out);
  PutNumber(m.classes.size(), &out);
  for (const std::string& name : m.classes) PutText(name, &out);
  PutNumber(m.shards.size(), &out);
  for (const ManifestShard& shard : m.shards) {
    PutText(shard.name, &out);
    PutNumber(shard.samples, &out);
    PutNumber(shard.bytes, &out);
    PutText(shard.crc32c ? std::to_string(*shard.crc32c) : "", &out);
    PutNumber(shard.samples_crc32c.value_or(shard.index_header_crc32c), &out);
  }
  return out;
}

// Covers what the version does not.
uint32_t ComputeChecksum(const Manifest& m) {
  std::string rest = CanonicalContent(m);
  for (const ManifestShard& shard : m.shards) {
    PutText(shard.index, &rest);
    if (shard.samples_crc32c) PutNumber(shard.index_header_crc32c, &rest);
  }
  PutText(m.base, &rest);
  for (const std::string& parent : m.parents) PutText(parent, &rest);
  PutText(m.message, &rest);
  PutText(m.created_by, &rest);
  return Crc32c(AsBytes(rest));
}

// Known to every program that reads manifests.
bool IsFirstKind(std::string_view kind) {
  return kind == "tar" || kind == "folder" || kind == "list";
}

// The oldest format version that can hold the manifest.
uint64_t FormatVersion(const Manifest& m) {
  if (!IsFirstKind(m.kind)) return 3;
  bool any = std::any_of(m.shards.begin(), m.shards.end(), [](const ManifestShard& shard) {
    return shard.samples_crc32c.has_value();
  });
  return any ? 2 : 1;
}

Json TextArray(const std::vector<std::string>& texts) {
  Json array = Json::MakeArray();
  for (const std::string& text : texts) array.Append(EscapeText(text));
  return array;
}

// Reads members of one manifest; the first fault stays and later reads give empty values.
class ManifestParser {
 public:
  explicit ManifestParser(std::string_view file_name) : file_name_(file_name) {}

  Status Fault(std::string_view what) const {
    return Error(Code::kDataLoss,
                 "manifest {} is damaged: {}. Make it again with `headrace index`, or take it from "
                 "where the dataset came from",
                 file_name_, what)
        .At({.file = std::string(file_name_), .offset = {}, .key = {}, .field = {}});
  }
  const Status& status() const { return status_; }
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = Fault(what);
  }

  std::string Text(const Json& value, std::string_view member) {
    Result<std::string> text = Error(Code::kInvalidArgument, "expected a text");
    if (value.is_string()) text = UnescapeText(value.AsString());
    if (text.ok()) return *std::move(text);
    Fail(fmt::format("{}: {}", member, text.status().message()));
    return {};
  }
  std::string Text(const Json& object, const char* name, std::string_view where) {
    const Json* value = object.Find(name);
    if (value) return Text(*value, fmt::format("{}{}", where, name));
    Fail(fmt::format("{}{} is missing", where, name));
    return {};
  }
  uint64_t Number(const Json& object, const char* name, std::string_view where) {
    Result<uint64_t> number = object.GetUint(name);
    if (number.ok()) return *number;
    Fail(fmt::format("{}{}", where, number.status().message()));
    return 0;
  }
  uint32_t Word(const Json& object, const char* name, std::string_view where) {
    uint64_t number = Number(object, name, where);
    if (number > UINT32_MAX) Fail(fmt::format("{}{} has more than 32 bits", where, name));
    return static_cast<uint32_t>(number);
  }
  std::vector<std::string> Texts(const Json& object, const char* name) {
    std::vector<std::string> texts;
    const Json* array = object.Find(name);
    if (!array || !array->is_array()) {
      Fail(fmt::format("{}: expected an array", name));
      return texts;
    }
    for (const Json& item : array->items()) texts.push_back(Text(item, name));
    return texts;
  }
  std::string Name(const Json& object, const char* name, std::string_view where) {
    std::string text = Text(object, name, where);
    Status fits = CheckRelativeName(text);
    if (!fits.ok()) Fail(fmt::format("{}{}: {}", where, name, fits.message()));
    return text;
  }

 private:
  std::string_view file_name_;
  Status status_;
};

ManifestShard ParseShard(const Json& object, size_t number, ManifestParser* parser) {
  std::string where = fmt::format("shards[{}].", number);
  ManifestShard shard;
  shard.name = parser->Name(object, "name", where);
  shard.index = parser->Name(object, "index", where);
  shard.samples = parser->Number(object, "samples", where);
  shard.bytes = parser->Number(object, "bytes", where);
  if (object.Find("crc32c")) shard.crc32c = parser->Word(object, "crc32c", where);
  shard.index_header_crc32c = parser->Word(object, "index_header_crc32c", where);
  if (object.Find("samples_crc32c"))
    shard.samples_crc32c = parser->Word(object, "samples_crc32c", where);
  return shard;
}

Status CheckFormat(const Json& json, std::string_view file_name, const ManifestParser& parser) {
  const Json* format = json.Find("format");
  if (format && format->AsString() == kUnfinishedFormat)
    return Error(Code::kFailedPrecondition,
                 "the data set is being sent to {}, or that was broken off: wait for its end, or "
                 "run the same `headrace pack` again",
                 EscapeText(DirectoryName(file_name)))
        .At({.file = std::string(file_name), .offset = {}, .key = {}, .field = {}});
  if (!format || format->AsString() != kFormat)
    return Error(Code::kDataLoss, "{} is not a Headrace manifest: it has no \"format\": \"{}\"",
                 file_name, kFormat)
        .At({.file = std::string(file_name), .offset = 0, .key = {}, .field = {}});
  Result<uint64_t> version = json.GetUint("format_version");
  if (!version.ok()) return parser.Fault(version.status().message());
  if (*version < 1 || *version > Manifest::kVersion)
    return Error(Code::kFailedPrecondition,
                 "manifest {} has format version {}, this program reads versions 1 to {}: use a "
                 "newer headrace",
                 file_name, *version, Manifest::kVersion)
        .At({.file = std::string(file_name), .offset = {}, .key = {}, .field = {}});
  return OkStatus();
}

Status CheckContent(const Manifest& m, const Json& json, ManifestParser* parser) {
  if (!IsFirstKind(m.kind) && m.kind != "tfrecord" && m.kind != "mds")
    return parser->Fault(fmt::format("unknown kind '{}'", EscapeText(m.kind)));
  if (!std::is_sorted(m.fields.begin(), m.fields.end()) ||
      std::adjacent_find(m.fields.begin(), m.fields.end()) != m.fields.end())
    return parser->Fault("fields are not sorted, or one is there twice");
  if (m.fields.size() > 65536) return parser->Fault("more than 65,536 fields");
  uint64_t samples = 0;
  for (const ManifestShard& shard : m.shards) {
    samples += shard.samples;
    if (shard.samples > UINT32_MAX || samples > (uint64_t{1} << 62))
      return parser->Fault(fmt::format("shard '{}' has too many samples", EscapeText(shard.name)));
  }
  std::string version = m.ComputeVersion();
  std::string stored = parser->Text(json, "version", "");
  uint32_t checksum = parser->Word(json, "checksum", "");
  HR_RETURN_IF_ERROR(parser->status());
  if (stored != version)
    return parser->Fault(
        fmt::format("its version is {}, its content has version {}", EscapeText(stored), version));
  if (checksum != ComputeChecksum(m))
    return parser->Fault(
        fmt::format("its checksum is {}, its content has {}", checksum, ComputeChecksum(m)));
  return OkStatus();
}

}  // namespace

Status CheckRelativeName(std::string_view name) {
  auto refuse = [&](std::string_view why) {
    return Error(Code::kInvalidArgument,
                 "the name '{}' {}: a name must be relative and stay inside its folder",
                 EscapeText(name.substr(0, 200)), why);
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kMaxNameBytes) return refuse("has more than 4,096 bytes");
  if (name.front() == '/') return refuse("is absolute");
  if (name.find('\0') != std::string_view::npos) return refuse("holds a NUL");
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('/', begin), name.size());
    std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..")
      return refuse(fmt::format("has the part '{}'", part));
    begin = end + 1;
  }
  return OkStatus();
}

void ManifestShard::SetIndex(const IndexReader& reader) {
  index_header_crc32c = reader.header_crc32c();
  samples_crc32c.reset();
  if (reader.samples_crc32c() != index_header_crc32c) samples_crc32c = reader.samples_crc32c();
}

std::string Manifest::ComputeVersion() const {
  Sha256 sha;
  sha.Update(CanonicalContent(*this));
  return sha.Finish();
}

uint64_t Manifest::num_samples() const {
  uint64_t samples = 0;
  for (const ManifestShard& shard : shards) samples += shard.samples;
  return samples;
}

Result<std::string> Manifest::DataFolder(const std::string& folder) const {
  if (base.empty()) return folder;
  if (!IsAbsolutePath(base)) return JoinPath(folder, base);
  if (!IsUrl(folder) || UrlRoot(base) == UrlRoot(folder)) return base;
  return Error(Code::kInvalidArgument,
               "the manifest in {} says that its data is in {}, which is another place: make the "
               "manifest again with `headrace index`",
               EscapeText(folder), EscapeText(base));
}

std::string Manifest::ToJson() const {
  Json json = Json::MakeObject();
  json.Set("format", kFormat).Set("format_version", FormatVersion(*this));
  json.Set("version", ComputeVersion()).Set("created_by", EscapeText(created_by));
  json.Set("kind", EscapeText(kind)).Set("samples", num_samples());
  if (!base.empty()) json.Set("base", EscapeText(base));
  json.Set("message", EscapeText(message)).Set("parents", TextArray(parents));
  json.Set("fields", TextArray(fields)).Set("classes", TextArray(classes));
  Json list = Json::MakeArray();
  for (const ManifestShard& shard : shards) {
    Json entry = Json::MakeObject();
    entry.Set("name", EscapeText(shard.name)).Set("index", EscapeText(shard.index));
    entry.Set("samples", shard.samples).Set("bytes", shard.bytes);
    if (shard.crc32c) entry.Set("crc32c", uint64_t{*shard.crc32c});
    entry.Set("index_header_crc32c", uint64_t{shard.index_header_crc32c});
    if (shard.samples_crc32c) entry.Set("samples_crc32c", uint64_t{*shard.samples_crc32c});
    list.Append(std::move(entry));
  }
  json.Set("shards", std::move(list)).Set("checksum", uint64_t{ComputeChecksum(*this)});
  return json.Dump(1) + "\n";
}

Result<Manifest> Manifest::FromJson(std::string_view text, std::string_view file_name) {
  ManifestParser parser(file_name);
  Result<Json> json = Json::Parse(text);
  if (!json.ok()) return parser.Fault(json.status().message());
  HR_RETURN_IF_ERROR(CheckFormat(*json, file_name, parser));
  Manifest m;
  m.kind = parser.Text(*json, "kind", "");
  m.created_by = parser.Text(*json, "created_by", "");
  m.message = parser.Text(*json, "message", "");
  if (json->Find("base")) m.base = parser.Text(*json, "base", "");
  m.parents = parser.Texts(*json, "parents");
  m.fields = parser.Texts(*json, "fields");
  m.classes = parser.Texts(*json, "classes");
  const Json* shards = json->Find("shards");
  if (!shards || !shards->is_array()) parser.Fail("shards: expected an array");
  if (parser.status().ok()) {
    for (const Json& shard : shards->items())
      m.shards.push_back(ParseShard(shard, m.shards.size(), &parser));
  }
  HR_RETURN_IF_ERROR(parser.status());
  HR_RETURN_IF_ERROR(CheckContent(m, *json, &parser));
  return m;
}

Result<Manifest> Manifest::Load(FileSystem* fs, const std::string& path) {
  HR_ASSIGN_OR_RETURN(std::string text, fs->ReadWhole(path, kMaxManifestBytes));
  return FromJson(text, path);
}

}  // namespace headrace::dataset
