#include "headrace/env/testing/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/env/testing/memory_machine.h"

namespace headrace {

class MemoryFileSystem::File final : public RandomAccessFile {
 public:
  File(std::shared_ptr<Machine> machine, uint64_t generation, Node* node, const FileInfo& info,
       std::string path)
      : machine_(std::move(machine)),
        generation_(generation),
        node_(node),
        info_(info),
        path_(std::move(path)) {}

  Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_ASSIGN_OR_RETURN(size_t done, ReadSome(offset, out, ctx));
    if (done == out.size()) return OkStatus();
    return Error(Code::kDataLoss, "the file has {} bytes, expected {} bytes from byte {} on",
                 size(), out.size(), offset)
        .At({path_, offset, {}, {}});
  }
  Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_RETURN_IF_ERROR(ctx.Check());
    MutexLock lock(&machine_->mu);
    HR_RETURN_IF_ERROR(machine_->CheckAlive(generation_));
    const std::string& data = node_->data;
    if (offset >= data.size()) return size_t{0};
    return data.copy(reinterpret_cast<char*>(out.data()), out.size(), offset);
  }
  uint64_t size() const override { return info_.size_bytes; }
  FileInfo info() const override { return info_; }
  const std::string& path() const override { return path_; }

 private:
  const std::shared_ptr<Machine> machine_;
  const uint64_t generation_;
  Node* const node_;
  const FileInfo info_;
  const std::string path_;
};

class MemoryFileSystem::Mapped final : public MappedFile {
 public:
  explicit Mapped(std::string content) : content_(std::move(content)) {}
  Bytes bytes() const override { return AsBytes(content_); }

 private:
  const std::string content_;
};

class MemoryFileSystem::Words final : public SharedWords {
 public:
  Words(std::shared_ptr<Machine> machine, uint64_t generation, Node* node, size_t words)
      : machine_(std::move(machine)), generation_(generation), node_(node), words_(words) {}
  size_t size() const override { return words_; }
  uint64_t Load(size_t i) const override {
    MutexLock lock(&machine_->mu);
    if (!machine_->CheckAlive(generation_).ok()) return 0;
    return LoadLittle<uint64_t>(node_->data.data() + i * sizeof(uint64_t));
  }
  void Store(size_t i, uint64_t word) override {
    MutexLock lock(&machine_->mu);
    if (!machine_->CheckAlive(generation_).ok()) return;
    StoreLittle(node_->data.data() + i * sizeof(uint64_t), word);
  }
  uint64_t Add(size_t i, uint64_t delta) override {
    MutexLock lock(&machine_->mu);
    if (!machine_->CheckAlive(generation_).ok()) return 0;
    char* at = node_->data.data() + i * sizeof(uint64_t);
    uint64_t word = LoadLittle<uint64_t>(at) + delta;
    StoreLittle(at, word);
    return word;
  }

 private:
  const std::shared_ptr<Machine> machine_;
  const uint64_t generation_;
  Node* const node_;
  const size_t words_;
};

class MemoryFileSystem::Writer final : public WritableFile {
 public:
  Writer(std::shared_ptr<Machine> machine, uint64_t generation, Node* node, std::string path,
         bool at_end)
      : machine_(std::move(machine)),
        generation_(generation),
        node_(node),
        path_(std::move(path)),
        at_end_(at_end) {}

  Status Append(Bytes data) override {
    MutexLock lock(&machine_->mu);
    HR_RETURN_IF_ERROR(CheckOpen());
    HR_RETURN_IF_ERROR(machine_->PassBoundary(fmt::format("append {} {}", path_, data.size())));
    // By position, as the kernel does: another Create may have truncated the file meanwhile.
    size_t at = at_end_ ? node_->data.size() : size_;
    node_->data.resize(std::max<size_t>(node_->data.size(), at + data.size()));
    if (!data.empty()) std::memcpy(node_->data.data() + at, data.data(), data.size());
    size_ += data.size();
    node_->mtime_ns = ++machine_->clock_ns;
    return OkStatus();
  }
  Status Sync() override {
    MutexLock lock(&machine_->mu);
    HR_RETURN_IF_ERROR(CheckOpen());
    HR_RETURN_IF_ERROR(machine_->PassBoundary("sync " + path_));
    node_->durable_data = node_->data;
    return OkStatus();
  }
  Status Close() override {
    MutexLock lock(&machine_->mu);
    closed_ = true;
    return machine_->CheckAlive(generation_);
  }
  uint64_t size() const override { return size_; }

 private:
  Status CheckOpen() const HR_REQUIRES(machine_->mu) {
    if (closed_)
      return Error(Code::kFailedPrecondition, "cannot write {}: it is closed", EscapeText(path_));
    return machine_->CheckAlive(generation_);
  }

