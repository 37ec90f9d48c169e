#include "headrace/env/testing/faulty_file_system.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"

namespace headrace {

namespace {
constexpr std::string_view kNames[kNumFileOperations] = {
    "open for read",    "read",           "map",    "open shared words",
    "read whole",       "read into",      "stat",   "list",
    "create",           "append",         "sync",   "close",
    "write atomically", "rename",         "remove", "remove tree",
    "make directories", "sync directory", "lock",   "open for append",
    "free bytes"};
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

Status DiskFull(const std::string& path) {
  return Error(Code::kResourceExhausted, "cannot write {}: no space left on the device",
               EscapeText(path));
}
}  // namespace

std::string_view FileOperationName(FileOperation operation) {
  return kNames[static_cast<size_t>(operation)];
}

class FaultyFileSystem::Faults {
 public:
  // Counts the call and returns the failure that is set for it; one of a call that is to be done
  // goes to `lost`.
  Status Pass(FileOperation operation, Status* lost = nullptr) {
    MutexLock lock(&mu_);
    uint64_t call = ++counts_[static_cast<size_t>(operation)];
    for (const Failure& failure : failures_) {
      if (failure.operation != operation || call < failure.first || call > failure.last) continue;
      if (!failure.done) return failure.status;
      if (lost) *lost = failure.status;
    }
    return OkStatus();
  }

  // Takes up to `bytes` of what is left on the disk; returns how many.
  uint64_t TakeSpace(uint64_t bytes) {
    MutexLock lock(&mu_);
    uint64_t taken = std::min(bytes, space_);
    if (space_ != kNoLimit) space_ -= taken;
    return taken;
  }
  uint64_t space() {
    MutexLock lock(&mu_);
    return space_;
  }
  bool TakeAllOrNothing(uint64_t bytes) {
    MutexLock lock(&mu_);
    if (bytes > space_) return false;
    if (space_ != kNoLimit) space_ -= bytes;
    return true;
  }

  // Where the file seems to end.
  uint64_t End(const std::string& path) {
    MutexLock lock(&mu_);
    uint64_t end = kNoLimit;
    for (const auto& [suffix, size] : ends_)
      if (path.ends_with(suffix)) end = std::min(end, size);
    return end;
  }

  // Damages what was read from `offset` on.
  void Damage(const std::string& path, uint64_t offset, MutableBytes bytes) {
    MutexLock lock(&mu_);
    for (const auto& [suffix, at] : flips_)
      if (path.ends_with(suffix) && at >= offset && at - offset < bytes.size())
        bytes[at - offset] ^= std::byte{1};
  }

  void AddFailure(FileOperation operation, uint64_t nth, Status status, uint64_t times,
                  bool done = false) {
    MutexLock lock(&mu_);
    uint64_t first = counts_[static_cast<size_t>(operation)] + std::max<uint64_t>(nth, 1);
    uint64_t last = times > kNoLimit - first ? kNoLimit : first + std::max<uint64_t>(times, 1) - 1;
    failures_.push_back({operation, first, last, std::move(status), done});
  }
  void SetSpace(uint64_t bytes) {
    MutexLock lock(&mu_);
    space_ = bytes;
  }
  void AddEnd(std::string suffix, uint64_t size) {
    MutexLock lock(&mu_);
    ends_.emplace_back(std::move(suffix), size);
  }
  void AddFlip(std::string suffix, uint64_t offset) {
    MutexLock lock(&mu_);
    flips_.emplace_back(std::move(suffix), offset);
  }
  void Clear() {
    MutexLock lock(&mu_);
    failures_.clear();
    ends_.clear();
    flips_.clear();
    space_ = kNoLimit;
    counts_ = {};
  }
  uint64_t count(FileOperation operation) {
    MutexLock lock(&mu_);
    return counts_[static_cast<size_t>(operation)];
  }

 private:
  struct Failure {
    FileOperation operation;
    uint64_t first, last;  // calls, counted from 1
    Status status;
    bool done;  // the call is done all the same
  };

