#include "headrace/dataset/mds_content.h"

#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/dataset/content_hash.h"
#include "headrace/dataset/file_checksum.h"

namespace headrace::dataset {
namespace {

Location AtFile(std::string file) {
  return {.file = std::move(file), .offset = {}, .key = {}, .field = {}};
}

// Bytes in memory, seen as the file they would be.
class UnpackedFile : public RandomAccessFile {
 public:
  UnpackedFile(std::string path, AlignedBuffer bytes, uint64_t size)
      : path_(std::move(path)), bytes_(std::move(bytes)), size_(size) {}

  Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_ASSIGN_OR_RETURN(size_t found, ReadSome(offset, out, ctx));
    if (found == out.size()) return OkStatus();
    return Error(Code::kDataLoss, "{} has {} bytes unpacked, asked for {} at offset {}", path_,
                 size_, out.size(), offset)
        .At({.file = path_, .offset = offset, .key = {}, .field = {}});
  }
  Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context&) const override {
    if (offset >= size_) return size_t{0};
    const size_t count = std::min<uint64_t>(out.size(), size_ - offset);
    std::copy_n(bytes_.data() + offset, count, out.data());
    return count;
  }
  uint64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
  AlignedBuffer bytes_;
  uint64_t size_;
};

Status CheckSize(const std::string& path, uint64_t found, uint64_t expected) {
  if (found == expected) return OkStatus();
  return Error(Code::kDataLoss,
               "{} has {} bytes, index.json says {}: it was cut short or replaced. Get a good copy "
               "of the dataset",
               path, found, expected)
      .At(AtFile(path));
}

Status WrongHash(const std::string& path, std::string_view algorithm, std::string_view found,
                 std::string_view expected) {
  return Error(Code::kDataLoss,
               "{} has the {} {}, index.json says {}: it is damaged. Get a good copy of it", path,
               algorithm, found, EscapeText(expected))
      .At(AtFile(path));
}

// Holds bytes that come piece by piece against the hashes of a file.
class HashCheck {
 public:
  explicit HashCheck(const MdsFile& file) {
    for (const auto& [algorithm, digest] : file.hashes) {
      auto hash = ContentHash::Create(algorithm);
      if (hash.ok()) hashes_.push_back({algorithm, digest, *std::move(hash)});
    }
  }
  bool any() const { return !hashes_.empty(); }
  void Update(Bytes data) {
    for (One& one : hashes_) one.hash->Update(data);
  }
  Status Finish(const std::string& path) {
    for (One& one : hashes_) {
      std::string found = one.hash->Finish();
      if (found != one.digest) return WrongHash(path, one.algorithm, found, one.digest);
    }
    return OkStatus();
  }

 private:
  struct One {
    std::string_view algorithm, digest;
    std::unique_ptr<ContentHash> hash;
  };
  std::vector<One> hashes_;
};

Status CheckFileHashes(const RandomAccessFile& file, const MdsFile& expected, const Context& ctx) {
  constexpr uint64_t kPart = uint64_t{1} << 20;
  HR_RETURN_IF_ERROR(CheckSize(file.path(), file.size(), expected.bytes));
  HashCheck check(expected);
  if (!check.any()) return OkStatus();
  AlignedBuffer buffer;
  if (!buffer.Reserve(kPart)) return Status(Code::kResourceExhausted, "no memory for a buffer");
  for (uint64_t at = 0; at < file.size(); at += kPart) {
    HR_RETURN_IF_ERROR(ctx.Check());
    MutableBytes part(buffer.data(), std::min(kPart, file.size() - at));
    HR_RETURN_IF_ERROR(file.ReadAt(at, part, ctx));
    check.Update(part);
  }
  return check.Finish(file.path());
}

}  // namespace

Manifest ManifestOf(const MdsIndex& index) {
  Manifest manifest;
  manifest.kind = "mds";
  manifest.fields = index.ColumnNames();
  for (const MdsShard& shard : index.shards) {
    ManifestShard& entry = manifest.shards.emplace_back();
    entry.name = shard.raw.name;
    entry.samples = shard.samples;
    entry.bytes = shard.raw.bytes;
    entry.samples_crc32c = shard.Identity();
  }
  return manifest;
}

