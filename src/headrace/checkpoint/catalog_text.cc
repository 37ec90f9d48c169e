// The JSON of catalogs and heads.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/catalog.h"

namespace headrace::checkpoint {
namespace {

constexpr std::string_view kCatalogFormat = "headrace-checkpoints";
constexpr std::string_view kHeadFormat = "headrace-checkpoint-head";
constexpr uint64_t kFormatVersion = 1;

Status Damaged(std::string_view name, std::string_view what) {
  return Error(Code::kDataLoss, "{} is damaged: {}", name, what)
      .At({.file = std::string(name), .offset = {}, .key = {}, .field = {}});
}

Result<Json> ParseFormat(std::string_view text, std::string_view format, std::string_view name) {
  Result<Json> json = Json::Parse(text);
  if (!json.ok()) return Damaged(name, json.status().message());
  const Json* found = json->Find("format");
  if (!found || found->AsString() != format)
    return Damaged(name, fmt::format("it has no \"format\": \"{}\"", format));
  Result<uint64_t> version = json->GetUint("format_version");
  if (!version.ok()) return Damaged(name, version.status().message());
  if (*version < 1 || *version > kFormatVersion)
    return Error(Code::kFailedPrecondition,
                 "{} has format version {}, this program reads version {}: use a newer headrace",
                 name, *version, kFormatVersion);
  return json;
}

// Reads members of an object; the first fault stays and later reads give empty values.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  uint64_t Number(const char* member) { return Taken(object_.GetUint(member)); }
  // 0 when it is not there.
  uint64_t OptionalNumber(const char* member) {
    return object_.Find(member) == nullptr ? 0 : Number(member);
  }
  int64_t Time(const char* member) { return static_cast<int64_t>(Number(member)); }
  std::string Text(const char* member) {
    std::string stored = Taken(object_.GetString(member));
    return Taken(UnescapeText(stored));
  }
  Hash128 Hash(const char* member) {
    const std::optional<Hash128> hash = Hash128::FromHex(Text(member));
    if (!hash) Fail(fmt::format("{} is no hash", member));
    return hash.value_or(Hash128());
  }
  Level LevelOf(const char* member) {
    const std::optional<Level> level = LevelNamed(Text(member));
    if (!level) Fail(fmt::format("{} is no level", member));
    return level.value_or(Level::kMemory);
  }
  void Fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  const std::string& fault() const { return fault_; }

 private:
  template <typename T>
  T Taken(Result<T> result) {
    if (result.ok()) return *std::move(result);
    Fail(std::string(result.status().message()));
    return T();
  }

  const Json& object_;
  std::string fault_;
};

Json EntryJson(const CatalogEntry& entry) {
  Json json = Json::MakeObject();
  json.Set("step", entry.id.step).Set("epoch", entry.id.epoch).Set("attempt", entry.id.attempt);
  json.Set("kind", EscapeText(entry.kind)).Set("level", LevelName(entry.level));
  json.Set("published_ns", static_cast<uint64_t>(std::max<int64_t>(entry.published_ns, 0)));
  json.Set("data_bytes", entry.data_bytes).Set("new_bytes", entry.new_bytes);
  json.Set("manifest", EscapeText(entry.manifest)).Set("manifest_bytes", entry.manifest_bytes);
  json.Set("manifest_hash", entry.manifest_hash.Hex());
  if (entry.stall_ns > 0) json.Set("stall_ns", entry.stall_ns);
  if (entry.save_ns > 0) json.Set("save_ns", entry.save_ns);
  if (entry.restore_ns > 0) json.Set("restore_ns", entry.restore_ns);
  return json;
}

CatalogEntry EntryOf(Members* members) {
  CatalogEntry entry;
  entry.id = {members->Number("step"), members->Number("epoch"), members->Number("attempt")};
  entry.kind = members->Text("kind");
  entry.level = members->LevelOf("level");
  entry.published_ns = members->Time("published_ns");
  entry.data_bytes = members->Number("data_bytes");
  entry.new_bytes = members->Number("new_bytes");
  entry.manifest = members->Text("manifest");
  entry.manifest_bytes = members->Number("manifest_bytes");
  entry.manifest_hash = members->Hash("manifest_hash");
  entry.stall_ns = members->OptionalNumber("stall_ns");
  entry.save_ns = members->OptionalNumber("save_ns");
  entry.restore_ns = members->OptionalNumber("restore_ns");
  if (!entry.manifest.starts_with("manifests/")) members->Fail("manifest is no key of a manifest");
  if (entry.published_ns < 0) members->Fail("published_ns is too large");
  return entry;
}

}  // namespace