  Mutex mu_;  // order: none is taken under it
  std::vector<Failure> failures_ HR_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, uint64_t>> ends_ HR_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, uint64_t>> flips_ HR_GUARDED_BY(mu_);
  uint64_t space_ HR_GUARDED_BY(mu_) = kNoLimit;
  std::array<uint64_t, kNumFileOperations> counts_ HR_GUARDED_BY(mu_){};
};

class FaultyFileSystem::Reader final : public RandomAccessFile {
 public:
  Reader(std::shared_ptr<Faults> faults, std::unique_ptr<RandomAccessFile> base)
      : faults_(std::move(faults)), base_(std::move(base)) {}

  Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRead));
    uint64_t end = faults_->End(path());
    if (end != kNoLimit && (offset > end || out.size() > end - offset))
      return Error(Code::kDataLoss, "the file ends at byte {}, expected {} bytes from byte {} on",
                   end, out.size(), offset)
          .At({path(), offset, {}, {}});
    HR_RETURN_IF_ERROR(base_->ReadAt(offset, out, ctx));
    faults_->Damage(path(), offset, out);
    return OkStatus();
  }
  Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRead));
    uint64_t end = faults_->End(path());
    uint64_t wanted = offset >= end ? 0 : std::min<uint64_t>(out.size(), end - offset);
    HR_ASSIGN_OR_RETURN(size_t done, base_->ReadSome(offset, out.first(wanted), ctx));
    faults_->Damage(path(), offset, out.first(done));
    return done;
  }
  uint64_t size() const override { return base_->size(); }
  FileInfo info() const override { return base_->info(); }
  const std::string& path() const override { return base_->path(); }

 private:
  const std::shared_ptr<Faults> faults_;
  const std::unique_ptr<RandomAccessFile> base_;
};

class FaultyFileSystem::Mapped final : public MappedFile {
 public:
  Mapped(Bytes bytes, Faults* faults, const std::string& path)
      : content_(bytes.begin(),
                 bytes.begin() + std::min<uint64_t>(bytes.size(), faults->End(path))) {
    faults->Damage(path, 0, content_);
  }
  Bytes bytes() const override { return content_; }

 private:
  std::vector<std::byte> content_;  // a copy, so that it can be damaged
};

class FaultyFileSystem::Writer final : public WritableFile {
 public:
  Writer(std::shared_ptr<Faults> faults, std::unique_ptr<WritableFile> base, std::string path)
      : faults_(std::move(faults)), base_(std::move(base)), path_(std::move(path)) {}

  Status Append(Bytes data) override {
    HR_RETURN_IF_ERROR(failure_);
    HR_RETURN_IF_ERROR(Keep(faults_->Pass(FileOperation::kAppend)));
    uint64_t fits = faults_->TakeSpace(data.size());
    HR_RETURN_IF_ERROR(base_->Append(data.first(fits)));
    return fits == data.size() ? OkStatus() : Keep(DiskFull(path_));
  }
  Status Sync() override {
    HR_RETURN_IF_ERROR(failure_);
    HR_RETURN_IF_ERROR(Keep(faults_->Pass(FileOperation::kSync)));
    return base_->Sync();
  }
  Status Close() override {
    Status armed = faults_->Pass(FileOperation::kClose);
    Status closed = base_->Close();
    if (!failure_.ok()) return failure_;
    return armed.ok() ? std::move(closed) : Keep(std::move(armed));
  }
  uint64_t size() const override { return base_->size(); }

 private:
  Status Keep(Status status) {
    if (!status.ok()) failure_ = status;
    return status;
  }

  const std::shared_ptr<Faults> faults_;
  const std::unique_ptr<WritableFile> base_;
  const std::string path_;
  Status failure_;  // of an earlier call; a file that failed stays failed
};

class FaultyFileSystem::Shared final : public SharedFile {
 public:
  Shared(std::shared_ptr<Faults> faults, std::unique_ptr<SharedFile> base, std::string path)
      : faults_(std::move(faults)), base_(std::move(base)), path_(std::move(path)) {}

  Result<size_t> ReadSome(uint64_t offset, MutableBytes out) const override {
    HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRead));
    uint64_t end = faults_->End(path_);
    uint64_t wanted = offset >= end ? 0 : std::min<uint64_t>(out.size(), end - offset);
    HR_ASSIGN_OR_RETURN(size_t done, base_->ReadSome(offset, out.first(wanted)));
    faults_->Damage(path_, offset, out.first(done));
    return done;
  }
  Status WriteAt(uint64_t offset, Bytes data) override {
    HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kAppend));
    uint64_t fits = faults_->TakeSpace(data.size());
    HR_RETURN_IF_ERROR(base_->WriteAt(offset, data.first(fits)));
    return fits == data.size() ? OkStatus() : DiskFull(path_);
  }

 private:
  const std::shared_ptr<Faults> faults_;
  const std::unique_ptr<SharedFile> base_;
  const std::string path_;
};

FaultyFileSystem::FaultyFileSystem(FileSystem* base)
    : base_(base), faults_(std::make_shared<Faults>()) {}
FaultyFileSystem::~FaultyFileSystem() = default;

void FaultyFileSystem::FailNth(FileOperation operation, uint64_t nth, Status status,
                               uint64_t times) {
  faults_->AddFailure(operation, nth, std::move(status), times);
}
void FaultyFileSystem::LoseNth(FileOperation operation, uint64_t nth, Status status) {
  faults_->AddFailure(operation, nth, std::move(status), 1, true);
}

