#include "headrace/checkpoint/memory_files.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace headrace::checkpoint {
namespace {

class PartsFile final : public DataFile {
 public:
  PartsFile(std::string key, std::shared_ptr<const MemoryFiles::Parts> parts)
      : key_(std::move(key)), parts_(std::move(parts)) {
    uint64_t at = 0;
    for (Bytes part : parts_->parts) {
      starts_.push_back(at);
      at += part.size();
    }
  }
  Status Read(uint64_t offset, MutableBytes out, const Context& ctx) override;

 private:
  const std::string key_;
  const std::shared_ptr<const MemoryFiles::Parts> parts_;
  std::vector<uint64_t> starts_;  // of each part
};

Status PartsFile::Read(uint64_t offset, MutableBytes out, const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  if (offset > parts_->bytes || out.size() > parts_->bytes - offset)
    return Error(Code::kDataLoss, "{} in memory has {} bytes, and {} at {} are wanted", key_,
                 parts_->bytes, out.size(), offset);
  size_t i = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) -
                                 starts_.begin()) -
             1;
  for (; !out.empty(); ++i) {
    Bytes part = parts_->parts[i].subspan(offset - starts_[i]);
    part = part.first(std::min(part.size(), out.size()));
    if (!part.empty()) std::memcpy(out.data(), part.data(), part.size());
    out = out.subspan(part.size());
    offset += part.size();
  }
  return OkStatus();
}

}  // namespace

Bytes MemoryFiles::Keep(Bytes part) {
  const std::less_equal<const std::byte*> not_behind;
  if (!kept_.empty() && not_behind(kept_.data(), part.data()) &&
      not_behind(part.data() + part.size(), kept_.data() + kept_.size()))
    return part;
  copies_.push_back(std::make_unique<std::byte[]>(part.size()));
  std::memcpy(copies_.back().get(), part.data(), part.size());
  return {copies_.back().get(), part.size()};
}

Result<bool> MemoryFiles::Write(const std::string& key, std::span<const Bytes> parts,
                                const Context&) {
  MutexLock lock(&mu_);
  if (files_.contains(key)) return false;
  auto file = std::make_shared<Parts>();
  for (Bytes part : parts) {
    if (part.empty()) continue;
    file->parts.push_back(Keep(part));
    file->bytes += part.size();
  }
  files_[key] = std::move(file);
  return true;
}

Result<bool> MemoryFiles::WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                                    const Context& ctx) {
  std::vector<std::byte> all;
  while (all.size() < bytes) {
    HR_RETURN_IF_ERROR(ctx.Check());
    const uint64_t most = uint64_t{16} << 20;
    HR_ASSIGN_OR_RETURN(Bytes piece, next(std::min<uint64_t>(most, bytes - all.size())));
    all.insert(all.end(), piece.begin(), piece.end());
  }
  Bytes part = all;
  return Write(key, {&part, 1}, ctx);
}

Result<MemoryFiles::Parts> MemoryFiles::PartsOf(const std::string& key) {
  MutexLock lock(&mu_);
  auto at = files_.find(key);
  if (at == files_.end()) return Error(Code::kNotFound, "{} is not in memory", key);
  return *at->second;
}

std::vector<std::string> MemoryFiles::Keys() {
  MutexLock lock(&mu_);
  std::vector<std::string> keys;
  for (const auto& [key, file] : files_) keys.push_back(key);
  return keys;
}

Result<std::unique_ptr<DataFile>> MemoryFiles::Open(const std::string& key, uint64_t bytes,
                                                    const Context&) {
  std::shared_ptr<const Parts> parts;
  {
    MutexLock lock(&mu_);
    auto at = files_.find(key);
    if (at == files_.end()) return Error(Code::kNotFound, "{} is not in memory", key);
    parts = at->second;
  }
  if (parts->bytes != bytes)
    return Error(Code::kDataLoss, "{} in memory has {} bytes instead of {}", key, parts->bytes,
                 bytes);
  return std::unique_ptr<DataFile>(std::make_unique<PartsFile>(key, std::move(parts)));
}

}  // namespace headrace::checkpoint
