#include "headrace/checkpoint/data_files.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/durable_write.h"

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kPartBytes = uint64_t{16} << 20;  // of an upload, and of what is put in one go
constexpr std::string_view kDataFolder = "data";

uint64_t TotalOf(std::span<const Bytes> parts) {
  uint64_t total = 0;
  for (Bytes part : parts) total += part.size();
  return total;
}

// --- a folder ------------------------------------------------------------------------------------

constexpr uint64_t kDirectFrom = uint64_t{1} << 20;  // smaller files are read in one go anyway

class FolderFile final : public DataFile {
 public:
  // `direct` may be null.
  FolderFile(std::unique_ptr<RandomAccessFile> file, std::unique_ptr<RandomAccessFile> direct)
      : file_(std::move(file)), direct_(std::move(direct)) {}
  Status Read(uint64_t offset, MutableBytes out, const Context& ctx) override {
    return file_->ReadAt(offset, out, ctx);
  }
  const RandomAccessFile* direct() const override { return direct_.get(); }
  bool IsResident(uint64_t offset, uint64_t bytes) const override {
    return file_->ResidentBytes(offset, bytes) >= bytes;
  }

 private:
  const std::unique_ptr<RandomAccessFile> file_, direct_;
};

class FolderFiles final : public DataFiles {
 public:
  FolderFiles(FileSystem* fs, const std::string& folder) : fs_(fs), folder_(folder) {}

  const std::string& name() const override { return folder_; }
  Status CheckRoom(uint64_t bytes, const Context& ctx) override;
  Result<bool> Write(const std::string& key, std::span<const Bytes> parts,
                     const Context& ctx) override;
  Result<bool> WriteThenName(std::span<const Bytes> parts, const LateKey& key,
                             const Context& ctx) override;
  Result<bool> WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                         const Context& ctx) override;
  Status Sync(const Context& ctx) override;
  Result<std::unique_ptr<DataFile>> Open(const std::string& key, uint64_t bytes,
                                         const Context& ctx) override;

 private:
  // Writes a file at a path and makes its bytes durable.
  using Fill = std::function<Status(const std::string& path)>;
  Result<bool> WriteBy(const std::string& key, uint64_t bytes, const Fill& fill);
  Result<std::string> WriteTemporary(const std::string& directory, const Fill& fill);
  bool IsThere(const std::string& key, uint64_t bytes);
  Status Name(const std::string& temporary, const std::string& key);

  FileSystem* const fs_;
  const std::string folder_;
  Mutex mu_;
  std::set<std::string> unsynced_ HR_GUARDED_BY(mu_);  // directories with new names
};

Status FolderFiles::CheckRoom(uint64_t bytes, const Context&) {
  HR_RETURN_IF_ERROR(fs_->MakeDirectories(folder_));
  auto room = fs_->FreeBytes(folder_);
  if (!room.ok() || *room >= bytes) return OkStatus();
  return Error(Code::kResourceExhausted,
               "{} has room for {} bytes and the checkpoint needs {}: remove old checkpoints "
               "(headrace ckpt prune) or use another place",
               folder_, *room, bytes);
}

// Writes and syncs a file under a name that nobody reads; returns its path.
Result<std::string> FolderFiles::WriteTemporary(const std::string& directory, const Fill& fill) {
  HR_RETURN_IF_ERROR(fs_->MakeDirectories(directory));
  std::string path;
  {
    // Takes the name; the bytes then go around the page cache.
    HR_ASSIGN_OR_RETURN(auto named, fs_->CreateTemporary(directory, &path));
    HR_RETURN_IF_ERROR(named->Close());
  }
  Status status = fill(path);
  if (status.ok()) return path;
  (void)fs_->Remove(path);
  return status;
}

bool FolderFiles::IsThere(const std::string& key, uint64_t bytes) {
  std::string path = JoinPath(folder_, key);
  auto there = fs_->Stat(path);
  if (!there.ok() || there->size_bytes != bytes) return false;
  // Perhaps another save has just put it there and has not synced the folder yet.
  MutexLock lock(&mu_);
  unsynced_.insert(std::string(DirectoryName(path)));
  return true;
}

Status FolderFiles::Name(const std::string& temporary, const std::string& key) {
  std::string path = JoinPath(folder_, key);
  Status renamed = fs_->Rename(temporary, path);
  if (!renamed.ok()) {
    (void)fs_->Remove(temporary);
    return renamed;
  }
  MutexLock lock(&mu_);
  unsynced_.insert(std::string(DirectoryName(path)));
  return OkStatus();
}

Result<bool> FolderFiles::WriteBy(const std::string& key, uint64_t bytes, const Fill& fill) {
  if (IsThere(key, bytes)) return false;
  std::string directory(DirectoryName(JoinPath(folder_, key)));
  HR_ASSIGN_OR_RETURN(std::string temporary, WriteTemporary(directory, fill));
  HR_RETURN_IF_ERROR(Name(temporary, key));
  return true;
}