void FaultyFileSystem::LimitBytes(uint64_t bytes) { faults_->SetSpace(bytes); }
void FaultyFileSystem::EndFilesAt(std::string suffix, uint64_t size_bytes) {
  faults_->AddEnd(std::move(suffix), size_bytes);
}
void FaultyFileSystem::FlipBit(std::string suffix, uint64_t offset) {
  faults_->AddFlip(std::move(suffix), offset);
}
void FaultyFileSystem::Heal() { faults_->Clear(); }
uint64_t FaultyFileSystem::count(FileOperation operation) const {
  return faults_->count(operation);
}

Result<std::unique_ptr<RandomAccessFile>> FaultyFileSystem::OpenForRead(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kOpenForRead));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, base_->OpenForRead(path));
  return std::make_unique<Reader>(faults_, std::move(file));
}

Result<std::unique_ptr<MappedFile>> FaultyFileSystem::Map(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kMap));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, base_->Map(path));
  return std::make_unique<Mapped>(file->bytes(), faults_.get(), path);
}

Result<std::unique_ptr<SharedWords>> FaultyFileSystem::OpenSharedWords(const std::string& path,
                                                                       size_t words) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kOpenSharedWords));
  return base_->OpenSharedWords(path, words);
}

Result<std::string> FaultyFileSystem::ReadWhole(const std::string& path, uint64_t limit_bytes) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kReadWhole));
  HR_ASSIGN_OR_RETURN(std::string content, base_->ReadWhole(path, limit_bytes));
  content.resize(std::min<uint64_t>(content.size(), faults_->End(path)));
  faults_->Damage(path, 0, std::as_writable_bytes(std::span(content)));
  return content;
}

Result<size_t> FaultyFileSystem::ReadInto(const std::string& path, MutableBytes out) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kReadInto));
  uint64_t wanted = std::min<uint64_t>(out.size(), faults_->End(path));
  HR_ASSIGN_OR_RETURN(size_t done, base_->ReadInto(path, out.first(wanted)));
  faults_->Damage(path, 0, out.first(done));
  return done;
}

Result<std::unique_ptr<WritableFile>> FaultyFileSystem::Create(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kCreate));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->Create(path));
  return std::make_unique<Writer>(faults_, std::move(file), path);
}

Result<std::unique_ptr<WritableFile>> FaultyFileSystem::CreateDirect(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kCreate));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->CreateDirect(path));
  return std::make_unique<Writer>(faults_, std::move(file), path);
}

Result<std::unique_ptr<WritableFile>> FaultyFileSystem::OpenForAppend(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kOpenForAppend));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->OpenForAppend(path));
  return std::make_unique<Writer>(faults_, std::move(file), path);
}

Result<std::unique_ptr<SharedFile>> FaultyFileSystem::OpenShared(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kOpenForAppend));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<SharedFile> file, base_->OpenShared(path));
  return std::make_unique<Shared>(faults_, std::move(file), path);
}

Status FaultyFileSystem::WriteAtomically(const std::string& path, Bytes content) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kWriteAtomically));
  if (!faults_->TakeAllOrNothing(content.size())) return DiskFull(path);
  return base_->WriteAtomically(path, content);
}

Result<std::unique_ptr<WritableFile>> FaultyFileSystem::CreateTemporary(
    const std::string& directory, std::string* path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kCreate));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->CreateTemporary(directory, path));
  return std::make_unique<Writer>(faults_, std::move(file), *path);
}

Status FaultyFileSystem::RenameIfAbsent(const std::string& from, const std::string& to) {
  Status lost;
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRename, &lost));
  HR_RETURN_IF_ERROR(base_->RenameIfAbsent(from, to));
  return lost;
}

Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  Status lost;
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRename, &lost));
  HR_RETURN_IF_ERROR(base_->Rename(from, to));
  return lost;
}

Status FaultyFileSystem::Remove(const std::string& path) {
  Status lost;
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRemove, &lost));
  HR_RETURN_IF_ERROR(base_->Remove(path));
  return lost;
}

Status FaultyFileSystem::RemoveTree(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kRemoveTree));
  return base_->RemoveTree(path);
}

Status FaultyFileSystem::MakeDirectories(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kMakeDirectories));
  return base_->MakeDirectories(path);
}

Status FaultyFileSystem::SyncDirectory(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kSyncDirectory));
  return base_->SyncDirectory(path);
}

Result<FileInfo> FaultyFileSystem::Stat(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kStat));
  return base_->Stat(path);
}

Result<uint64_t> FaultyFileSystem::FreeBytes(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kFreeBytes));
  HR_ASSIGN_OR_RETURN(uint64_t free, base_->FreeBytes(path));
  return std::min(free, faults_->space());
}

Result<std::vector<DirectoryEntry>> FaultyFileSystem::List(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kList));
  return base_->List(path);
}

Result<std::unique_ptr<FileLock>> FaultyFileSystem::Lock(const std::string& path) {
  HR_RETURN_IF_ERROR(faults_->Pass(FileOperation::kLock));
  return base_->Lock(path);
}

}  // namespace headrace
