#include "headrace/cache/block_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"

namespace headrace::cache {
namespace {

constexpr std::string_view kMagic = "HRBLOCK\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kAtVersion = 8, kAtHeaderBytes = 12, kAtObject = 16, kAtNumber = 32;
constexpr size_t kAtLength = 40, kAtPageBytes = 44, kAtNumPages = 48;  // then zeros
constexpr size_t kAtPages = 64;
constexpr uint64_t kDescriptorVersion = 1;
constexpr std::string_view kSuffixes[] = {".blk", ".tmp", ".lock"};

uint32_t NumPages(uint32_t length) { return (length + kPageBytes - 1) / kPageBytes; }

// Lower-case digits and nothing else.
template <typename T>
bool ParseHex(std::string_view text, T* value) {
  if (text.empty() || text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return false;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

void UpdateWithText(Sha256* sha, std::string_view text) {
  std::byte size[8];
  StoreLittle<uint64_t>(size, text.size());
  sha->Update(Bytes(size));
  sha->Update(text);
}

Status BadName(std::string_view name) {
  return Error(Code::kInvalidArgument, "'{}' is no name of a block", EscapeText(name));
}

Status BadHeader(std::string_view what) {
  return Error(Code::kDataLoss, "the header of a cached block is damaged: {}", what);
}

}  // namespace

std::string ObjectId::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Result<ObjectId> ObjectId::FromHex(std::string_view text) {
  ObjectId id;
  if (text.size() != 32 || !ParseHex(text.substr(0, 16), &id.high) ||
      !ParseHex(text.substr(16), &id.low))
    return Error(Code::kInvalidArgument, "'{}' is no name of a cached object: expected 32 digits",
                 EscapeText(text));
  return id;
}

ObjectId IdentifyObject(const ObjectVersion& version, uint32_t block_bytes) {
  Sha256 sha;
  UpdateWithText(&sha, "headrace block 1");
  UpdateWithText(&sha, version.store);
  UpdateWithText(&sha, version.key);
  UpdateWithText(&sha, version.etag);
  std::byte numbers[16];
  StoreLittle<uint64_t>(numbers, version.size_bytes);
  StoreLittle<uint64_t>(numbers + 8, block_bytes);
  sha.Update(Bytes(numbers));
  std::string hex = sha.Finish();
  ObjectId id;
  ParseHex(std::string_view(hex).substr(0, 16), &id.high);
  ParseHex(std::string_view(hex).substr(16, 16), &id.low);
  return id;
}

Status CheckBlockBytes(uint64_t block_bytes) {
  if (block_bytes >= kPageBytes && block_bytes <= kMaxBlockBytes && block_bytes % kPageBytes == 0)
    return OkStatus();
  return Error(Code::kInvalidArgument,
               "a block of {} bytes: expected a multiple of 64 KiB from 64 KiB to 256 MiB",
               block_bytes);
}

BlockId BlockOf(const ObjectId& object, uint64_t size_bytes, uint32_t block_bytes,
                uint64_t number) {
  uint64_t left = size_bytes - number * block_bytes;
  return {object, number, static_cast<uint32_t>(std::min<uint64_t>(left, block_bytes))};
}

std::string BlockFileName(const BlockId& id, BlockFileKind kind) {
  return fmt::format("{:016x}{:016x}-{:x}-{:x}{}", id.object.high, id.object.low, id.number,
                     id.length, kSuffixes[static_cast<size_t>(kind)]);
}

Result<ParsedBlockName> ParseBlockFileName(std::string_view name) {
  ParsedBlockName parsed;
  size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot < 33 || name[32] != '-') return BadName(name);
  const auto* suffix = std::find(std::begin(kSuffixes), std::end(kSuffixes), name.substr(dot));
  if (suffix == std::end(kSuffixes)) return BadName(name);
  parsed.kind = static_cast<BlockFileKind>(suffix - std::begin(kSuffixes));
  auto object = ObjectId::FromHex(name.substr(0, 32));
  size_t dash = name.find('-', 33);
  if (!object.ok() || dash == std::string_view::npos || dash > dot) return BadName(name);
  parsed.id.object = *object;
  if (!ParseHex(name.substr(33, dash - 33), &parsed.id.number) ||
      !ParseHex(name.substr(dash + 1, dot - dash - 1), &parsed.id.length) ||
      parsed.id.length == 0 || parsed.id.length > kMaxBlockBytes ||
      BlockFileName(parsed.id, parsed.kind) != name)
    return BadName(name);
  return parsed;
}

std::string FanOutName(uint32_t folder) { return fmt::format("{:02x}", folder); }

std::string FanOutOf(const BlockId& id) {
  return FanOutName(static_cast<uint32_t>((id.object.high + id.number) % kFanOut));
}

std::string FanOutOf(const ObjectId& id) {
  return FanOutName(static_cast<uint32_t>(id.high % kFanOut));
}

uint32_t BlockHeaderBytes(uint32_t length) {
  size_t used = kAtPages + size_t{4} * NumPages(length) + 4;
  return static_cast<uint32_t>((used + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment);
}

uint64_t BlockCost(uint32_t length) {
  uint64_t bytes = uint64_t{BlockHeaderBytes(length)} + length;
  return (bytes + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment;
}

std::string EncodeBlockHeader(const BlockId& id, Bytes data) {
  std::string header(BlockHeaderBytes(id.length), '\0');
  char* p = header.data();
  kMagic.copy(p, kMagic.size());
  StoreLittle<uint32_t>(p + kAtVersion, kVersion);
  StoreLittle<uint32_t>(p + kAtHeaderBytes, static_cast<uint32_t>(header.size()));
  StoreLittle<uint64_t>(p + kAtObject, id.object.high);
  StoreLittle<uint64_t>(p + kAtObject + 8, id.object.low);
  StoreLittle<uint64_t>(p + kAtNumber, id.number);
  StoreLittle<uint32_t>(p + kAtLength, id.length);
  StoreLittle<uint32_t>(p + kAtPageBytes, kPageBytes);
  StoreLittle<uint32_t>(p + kAtNumPages, NumPages(id.length));
  size_t at = kAtPages;
  for (; !data.empty(); at += 4) {
    size_t page = std::min<size_t>(data.size(), kPageBytes);
    StoreLittle<uint32_t>(p + at, Crc32c(data.first(page)));
    data = data.subspan(page);
  }
  StoreLittle<uint32_t>(p + at, Crc32c(AsBytes(header).first(at)));
  return header;
}

Result<BlockHeader> ParseBlockHeader(Bytes bytes) {
  if (bytes.size() < kHeaderAlignment) return BadHeader("it is cut short");
  const std::byte* p = bytes.data();
  if (AsText(bytes.first(kMagic.size())) != kMagic) return BadHeader("it does not begin as one");
  uint32_t version = LoadLittle<uint32_t>(p + kAtVersion);
  if (version != kVersion) return BadHeader(fmt::format("version {}, expected 1", version));
  BlockHeader header;
  header.id.object.high = LoadLittle<uint64_t>(p + kAtObject);
  header.id.object.low = LoadLittle<uint64_t>(p + kAtObject + 8);
  header.id.number = LoadLittle<uint64_t>(p + kAtNumber);
  header.id.length = LoadLittle<uint32_t>(p + kAtLength);
  uint32_t length = header.id.length;
  if (length == 0 || length > kMaxBlockBytes) return BadHeader("its length cannot be");
  uint32_t num_pages = NumPages(length);
  if (LoadLittle<uint32_t>(p + kAtHeaderBytes) != BlockHeaderBytes(length) ||
      LoadLittle<uint32_t>(p + kAtPageBytes) != kPageBytes ||
      LoadLittle<uint32_t>(p + kAtNumPages) != num_pages)
    return BadHeader("its sizes do not fit each other");
  if (bytes.size() < BlockHeaderBytes(length)) return BadHeader("it is cut short");
  size_t at = kAtPages + size_t{4} * num_pages;
  if (LoadLittle<uint32_t>(p + at) != Crc32c(bytes.first(at)))
    return BadHeader("its checksum is wrong");
  header.page_checksums.resize(num_pages);
  for (uint32_t i = 0; i < num_pages; ++i)
    header.page_checksums[i] = LoadLittle<uint32_t>(p + kAtPages + size_t{4} * i);
  return header;
}

std::string EncodeDescriptor(const ObjectDescriptor& descriptor) {
  return Json::MakeObject()
             .Set("headrace_cached_object", kDescriptorVersion)
             .Set("store", EscapeText(descriptor.version.store))
             .Set("key", EscapeText(descriptor.version.key))
             .Set("etag", EscapeText(descriptor.version.etag))
             .Set("size_bytes", descriptor.version.size_bytes)
             .Set("block_bytes", descriptor.block_bytes)
             .Dump() +
         "\n";
}

Result<ObjectDescriptor> ParseDescriptor(std::string_view text) {
  auto damaged = [](const Status& why) {
    return Error(Code::kDataLoss, "a cached object's descriptor is damaged: {}", why.message());
  };
  auto json = Json::Parse(text);
  if (!json.ok()) return damaged(json.status());
  auto version = json->GetUint("headrace_cached_object");
  if (!version.ok()) return damaged(version.status());
  if (*version != kDescriptorVersion)
    return Error(Code::kDataLoss, "a cached object's descriptor has version {}, expected 1",
                 *version);
  ObjectDescriptor descriptor;
  std::pair<std::string_view, std::string*> texts[] = {{"store", &descriptor.version.store},
                                                       {"key", &descriptor.version.key},
                                                       {"etag", &descriptor.version.etag}};
  for (auto [name, value] : texts) {
    auto escaped = json->GetString(name);
    if (!escaped.ok()) return damaged(escaped.status());
    auto plain = UnescapeText(*escaped);
    if (!plain.ok()) return damaged(plain.status());
    *value = *std::move(plain);
  }
  auto size = json->GetUint("size_bytes");
  if (!size.ok()) return damaged(size.status());
  auto block = json->GetUint("block_bytes");
  if (!block.ok()) return damaged(block.status());
  if (Status status = CheckBlockBytes(*block); !status.ok()) return damaged(status);
  descriptor.version.size_bytes = *size;
  descriptor.block_bytes = static_cast<uint32_t>(*block);
  return descriptor;
}

}  // namespace headrace::cache
