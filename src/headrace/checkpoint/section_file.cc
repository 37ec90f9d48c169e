#include "headrace/checkpoint/section_file.h"

#include <algorithm>

#include "headrace/base/crc32c.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kAtVersion = 8;     // u32
constexpr size_t kAtCount = 12;      // u32
constexpr size_t kAtFileBytes = 16;  // u64
constexpr size_t kAtTable = 24;
// u32 type, u32 flags, u64 offset, u64 length, u32 CRC32C, u32 zero
constexpr size_t kRowBytes = 32;
constexpr uint32_t kRequired = 1;  // the only flag

// Table and its CRC32C.
constexpr size_t HeadBytes(size_t sections) { return kAtTable + sections * kRowBytes + 4; }
constexpr uint64_t RoundUp8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

bool AllZero(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void SectionWriter::Add(uint32_t type, bool required, std::string body) {
  sections_.push_back({type, required ? kRequired : 0, std::move(body)});
}

std::string SectionWriter::Finish() const {
  const size_t head = HeadBytes(sections_.size());
  uint64_t file_bytes = head;
  for (const Section& section : sections_) file_bytes = RoundUp8(file_bytes) + section.body.size();
  std::string out;
  out.reserve(file_bytes);
  out.resize(head);
  out.replace(0, kMagicBytes, format_.magic);
  StoreLittle<uint32_t>(&out[kAtVersion], format_.version);
  StoreLittle<uint32_t>(&out[kAtCount], static_cast<uint32_t>(sections_.size()));
  StoreLittle<uint64_t>(&out[kAtFileBytes], file_bytes);
  for (size_t i = 0; i < sections_.size(); ++i) {
    const Section& section = sections_[i];
    out.resize(RoundUp8(out.size()));
    char* row = &out[kAtTable + i * kRowBytes];
    StoreLittle<uint32_t>(row, section.type);
    StoreLittle<uint32_t>(row + 4, section.flags);
    StoreLittle<uint64_t>(row + 8, out.size());
    StoreLittle<uint64_t>(row + 16, section.body.size());
    StoreLittle<uint32_t>(row + 24, Crc32c(AsBytes(section.body)));
    out += section.body;
  }
  StoreLittle<uint32_t>(&out[head - 4], Crc32c(AsBytes(out).first(head - 4)));
  return out;
}

Status SectionReader::Fault(uint64_t offset, std::string_view what) const {
  return Error(Code::kDataLoss, "{} {} is damaged at offset {}: {}", format_.what, name_, offset,
               what)
      .At({.file = name_, .offset = offset, .key = {}, .field = {}});
}

Status SectionReader::Damaged(uint32_t type, std::string_view what) const {
  for (const Section& section : sections_)
    if (section.type == type)
      return Fault(section.offset, fmt::format("section {}: {}", type, what));
  return Fault(kAtTable, fmt::format("there is no section {}", type));
}

Result<SectionReader> SectionReader::Open(Bytes file, const SectionFormat& format,
                                          uint32_t last_known, std::string_view name) {
  SectionReader reader;
  reader.format_ = format;
  reader.name_ = name;
  if (file.size() < kMagicBytes || AsText(file.first(kMagicBytes)) != format.magic)
    return Error(Code::kDataLoss, "{} is no {}: it does not begin as one", name, format.what)
        .At({.file = reader.name_, .offset = 0, .key = {}, .field = {}});
  if (file.size() < HeadBytes(0)) return reader.Fault(0, "it ends in its header");
  HR_RETURN_IF_ERROR(reader.ReadTable(file, last_known));
  return reader;
}

Status SectionReader::ReadTable(Bytes file, uint32_t last_known) {
  const std::byte* p = file.data();
  const auto version = LoadLittle<uint32_t>(p + kAtVersion);
  const auto count = LoadLittle<uint32_t>(p + kAtCount);
  if (count > kMaxFileSections || HeadBytes(count) > file.size())
    return Fault(kAtCount, fmt::format("{} sections do not fit in", count));
  const size_t head = HeadBytes(count);
  if (Crc32c(file.first(head - 4)) != LoadLittle<uint32_t>(p + head - 4))
    return Fault(0, "the header does not match its CRC32C");
  if (version < 1 || version > format_.version)
    return Error(Code::kFailedPrecondition,
                 "{} {} has version {}, this program reads versions 1 to {}: use a newer headrace",
                 format_.what, name_, version, format_.version)
        .At({.file = name_, .offset = kAtVersion, .key = {}, .field = {}});
  if (const auto bytes = LoadLittle<uint64_t>(p + kAtFileBytes); bytes != file.size())
    return Fault(file.size(),
                 fmt::format("it has {} bytes, its header says {}", file.size(), bytes));
  uint64_t at = head;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t at_row = kAtTable + i * kRowBytes;
    const std::byte* row = p + at_row;
    const auto type = LoadLittle<uint32_t>(row), flags = LoadLittle<uint32_t>(row + 4);
    const auto offset = LoadLittle<uint64_t>(row + 8), length = LoadLittle<uint64_t>(row + 16);
    if ((i > 0 && type <= sections_.back().type) || offset != RoundUp8(at) ||
        offset > file.size() || length > file.size() - offset ||
        !AllZero(file.subspan(at, offset - at)))
      return Fault(at_row, fmt::format("section {} is not right behind a lower one", type));
    if (type > last_known && (flags & kRequired) != 0)
      return Error(Code::kFailedPrecondition,
                   "{} {} has a section of type {} that this program must know and does not: use a "
                   "newer headrace",
                   format_.what, name_, type)
          .At({.file = name_, .offset = at_row, .key = {}, .field = {}});
    const Bytes body = file.subspan(offset, length);
    if (Crc32c(body) != LoadLittle<uint32_t>(row + 24))
      return Fault(offset, fmt::format("section {} does not match its CRC32C", type));
    sections_.push_back({type, flags, offset, body});
    at = offset + length;
  }
  if (at != file.size()) return Fault(at, "there is more behind the last section");
  return OkStatus();
}

Bytes SectionReader::Get(uint32_t type) const {
  for (const Section& section : sections_)
    if (section.type == type) return section.body;
  return {};
}

}  // namespace headrace::checkpoint