Result<bool> FolderFiles::Write(const std::string& key, std::span<const Bytes> parts,
                                const Context& ctx) {
  return WriteBy(key, TotalOf(parts),
                 [&](const std::string& path) { return WriteDurably(fs_, path, parts, ctx); });
}

Result<bool> FolderFiles::WriteThenName(std::span<const Bytes> parts, const LateKey& key,
                                        const Context& ctx) {
  const std::string directory = JoinPath(folder_, kDataFolder);
  HR_ASSIGN_OR_RETURN(std::string temporary,
                      WriteTemporary(directory, [&](const std::string& path) {
                        return WriteDurably(fs_, path, parts, ctx);
                      }));
  auto name = key();
  const bool is_new = name.ok() && !IsThere(*name, TotalOf(parts));
  if (is_new) {
    HR_RETURN_IF_ERROR(Name(temporary, *name));
    return true;
  }
  (void)fs_->Remove(temporary);
  HR_RETURN_IF_ERROR(name.status());
  return false;
}

Result<bool> FolderFiles::WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                                    const Context& ctx) {
  return WriteBy(key, bytes, [&](const std::string& path) -> Status {
    HR_ASSIGN_OR_RETURN(auto file, fs_->CreateDirect(path));
    for (uint64_t done = 0; done < bytes; done += kPartBytes) {
      HR_RETURN_IF_ERROR(ctx.Check());
      HR_ASSIGN_OR_RETURN(Bytes piece, next(std::min(kPartBytes, bytes - done)));
      HR_RETURN_IF_ERROR(file->Append(piece));
    }
    HR_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  });
}

Status FolderFiles::Sync(const Context&) {
  std::set<std::string> directories;
  {
    MutexLock lock(&mu_);
    directories.swap(unsynced_);
  }
  if (directories.empty()) return OkStatus();
  // The folders may be new themselves.
  directories.insert(folder_);
  directories.insert(std::string(DirectoryName(folder_)));
  for (const std::string& directory : directories) {
    Status synced = fs_->SyncDirectory(directory);
    if (synced.ok()) continue;
    MutexLock lock(&mu_);
    unsynced_.insert(directories.begin(), directories.end());
    return synced;
  }
  return OkStatus();
}

Result<std::unique_ptr<DataFile>> FolderFiles::Open(const std::string& key, uint64_t bytes,
                                                    const Context&) {
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(JoinPath(folder_, key)));
  if (file->size() != bytes)
    return Error(Code::kDataLoss, "{} has {} bytes instead of {}", file->path(), file->size(),
                 bytes);
  std::unique_ptr<RandomAccessFile> direct;
  if (bytes >= kDirectFrom) {
    auto opened = fs_->OpenDirect(JoinPath(folder_, key));
    // The usual way is always there.
    if (opened.ok() && (*opened)->descriptor() >= 0) direct = *std::move(opened);
  }
  return std::unique_ptr<DataFile>(
      std::make_unique<FolderFile>(std::move(file), std::move(direct)));
}

// --- a bucket ------------------------------------------------------------------------------------

class BucketFile final : public DataFile {
 public:
  BucketFile(std::shared_ptr<object::ObjectStore> store, std::string key)
      : store_(std::move(store)), key_(std::move(key)) {}
  Status Read(uint64_t offset, MutableBytes out, const Context& ctx) override {
    return store_->Get({.key = key_, .offset = offset, .out = out, .if_match = {}}, ctx).status();
  }

 private:
  const std::shared_ptr<object::ObjectStore> store_;
  const std::string key_;
};

class BucketFiles final : public DataFiles {
 public:
  BucketFiles(std::shared_ptr<object::ObjectStore> store, const std::string& prefix)
      : store_(std::move(store)), prefix_(prefix), name_(store_->name() + "/" + prefix) {}

  const std::string& name() const override { return name_; }
  Status CheckRoom(uint64_t, const Context&) override { return OkStatus(); }
  Result<bool> Write(const std::string& key, std::span<const Bytes> parts,
                     const Context& ctx) override;
  Result<bool> WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                         const Context& ctx) override;
  Status Sync(const Context&) override { return OkStatus(); }
  Result<std::unique_ptr<DataFile>> Open(const std::string& key, uint64_t bytes,
                                         const Context& ctx) override;

 private:
  Status Send(const std::string& key, uint64_t total, const NextPiece& next, const Context& ctx);

  const std::shared_ptr<object::ObjectStore> store_;
  const std::string prefix_, name_;
};