  const std::shared_ptr<Machine> machine_;
  const uint64_t generation_;
  Node* const node_;
  const std::string path_;
  const bool at_end_;  // appends go to the end of the file, whoever made it longer
  uint64_t size_ = 0;
  bool closed_ = false;
};

class MemoryFileSystem::Shared final : public SharedFile {
 public:
  Shared(std::shared_ptr<Machine> machine, uint64_t generation, Node* node, std::string path)
      : machine_(std::move(machine)),
        generation_(generation),
        node_(node),
        path_(std::move(path)) {}

  Result<size_t> ReadSome(uint64_t offset, MutableBytes out) const override {
    MutexLock lock(&machine_->mu);
    HR_RETURN_IF_ERROR(machine_->CheckAlive(generation_));
    const std::string& data = node_->data;
    if (offset >= data.size()) return size_t{0};
    return data.copy(reinterpret_cast<char*>(out.data()), out.size(), offset);
  }
  Status WriteAt(uint64_t offset, Bytes data) override {
    MutexLock lock(&machine_->mu);
    HR_RETURN_IF_ERROR(machine_->CheckAlive(generation_));
    HR_RETURN_IF_ERROR(
        machine_->PassBoundary(fmt::format("write {} at {} {}", path_, offset, data.size())));
    node_->data.resize(std::max<size_t>(node_->data.size(), offset + data.size()));
    if (!data.empty()) std::memcpy(node_->data.data() + offset, data.data(), data.size());
    node_->mtime_ns = ++machine_->clock_ns;
    return OkStatus();
  }

 private:
  const std::shared_ptr<Machine> machine_;
  const uint64_t generation_;
  Node* const node_;
  const std::string path_;
};

class MemoryFileSystem::Held final : public FileLock {
 public:
  Held(std::shared_ptr<Machine> machine, uint64_t generation, Node* node)
      : machine_(std::move(machine)), generation_(generation), node_(node) {}
  ~Held() override {
    MutexLock lock(&machine_->mu);
    if (machine_->generation == generation_) node_->locked = false;
  }

 private:
  const std::shared_ptr<Machine> machine_;
  const uint64_t generation_;
  Node* const node_;
};

MemoryFileSystem::MemoryFileSystem() : machine_(std::make_shared<Machine>()) {}
MemoryFileSystem::~MemoryFileSystem() = default;

uint64_t MemoryFileSystem::boundaries() const {
  MutexLock lock(&machine_->mu);
  return machine_->log.size();
}

std::vector<std::string> MemoryFileSystem::boundary_log() const {
  MutexLock lock(&machine_->mu);
  return machine_->log;
}

void MemoryFileSystem::CutPowerAt(uint64_t number, Survival survival, uint64_t seed) {
  MutexLock lock(&machine_->mu);
  machine_->cut_at = number;
  machine_->survival = survival;
  machine_->seed = seed;
}

void MemoryFileSystem::PowerCut(Survival survival, uint64_t seed) {
  MutexLock lock(&machine_->mu);
  machine_->Cut(survival, seed);
}

bool MemoryFileSystem::power_is_off() const {
  MutexLock lock(&machine_->mu);
  return machine_->off;
}

void MemoryFileSystem::PowerOn() {
  MutexLock lock(&machine_->mu);
  machine_->off = false;
  machine_->cut_at = 0;
}

Result<std::unique_ptr<RandomAccessFile>> MemoryFileSystem::OpenForRead(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindFile(path, "read"));
  return std::make_unique<File>(machine_, machine_->generation, node, node->Info(), path);
}

Result<std::unique_ptr<MappedFile>> MemoryFileSystem::Map(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindFile(path, "map"));
  return std::make_unique<Mapped>(node->data);
}

Result<std::unique_ptr<SharedWords>> MemoryFileSystem::OpenSharedWords(const std::string& path,
                                                                       size_t words) {
  MutexLock lock(&machine_->mu);
  if (words == 0)
    return Error(Code::kInvalidArgument, "cannot share 0 words in {}: expected at least 1",
                 EscapeText(path));
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindOrMakeFile(path, "open"));
  if (node->data.empty()) node->data.resize(words * sizeof(uint64_t));
  if (node->data.size() != words * sizeof(uint64_t))
    return Error(Code::kFailedPrecondition, "{} has {} bytes, expected {}", EscapeText(path),
                 node->data.size(), words * sizeof(uint64_t));
  return std::make_unique<Words>(machine_, machine_->generation, node, words);
}

Result<std::string> MemoryFileSystem::ReadWhole(const std::string& path, uint64_t limit_bytes) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindFile(path, "read"));
  if (node->data.size() > limit_bytes)
    return Error(Code::kResourceExhausted, "{} has {} bytes, expected at most {}", EscapeText(path),
                 node->data.size(), limit_bytes);
  return node->data;
}

