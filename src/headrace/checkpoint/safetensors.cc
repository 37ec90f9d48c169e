#include "headrace/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/safetensors_text.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxDataBytes = uint64_t{1} << 62;
constexpr std::string_view kMetadata = "__metadata__";

Status Damaged(std::string_view file, uint64_t offset, std::string_view what) {
  return Error(Code::kDataLoss, "safetensors file {} is damaged at offset {}: {}", file, offset,
               what)
      .At({.file = std::string(file), .offset = offset, .key = {}, .field = {}});
}

std::string Shown(std::string_view name) { return EscapeText(name.substr(0, 300)); }

// Begin and end in the data, as the header states them, with what they belong to.
struct Placed {
  uint64_t begin, end;
  SafetensorsEntry entry;
};

Status ReadEntry(const RawEntry& raw, std::string_view file, std::vector<Placed>* out) {
  auto fault = [&](std::string_view what) {
    return Damaged(file, kLengthBytes, fmt::format("the entry '{}' {}", Shown(raw.name), what));
  };
  const std::optional<DType> dtype = DTypeNamed(raw.dtype);
  if (!dtype)
    return Error(Code::kUnimplemented,
                 "the entry '{}' of {} has elements of type '{}', which this program does not know",
                 Shown(raw.name), file, Shown(raw.dtype))
        .At({.file = std::string(file), .offset = {}, .key = raw.name, .field = {}});
  if (raw.shape.size() > kMaxDimensions) return fault("has more than 64 dimensions");
  const std::optional<uint64_t> elements = Volume(raw.shape);
  const std::optional<uint64_t> bytes = elements ? BytesOf(*dtype, *elements) : std::nullopt;
  if (!bytes)
    return fault(fmt::format("has {} elements of {}: too many, or no whole number of bytes",
                             ShapeText(raw.shape), raw.dtype));
  if (raw.begin > raw.end || raw.end - raw.begin != *bytes)
    return fault(fmt::format("has its data at {} to {}, but {} elements of {} take {} bytes",
                             raw.begin, raw.end, ShapeText(raw.shape), raw.dtype, *bytes));
  out->push_back({raw.begin, raw.end, {raw.name, *dtype, raw.shape, 0, *bytes}});
  return OkStatus();
}

// A name that is there twice.
std::optional<std::string_view> Twice(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return std::nullopt;
  return *twice;
}

Status CheckNames(const RawHeader& raw, std::string_view file) {
  std::vector<std::string_view> names, keys;
  for (const RawEntry& entry : raw.entries) names.push_back(entry.name);
  for (const auto& pair : raw.metadata) keys.push_back(pair.first);
  for (std::vector<std::string_view>* texts : {&names, &keys})
    if (const auto twice = Twice(*texts))
      return Damaged(file, kLengthBytes, fmt::format("'{}' is there twice", Shown(*twice)));
  return OkStatus();
}

std::string JsonText(std::string_view text) { return Json(text).Dump(); }

Status CheckSpecs(std::span<const SafetensorsSpec> entries) {
  std::vector<std::string_view> names;
  for (const SafetensorsSpec& entry : entries) {
    auto refuse = [&entry](std::string_view why) {
      return Error(Code::kInvalidArgument, "'{}' cannot be the name of a tensor in a file: {}",
                   Shown(entry.name), why);
    };
    if (!IsValidUtf8(entry.name)) return refuse("it is not UTF-8");
    if (entry.name == kMetadata) return refuse("the format keeps it for other use");
    if (entry.shape.size() > kMaxDimensions) return refuse("it has more than 64 dimensions");
    names.push_back(entry.name);
  }
  if (const auto twice = Twice(std::move(names)))
    return Error(Code::kInvalidArgument, "the name '{}' is there twice", Shown(*twice));
  return OkStatus();
}

Status TooLong(size_t entries) {
  return Error(
      Code::kResourceExhausted,
      "{} entries need a header of more than {} bytes, which the format does not allow: use "
      "several files",
      entries, kMaxSafetensorsHeader);
}

Result<std::string> MetadataText(std::span<const std::pair<std::string, std::string>> metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) {
    if (!IsValidUtf8(key) || !IsValidUtf8(value))
      return Error(Code::kInvalidArgument, "the metadata '{}' is not UTF-8", Shown(key));
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", JsonText(key), JsonText(value));
  }
  return fmt::format("{}:{{{}}}", JsonText(kMetadata), out);
}

}  // namespace