Result<std::unique_ptr<MdsContent>> MdsContent::Open(FileSystem* fs, const std::string& folder,
                                                     std::string_view index_text,
                                                     const Exists& exists) {
  std::unique_ptr<MdsContent> content(new MdsContent(fs, folder));
  HR_ASSIGN_OR_RETURN(content->index_,
                      MdsIndex::FromJson(index_text, JoinPath(folder, kMdsIndexName)));
  const std::vector<MdsShard>& shards = content->index_.shards;
  uint64_t num_missing = 0;
  std::string first_missing;
  for (const MdsShard& shard : shards) {
    HR_ASSIGN_OR_RETURN(std::optional<bool> found, exists(JoinPath(folder, shard.raw.name)));
    const bool raw = found.value_or(!shard.packed.has_value());
    bool packed = false;
    if (!raw && shard.packed) {
      HR_ASSIGN_OR_RETURN(found, exists(JoinPath(folder, shard.packed->name)));
      packed = found.value_or(true);
    }
    content->packed_.push_back(packed);
    if (!raw && !packed && num_missing++ == 0)
      first_missing = JoinPath(folder, shard.packed ? shard.packed->name : shard.raw.name);
  }
  content->hash_checked_ = std::vector<std::atomic<uint64_t>>(shards.size());
  if (num_missing == 0) return content;
  return Error(Code::kFailedPrecondition,
               "{} names {} shard(s) that are not there, first {}. Copy the whole dataset",
               JoinPath(folder, kMdsIndexName), num_missing, first_missing)
      .At(AtFile(first_missing));
}

std::string MdsContent::FilePath(size_t shard) const {
  const MdsShard& entry = index_.shards[shard];
  return JoinPath(folder_, packed_[shard] ? entry.packed->name : entry.raw.name);
}

Result<std::unique_ptr<RandomAccessFile>> MdsContent::OpenShard(size_t shard,
                                                                const Context& ctx) const {
  if (packed_[shard]) return Unpack(shard, ctx);
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(FilePath(shard)));
  HR_RETURN_IF_ERROR(CheckSize(file->path(), file->size(), index_.shards[shard].raw.bytes));
  return file;
}

Result<std::unique_ptr<RandomAccessFile>> MdsContent::Unpack(size_t shard,
                                                             const Context& ctx) const {
  const MdsShard& entry = index_.shards[shard];
  const std::string path = FilePath(shard);
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(path));
  HR_RETURN_IF_ERROR(CheckSize(path, file->size(), entry.packed->bytes));
  AlignedBuffer packed, raw;
  if (!packed.Reserve(file->size(), /*exact=*/true) ||
      !raw.Reserve(entry.raw.bytes, /*exact=*/true))
    return Error(Code::kResourceExhausted, "no memory to unpack {} to {}", path,
                 FormatSize(entry.raw.bytes));
  HR_RETURN_IF_ERROR(file->ReadAt(0, {packed.data(), file->size()}, ctx));
  const Bytes stored(packed.data(), file->size());
  const MutableBytes out(raw.data(), entry.raw.bytes);
  HR_RETURN_IF_ERROR(dataset::Unpack(entry.compression, stored, out).Prefix(path).At(AtFile(path)));
  const uint64_t version = FileVersion(file->info());
  if (version == 0 || hash_checked_[shard].load(std::memory_order_relaxed) != version) {
    // Hashes of the unpacked bytes cover the packed ones.
    HashCheck check(entry.raw), packed_check(*entry.packed);
    check.Update(out);
    if (!check.any()) packed_check.Update(stored);
    HR_RETURN_IF_ERROR(check.any() ? check.Finish(path) : packed_check.Finish(path));
    hash_checked_[shard].store(version, std::memory_order_relaxed);
  }
  return std::make_unique<UnpackedFile>(path, std::move(raw), entry.raw.bytes);
}

Status MdsContent::CheckHashes(size_t shard, const Context& ctx) const {
  const MdsShard& entry = index_.shards[shard];
  HR_ASSIGN_OR_RETURN(auto content, OpenShard(shard, ctx));
  HR_RETURN_IF_ERROR(CheckFileHashes(*content, entry.raw, ctx));
  if (!packed_[shard]) return OkStatus();
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(FilePath(shard)));
  return CheckFileHashes(*file, *entry.packed, ctx);
}

}  // namespace headrace::dataset