bool Newer(const SaveId& a, const SaveId& b) {
  return std::tie(a.epoch, a.step, a.attempt) > std::tie(b.epoch, b.step, b.attempt);
}

const CatalogEntry* Catalog::Find(const SaveId& id) const {
  for (const CatalogEntry& entry : entries)
    if (entry.id == id) return &entry;
  return nullptr;
}

const CatalogEntry* Catalog::Latest(Level level, std::optional<uint64_t> step) const {
  for (size_t i = entries.size(); i-- > 0;)
    if (entries[i].level >= level && (!step || entries[i].id.step == *step)) return &entries[i];
  return nullptr;
}

const CatalogEntry* Catalog::FullBefore(const SaveId& id, Level level) const {
  for (size_t i = entries.size(); i-- > 0;)
    if (Newer(id, entries[i].id) && entries[i].kind != "light" && entries[i].level >= level)
      return &entries[i];
  return nullptr;
}

std::string Catalog::ToJson() const {
  Json json = Json::MakeObject();
  json.Set("format", kCatalogFormat).Set("format_version", kFormatVersion);
  json.Set("sequence", sequence);
  Json::Array array;
  for (const CatalogEntry& entry : entries) array.push_back(EntryJson(entry));
  json.Set("checkpoints", std::move(array));
  return json.Dump(1) + "\n";
}

Result<Catalog> Catalog::FromJson(std::string_view text, std::string_view name) {
  HR_ASSIGN_OR_RETURN(const Json json, ParseFormat(text, kCatalogFormat, name));
  Catalog catalog;
  Members top(json);
  catalog.sequence = top.Number("sequence");
  const Json* list = json.Find("checkpoints");
  if (!list || !list->is_array()) top.Fail("checkpoints: expected an array");
  if (!top.fault().empty()) return Damaged(name, top.fault());
  for (const Json& item : list->items()) {
    Members members(item);
    CatalogEntry entry = EntryOf(&members);
    if (!catalog.entries.empty() && !Newer(entry.id, catalog.entries.back().id))
      members.Fail("they are not in order");
    if (!members.fault().empty())
      return Damaged(name,
                     fmt::format("checkpoints[{}]: {}", catalog.entries.size(), members.fault()));
    catalog.entries.push_back(std::move(entry));
  }
  return catalog;
}

std::string StoreHead::ToJson() const {
  Json json = Json::MakeObject();
  json.Set("format", kHeadFormat).Set("format_version", kFormatVersion);
  json.Set("epoch", epoch).Set("owner", EscapeText(owner));
  json.Set("catalog", EscapeText(catalog)).Set("catalog_bytes", catalog_bytes);
  json.Set("catalog_hash", catalog_hash.Hex());
  // Of the text without this member, on one line.
  json.Set("checksum", Crc32c(AsBytes(json.Dump())));
  return json.Dump(1) + "\n";
}

Result<StoreHead> StoreHead::FromJson(std::string_view text, std::string_view name) {
  HR_ASSIGN_OR_RETURN(const Json json, ParseFormat(text, kHeadFormat, name));
  StoreHead head;
  Members members(json);
  head.epoch = members.Number("epoch");
  head.owner = members.Text("owner");
  head.catalog = members.Text("catalog");
  head.catalog_bytes = members.Number("catalog_bytes");
  head.catalog_hash = members.Hash("catalog_hash");
  const uint64_t checksum = members.Number("checksum");
  Json::Object rest;
  for (const auto& member : json.members())
    if (member.first != "checksum") rest.push_back(member);
  if (checksum != Crc32c(AsBytes(Json(std::move(rest)).Dump())))
    members.Fail("it does not match its checksum");
  if (!head.catalog.empty() && !head.catalog.starts_with("catalogs/"))
    members.Fail("catalog is no key of a catalog");
  if (!members.fault().empty()) return Damaged(name, members.fault());
  return head;
}

}  // namespace headrace::checkpoint