// The parts of a file cut anew; a piece that lies in one part is not copied.
class Pieces {
 public:
  explicit Pieces(std::span<const Bytes> parts) : parts_(parts) {}
  // The next `bytes` bytes, which must be there; valid until the next call.
  Bytes Next(uint64_t bytes) {
    while (!parts_.empty() && at_ == parts_.front().size()) Advance();
    if (parts_.empty()) return {};
    if (parts_.front().size() - at_ >= bytes) {
      Bytes piece = parts_.front().subspan(at_, bytes);
      at_ += bytes;
      return piece;
    }
    buffer_.clear();
    while (!parts_.empty() && buffer_.size() < bytes) {
      Bytes rest = parts_.front().subspan(at_);
      rest = rest.first(std::min<size_t>(rest.size(), bytes - buffer_.size()));
      buffer_.insert(buffer_.end(), rest.begin(), rest.end());
      at_ += rest.size();
      if (at_ == parts_.front().size()) Advance();
    }
    return buffer_;
  }

 private:
  void Advance() {
    parts_ = parts_.subspan(1);
    at_ = 0;
  }

  std::span<const Bytes> parts_;
  size_t at_ = 0;
  std::vector<std::byte> buffer_;
};

Status BucketFiles::Send(const std::string& key, uint64_t total, const NextPiece& next,
                         const Context& ctx) {
  const object::Abilities& can = store_->abilities();
  if (total <= kPartBytes || !can.upload) {
    Bytes all;
    if (total > 0) {
      HR_ASSIGN_OR_RETURN(all, next(total));
    }
    return store_->Put(key, all, {}, ctx).status();
  }
  uint64_t part_bytes = std::max({kPartBytes, can.min_part_bytes, total / can.max_parts + 1});
  part_bytes = (part_bytes + kSumChunkBytes - 1) / kSumChunkBytes * kSumChunkBytes;
  HR_ASSIGN_OR_RETURN(auto upload, store_->StartUpload(key, ctx));
  uint32_t count = 0;
  for (uint64_t done = 0; done < total; done += part_bytes) {
    HR_ASSIGN_OR_RETURN(Bytes piece, next(std::min(part_bytes, total - done)));
    HR_RETURN_IF_ERROR(upload->PutPart(++count, piece, ctx));
  }
  return upload->Complete(count, ctx).status();
}

Result<bool> BucketFiles::Write(const std::string& key, std::span<const Bytes> parts,
                                const Context& ctx) {
  Pieces pieces(parts);
  return WriteFrom(
      key, TotalOf(parts), [&pieces](uint64_t bytes) { return pieces.Next(bytes); }, ctx);
}

Result<bool> BucketFiles::WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                                    const Context& ctx) {
  const std::string whole = prefix_ + key;
  auto there = store_->Head(whole, ctx);
  if (there.ok() && there->size_bytes == bytes) return false;
  if (!there.ok() && there.status().code() != Code::kNotFound) return there.status();
  HR_RETURN_IF_ERROR(Send(whole, bytes, next, ctx));
  return true;
}

Result<std::unique_ptr<DataFile>> BucketFiles::Open(const std::string& key, uint64_t bytes,
                                                    const Context& ctx) {
  HR_ASSIGN_OR_RETURN(object::ObjectInfo info, store_->Head(prefix_ + key, ctx));
  if (info.size_bytes != bytes)
    return Error(Code::kDataLoss, "{}{} has {} bytes instead of {}", name_, key, info.size_bytes,
                 bytes);
  return std::unique_ptr<DataFile>(std::make_unique<BucketFile>(store_, prefix_ + key));
}

}  // namespace

Result<ChunkSums> ReadSums(DataFiles* files, const FileEntry& entry, const Context& ctx) {
  const std::string name = files->name() + "/" + entry.SumsKey();
  const uint64_t bytes = ChunkSumsBytes(entry.bytes);
  HR_ASSIGN_OR_RETURN(auto file, files->Open(entry.SumsKey(), bytes, ctx));
  std::string text(bytes, '\0');
  HR_RETURN_IF_ERROR(file->Read(0, {reinterpret_cast<std::byte*>(text.data()), text.size()}, ctx));
  HR_ASSIGN_OR_RETURN(ChunkSums sums, ChunkSums::Decode(AsBytes(text), entry.name, name));
  if (sums.file_bytes() != entry.bytes || sums.WholeFile() != entry.crc32c)
    return Error(Code::kDataLoss, "{} does not belong to the file that the checkpoint names", name);
  return sums;
}

std::unique_ptr<DataFiles> FilesInFolder(FileSystem* fs, const std::string& folder) {
  return std::make_unique<FolderFiles>(fs, folder);
}

std::unique_ptr<DataFiles> FilesInBucket(std::shared_ptr<object::ObjectStore> store,
                                         const std::string& prefix) {
  return std::make_unique<BucketFiles>(std::move(store), prefix);
}

}  // namespace headrace::checkpoint
