#include "headrace/checkpoint/chunk_sums.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/crc32c_joiner.h"

namespace headrace::checkpoint {
namespace {

// The layout, in words in docs/formats/checkpoint.md.
constexpr std::string_view kMagic("HRCRC\r\n\x1a", 8);
constexpr uint32_t kVersion = 1;
constexpr size_t kAtVersion = 8;      // u32
constexpr size_t kAtChunkBytes = 12;  // u32
constexpr size_t kAtFileBytes = 16;   // u64
constexpr size_t kAtHash = 24;        // u64 low, u64 high
constexpr size_t kAtSums = 40;        // u32 each
constexpr size_t kEndBytes = 4;       // u32: CRC32C of all before it

uint64_t ChunksOf(uint64_t bytes) {
  return bytes / kSumChunkBytes + (bytes % kSumChunkBytes != 0 ? 1 : 0);
}

Status Damaged(std::string_view name, std::string_view what) {
  return Error(Code::kDataLoss, "checksums {} are damaged: {}", name, what)
      .At({.file = std::string(name), .offset = {}, .key = {}, .field = {}});
}

}  // namespace

void ChunkSums::Builder::Append(Bytes data) {
  while (!data.empty()) {
    const uint64_t inside = bytes_ % kSumChunkBytes;
    const Bytes part = data.first(std::min<uint64_t>(data.size(), kSumChunkBytes - inside));
    if (inside == 0) sums_.push_back(0);
    sums_.back() = Crc32c(part, sums_.back());
    bytes_ += part.size();
    data = data.subspan(part.size());
  }
}

void ChunkSums::Builder::Append(const PartSums& part) {
  for (uint64_t done = 0, i = 0; done < part.bytes; ++i) {
    const uint64_t inside = bytes_ % kSumChunkBytes;
    const uint64_t bytes = std::min(part.bytes - done, kSumChunkBytes - inside);
    if (inside == 0) {
      sums_.push_back(part.sums[i]);
    } else {
      sums_.back() = JoinCrc32c(sums_.back(), part.sums[i], bytes);
    }
    bytes_ += bytes;
    done += bytes;
  }
}

ChunkSums ChunkSums::Builder::Finish(const Hash128& file) {
  ChunkSums sums;
  sums.file_ = file;
  sums.file_bytes_ = bytes_;
  sums.sums_ = std::move(sums_);
  return sums;
}

std::string ChunkSums::Encode() const {
  std::string out(ChunkSumsBytes(file_bytes_), '\0');
  out.replace(0, kMagic.size(), kMagic);
  StoreLittle<uint32_t>(&out[kAtVersion], kVersion);
  StoreLittle<uint32_t>(&out[kAtChunkBytes], kSumChunkBytes);
  StoreLittle<uint64_t>(&out[kAtFileBytes], file_bytes_);
  StoreLittle<uint64_t>(&out[kAtHash], file_.low);
  StoreLittle<uint64_t>(&out[kAtHash + 8], file_.high);
  for (size_t i = 0; i < sums_.size(); ++i) StoreLittle<uint32_t>(&out[kAtSums + i * 4], sums_[i]);
  const size_t end = out.size() - kEndBytes;
  StoreLittle<uint32_t>(&out[end], Crc32c(AsBytes(out).first(end)));
  return out;
}

Result<ChunkSums> ChunkSums::Decode(Bytes bytes, const Hash128& file, std::string_view name) {
  if (bytes.size() < kAtSums + kEndBytes || AsText(bytes.first(kMagic.size())) != kMagic)
    return Damaged(name, "they do not begin as such a file does");
  const std::byte* p = bytes.data();
  const size_t end = bytes.size() - kEndBytes;
  if (Crc32c(bytes.first(end)) != LoadLittle<uint32_t>(p + end))
    return Damaged(name, "they do not match their own CRC32C");
  const auto version = LoadLittle<uint32_t>(p + kAtVersion);
  const auto chunk_bytes = LoadLittle<uint32_t>(p + kAtChunkBytes);
  if (version != kVersion || chunk_bytes != kSumChunkBytes)
    return Error(Code::kFailedPrecondition,
                 "checksums {} have version {} and chunks of {} bytes, this program reads version "
                 "{} and {}: use a newer headrace",
                 name, version, chunk_bytes, kVersion, kSumChunkBytes);
  ChunkSums sums;
  sums.file_bytes_ = LoadLittle<uint64_t>(p + kAtFileBytes);
  sums.file_ = {LoadLittle<uint64_t>(p + kAtHash + 8), LoadLittle<uint64_t>(p + kAtHash)};
  if (sums.file_ != file)
    return Damaged(name,
                   fmt::format("they are those of {}, not of {}", sums.file_.Hex(), file.Hex()));
  const size_t count = (end - kAtSums) / 4;
  if ((end - kAtSums) % 4 != 0 || ChunksOf(sums.file_bytes_) != count)
    return Damaged(name, fmt::format("{} bytes of checksums for a file of {}", end - kAtSums,
                                     sums.file_bytes_));
  sums.sums_.resize(count);
  for (size_t i = 0; i < count; ++i) sums.sums_[i] = LoadLittle<uint32_t>(p + kAtSums + i * 4);
  return sums;
}

uint64_t ChunkSums::ChunkBytes(size_t chunk) const {
  return std::min<uint64_t>(kSumChunkBytes, file_bytes_ - chunk * kSumChunkBytes);
}

uint32_t ChunkSums::WholeFile() const {
  static const Crc32cJoiner joiner(kSumChunkBytes);
  if (sums_.empty()) return 0;
  uint32_t crc = 0;
  for (size_t i = 0; i + 1 < sums_.size(); ++i) crc = joiner.Join(crc, sums_[i]);
  return JoinCrc32c(crc, sums_.back(), ChunkBytes(sums_.size() - 1));
}

ChunkSums::Cover ChunkSums::CoverOf(uint64_t offset, uint64_t bytes) const {
  const uint64_t begin = offset / kSumChunkBytes * kSumChunkBytes;
  const uint64_t last = (offset + bytes - 1) / kSumChunkBytes * kSumChunkBytes;
  return {begin, std::min(last + kSumChunkBytes, file_bytes_) - begin};
}

Status ChunkSums::Check(uint64_t offset, Bytes data, std::string_view name) const {
  const bool inside = offset <= file_bytes_ && data.size() <= file_bytes_ - offset;
  const uint64_t end = offset + data.size();
  if (!inside || offset % kSumChunkBytes != 0 || (end % kSumChunkBytes != 0 && end != file_bytes_))
    return Error(Code::kInvalidArgument,
                 "{} bytes at offset {} are no whole chunks of {}, which has {} bytes", data.size(),
                 offset, name, file_bytes_);
  for (uint64_t at = offset; at < end;) {
    const size_t chunk = at / kSumChunkBytes;
    const Bytes part = data.subspan(at - offset, ChunkBytes(chunk));
    const uint32_t found = Crc32c(part);
    if (found != sums_[chunk]) return Wrong(chunk, found, name);
    at += part.size();
  }
  return OkStatus();
}

Status ChunkSums::Wrong(size_t chunk, uint32_t found, std::string_view name) const {
  const uint64_t offset = chunk * kSumChunkBytes;
  return Error(Code::kDataLoss,
               "wrong checksum: the {} bytes at offset {} of {} have CRC32C {:08x}, {:08x} was "
               "expected",
               ChunkBytes(chunk), offset, name, found, sums_[chunk])
      .At({.file = std::string(name), .offset = offset, .key = {}, .field = {}});
}

}  // namespace headrace::checkpoint