Result<uint64_t> SafetensorsHeaderBytes(Bytes first, uint64_t file_bytes, std::string_view file) {
  if (first.size() < kLengthBytes || file_bytes < kLengthBytes)
    return Damaged(file, 0, fmt::format("it has {} bytes, too few to be one", file_bytes));
  const auto length = LoadLittle<uint64_t>(first.data());
  if (length > kMaxSafetensorsHeader)
    return Damaged(file, 0,
                   fmt::format("its header should have {} bytes, at most {} are allowed", length,
                               kMaxSafetensorsHeader));
  if (length > file_bytes - kLengthBytes)
    return Damaged(
        file, 0,
        fmt::format("its header should have {} bytes, the file has {}", length, file_bytes));
  return kLengthBytes + length;
}

Result<SafetensorsHeader> ParseSafetensors(Bytes head, uint64_t file_bytes, std::string_view file) {
  HR_ASSIGN_OR_RETURN(const uint64_t data_start, SafetensorsHeaderBytes(head, file_bytes, file));
  if (head.size() < data_start)
    return Error(Code::kInvalidArgument, "{} bytes of the header of {} were given, not {}",
                 head.size(), file, data_start);
  Result<RawHeader> raw = ReadSafetensorsText(AsText(head.first(data_start)).substr(kLengthBytes));
  if (!raw.ok()) {
    const uint64_t at = kLengthBytes + raw.status().location().offset.value_or(0);
    return Damaged(file, at, raw.status().message());
  }
  HR_RETURN_IF_ERROR(CheckNames(*raw, file));
  std::vector<Placed> placed;
  placed.reserve(raw->entries.size());
  for (const RawEntry& entry : raw->entries) HR_RETURN_IF_ERROR(ReadEntry(entry, file, &placed));
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  SafetensorsHeader header;
  header.data_start = data_start;
  header.file_bytes = file_bytes;
  header.metadata = std::move(raw->metadata);
  uint64_t at = 0;
  for (Placed& p : placed) {
    if (p.begin != at)
      return Damaged(file, data_start + std::min(at, p.begin),
                     fmt::format("the data of '{}' begins at {}, the data before it ends at {}",
                                 Shown(p.entry.name), p.begin, at));
    at = p.end;
    p.entry.offset = data_start + p.begin;
    header.entries.push_back(std::move(p.entry));
  }
  if (at != file_bytes - data_start)
    return Damaged(
        file, file_bytes,
        fmt::format("it has {} bytes, its header speaks of {}", file_bytes, data_start + at));
  return header;
}

Result<WrittenHeader> WriteSafetensorsHeader(
    std::span<const SafetensorsSpec> entries,
    std::span<const std::pair<std::string, std::string>> metadata) {
  HR_RETURN_IF_ERROR(CheckSpecs(entries));
  WrittenHeader written;
  std::string json = "{";
  if (!metadata.empty()) {
    HR_ASSIGN_OR_RETURN(std::string text, MetadataText(metadata));
    json += text;
  }
  uint64_t at = 0;
  for (const SafetensorsSpec& entry : entries) {
    const std::optional<uint64_t> elements = Volume(entry.shape);
    const std::optional<uint64_t> bytes = elements ? BytesOf(entry.dtype, *elements) : std::nullopt;
    if (!bytes || *bytes > kMaxDataBytes - at)
      return Error(Code::kInvalidArgument,
                   "'{}' has {} elements of {}: too many, or no whole number of bytes",
                   Shown(entry.name), ShapeText(entry.shape), DTypeName(entry.dtype));
    if (json.size() + entry.name.size() > kMaxSafetensorsHeader) return TooLong(entries.size());
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[", json.size() > 1 ? "," : "",
                        JsonText(entry.name), DTypeName(entry.dtype));
    for (size_t k = 0; k < entry.shape.size(); ++k)
      json += fmt::format("{}{}", k > 0 ? "," : "", entry.shape[k]);
    json += fmt::format("],\"data_offsets\":[{},{}]}}", at, at + *bytes);
    written.offsets.push_back(at);
    at += *bytes;
  }
  json += '}';
  const uint64_t start =
      (kLengthBytes + json.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  if (start - kLengthBytes > kMaxSafetensorsHeader) return TooLong(entries.size());
  json.resize(start - kLengthBytes, ' ');
  for (uint64_t& offset : written.offsets) offset += start;
  written.bytes.resize(kLengthBytes);
  StoreLittle<uint64_t>(written.bytes.data(), json.size());
  written.bytes += json;
  written.file_bytes = start + at;
  return written;
}

}  // namespace headrace::checkpoint