Result<size_t> MemoryFileSystem::ReadInto(const std::string& path, MutableBytes out) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindFile(path, "read"));
  return node->data.copy(reinterpret_cast<char*>(out.data()), out.size());
}

Result<std::unique_ptr<WritableFile>> MemoryFileSystem::Create(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Machine::Place place, machine_->FindPlace(path, "write"));
  if (place.node && place.node->is_directory) return PathError(EISDIR, "write", path);
  Node* node = place.node;
  if (node) {
    HR_RETURN_IF_ERROR(machine_->PassBoundary("truncate " + path));
    node->data.clear();
    node->durable_data.clear();
    node->mtime_ns = ++machine_->clock_ns;
  } else {
    HR_ASSIGN_OR_RETURN(node, machine_->FindOrMakeFile(path, "write"));
  }
  return std::make_unique<Writer>(machine_, machine_->generation, node, path, false);
}

Result<std::unique_ptr<WritableFile>> MemoryFileSystem::OpenForAppend(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindOrMakeFile(path, "append to"));
  return std::make_unique<Writer>(machine_, machine_->generation, node, path, true);
}

Result<std::unique_ptr<SharedFile>> MemoryFileSystem::OpenShared(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindOrMakeFile(path, "open"));
  return std::make_unique<Shared>(machine_, machine_->generation, node, path);
}

Status MemoryFileSystem::WriteAtomically(const std::string& path, Bytes content) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  std::string directory(DirectoryName(path));
  std::string temporary;
  HR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, CreateTemporary(directory, &temporary));
  Status status = file->Append(content);
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  if (status.ok()) status = Rename(temporary, path);
  if (!status.ok()) {
    (void)Remove(temporary);
    return std::move(status).Prefix("replacing " + EscapeText(path));
  }
  return SyncDirectory(directory);
}

Result<std::unique_ptr<WritableFile>> MemoryFileSystem::CreateTemporary(
    const std::string& directory, std::string* path) {
  {
    MutexLock lock(&machine_->mu);
    *path = JoinPath(directory, fmt::format("{}{}", kTemporaryPrefix, machine_->num_temporaries++));
  }
  return Create(*path);
}

Status MemoryFileSystem::RenameIfAbsent(const std::string& from, const std::string& to) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Machine::Place place, machine_->FindPlace(to, "rename"));
  if (place.node) return PathError(EEXIST, "rename", fmt::format("{} to {}", from, to));
  return machine_->Rename(from, to);
}

Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(&machine_->mu);
  return machine_->Rename(from, to);
}

Status MemoryFileSystem::Remove(const std::string& path) {
  MutexLock lock(&machine_->mu);
  return machine_->Remove(path);
}

Status MemoryFileSystem::RemoveTree(const std::string& path) {
  MutexLock lock(&machine_->mu);
  Result<Node*> node = machine_->Find(path, "remove");
  if (!node.ok())
    return node.status().code() == Code::kNotFound ? OkStatus() : std::move(node).status();
  return machine_->RemoveTree(path);
}

Status MemoryFileSystem::MakeDirectories(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(std::vector<std::string> parts, SplitPath(path, "make the directory"));
  if (machine_->off) return PowerIsOff();
  std::string made = "/";
  for (const std::string& part : parts) {
    made = JoinPath(made, part);
    HR_RETURN_IF_ERROR(machine_->MakeDirectory(made));
  }
  return OkStatus();
}

Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->Find(path, "sync"));
  if (!node->is_directory) return PathError(ENOTDIR, "sync", path);
  HR_RETURN_IF_ERROR(machine_->PassBoundary("sync directory " + path));
  node->durable_names = node->names;
  node->changes.clear();
  return OkStatus();
}

Result<FileInfo> MemoryFileSystem::Stat(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->Find(path, "find"));
  return node->Info();
}

Result<uint64_t> MemoryFileSystem::FreeBytes(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_RETURN_IF_ERROR(machine_->Find(path, "find").status());
  return uint64_t{1} << 40;
}

Result<std::vector<DirectoryEntry>> MemoryFileSystem::List(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->Find(path, "list"));
  if (!node->is_directory) return PathError(ENOTDIR, "list", path);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : node->names)
    entries.push_back({name, child->is_directory ? FileKind::kDirectory : FileKind::kRegular});
  return entries;
}

Result<std::unique_ptr<FileLock>> MemoryFileSystem::Lock(const std::string& path) {
  MutexLock lock(&machine_->mu);
  HR_ASSIGN_OR_RETURN(Node * node, machine_->FindOrMakeFile(path, "lock"));
  if (node->locked)
    return Error(Code::kFailedPrecondition, "{} is locked: another run works here",
                 EscapeText(path));
  node->locked = true;
  return std::make_unique<Held>(machine_, machine_->generation, node);
}

}  // namespace headrace
