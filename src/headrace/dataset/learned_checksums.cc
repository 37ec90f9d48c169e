#include "headrace/dataset/learned_checksums.h"

#include "headrace/base/bytes.h"

namespace headrace::dataset {
namespace {

// A word holds a CRC32C twice, once inverted, so that a half-written or damaged word is no
// checksum. 0 is "unknown". The first word of the file ties it to its index in the same way.
constexpr uint32_t kFieldTag = 0x48525355;
constexpr uint32_t kOwnerTag = 0x48524958;

uint64_t Encode(uint32_t crc32c, uint32_t tag) {
  return static_cast<uint64_t>(~crc32c ^ tag) << 32 | crc32c;
}

std::optional<uint32_t> Decode(uint64_t word, uint32_t tag) {
  uint32_t crc32c = static_cast<uint32_t>(word);
  if (word != Encode(crc32c, tag)) return std::nullopt;
  return crc32c;
}

}  // namespace

bool LearnedChecksums::OpenShared(FileSystem* fs, const std::string& path, uint64_t num_fields,
                                  uint64_t owner) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto words = fs->OpenSharedWords(path, num_fields + 1);
    if (words.ok()) {
      uint64_t found = (*words)->Load(0);
      if (found == 0) (*words)->Store(0, owner);
      if (found == 0 || found == owner) {
        shared_ = *std::move(words);
        return true;
      }
    } else if (words.status().code() != Code::kFailedPrecondition) {
      return false;
    }
    if (!fs->Remove(path).ok()) return false;  // learned with another index
  }
  return false;
}

bool LearnedChecksums::OpenReadOnly(FileSystem* fs, const std::string& path, uint64_t num_fields,
                                    uint64_t owner) {
  auto file = fs->Map(path);
  if (!file.ok()) return false;
  Bytes bytes = (*file)->bytes();
  if (bytes.size() != (num_fields + 1) * 8 || LoadLittle<uint64_t>(bytes.data()) != owner)
    return false;
  read_only_ = *std::move(file);
  return true;
}

std::unique_ptr<LearnedChecksums> LearnedChecksums::Open(FileSystem* fs, const std::string& path,
                                                         uint64_t num_fields,
                                                         uint32_t index_crc32c) {
  std::unique_ptr<LearnedChecksums> checksums(new LearnedChecksums);
  const uint64_t owner = Encode(index_crc32c, kOwnerTag);
  if (!path.empty() && checksums->OpenShared(fs, path, num_fields, owner)) return checksums;
  if (!path.empty()) checksums->OpenReadOnly(fs, path, num_fields, owner);
  checksums->local_ = std::vector<std::atomic<uint64_t>>(num_fields);
  return checksums;
}

std::optional<uint32_t> LearnedChecksums::Load(uint64_t ordinal) const {
  if (shared_) return Decode(shared_->Load(ordinal + 1), kFieldTag);
  if (read_only_) {
    auto known =
        Decode(LoadLittle<uint64_t>(read_only_->bytes().data() + (ordinal + 1) * 8), kFieldTag);
    if (known) return known;
  }
  return Decode(local_[ordinal].load(std::memory_order_relaxed), kFieldTag);
}

void LearnedChecksums::Store(uint64_t ordinal, uint32_t crc32c) {
  uint64_t word = Encode(crc32c, kFieldTag);
  if (shared_)
    shared_->Store(ordinal + 1, word);
  else
    local_[ordinal].store(word, std::memory_order_relaxed);
}

}  // namespace headrace::dataset
