#include "headrace/env/testing/memory_file_system.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "headrace/base/keyed_random.h"
#include "headrace/base/text.h"
#include "headrace/env/posix_descriptor.h"

namespace headrace {

namespace {
constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxPathBytes = 4095;

Status PowerIsOff() {
  return Status(Code::kUnavailable, "the power of the memory file system is off");
}

// "/a/./b/../c" -> {"a", "c"}. A relative path starts at the root.
Result<std::vector<std::string>> SplitPath(const std::string& path, std::string_view verb) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  if (path.empty()) return PathError(ENOENT, verb, path);
  if (path.size() > kMaxPathBytes) return PathError(ENAMETOOLONG, verb, path);
  std::vector<std::string> parts;
  for (size_t start = 0; start < path.size();) {
    size_t end = std::min(path.find('/', start), path.size());
    std::string part = path.substr(start, end - start);
    start = end + 1;
    if (part.size() > kMaxNameBytes) return PathError(ENAMETOOLONG, verb, path);
    if (part == ".." && !parts.empty()) parts.pop_back();
    if (!part.empty() && part != "." && part != "..") parts.push_back(std::move(part));
  }
  return parts;
}
}  // namespace

struct MemoryFileSystem::Node {
  // What one operation did to a directory: names and what they stand for, null = removed.
  using Change = std::vector<std::pair<std::string, Node*>>;

  uint64_t inode = 0;
  bool is_directory = false;
  int64_t mtime_ns = 0;
  bool locked = false;
  std::string data, durable_data;
  std::map<std::string, Node*> names, durable_names;
  std::vector<Change> changes;  // since the last sync, oldest first

  static void Apply(const Change& change, std::map<std::string, Node*>* names) {
    for (const auto& [name, node] : change) {
      if (node) {
        (*names)[name] = node;
      } else {
        names->erase(name);
      }
    }
  }
  FileInfo Info() const {
    FileInfo info;
    info.kind = is_directory ? FileKind::kDirectory : FileKind::kRegular;
    info.size_bytes = data.size();
    info.mtime_ns = mtime_ns;
    info.device = 1;
    info.inode = inode;
    return info;
  }
  void Make(Change change) {
    Apply(change, &names);
    changes.push_back(std::move(change));
  }
  // Becomes what a cut leaves.
  void Settle(Survival survival, uint64_t seed);
};

void MemoryFileSystem::Node::Settle(Survival survival, uint64_t seed) {
  KeyedRandom random(HashKey(seed, inode));
  size_t kept = survival == Survival::kEverything ? changes.size() : 0;
  if (survival == Survival::kSome) kept = random.NextBelow(changes.size() + 1);
  for (size_t i = 0; i < kept; ++i) Apply(changes[i], &durable_names);
  changes.clear();
  names = durable_names;

  if (survival == Survival::kEverything) durable_data = data;
  if (survival == Survival::kSome && data.size() > durable_data.size()) {
    size_t good = durable_data.size() + random.NextBelow(data.size() - durable_data.size() + 1);
    size_t zeros = random.Next() % 2 == 0 ? 0 : random.NextBelow(data.size() - good + 1);
    durable_data = data.substr(0, good) + std::string(zeros, '\0');
  }
  data = durable_data;
  locked = false;
}

// The disk and its power. Nodes are never freed before the whole is: a test's worth of bytes.
struct MemoryFileSystem::Machine {
  Mutex mu;  // order: none is taken under it
  std::deque<Node> nodes HR_GUARDED_BY(mu);
  std::vector<std::string> log HR_GUARDED_BY(mu);
  uint64_t cut_at HR_GUARDED_BY(mu) = 0;  // 0 = never
  Survival survival HR_GUARDED_BY(mu) = Survival::kNothing;
  uint64_t seed HR_GUARDED_BY(mu) = 0;
  bool off HR_GUARDED_BY(mu) = false;
  uint64_t generation HR_GUARDED_BY(mu) = 0;  // counts cuts
  uint64_t num_temporaries HR_GUARDED_BY(mu) = 0;
  int64_t clock_ns HR_GUARDED_BY(mu) = 0;  // one more at each change

  Machine() {
    MutexLock lock(&mu);
    MakeNode(true);
  }

  Node* MakeNode(bool is_directory) HR_REQUIRES(mu) {
    Node& node = nodes.emplace_back();
    node.inode = nodes.size();
    node.is_directory = is_directory;
    node.mtime_ns = ++clock_ns;
    return &node;
  }

  void Cut(Survival how, uint64_t with_seed) HR_REQUIRES(mu) {
    for (Node& node : nodes) node.Settle(how, with_seed);
    off = true;
    cut_at = 0;
    ++generation;
  }

  // To be called right before each change; on failure the change must not happen.
  Status PassBoundary(std::string what) HR_REQUIRES(mu) {
    if (off) return PowerIsOff();
    if (cut_at != 0 && log.size() + 1 >= cut_at) {
      Cut(survival, seed);
      return PowerIsOff();
    }
    log.push_back(fmt::format("{} {}", log.size() + 1, what));
    return OkStatus();
  }

  Status CheckAlive(uint64_t opened_in) const HR_REQUIRES(mu) {
    return off || opened_in != generation ? PowerIsOff() : OkStatus();
  }

  Result<Node*> Walk(const std::vector<std::string>& parts, size_t num_parts, std::string_view verb,
                     const std::string& path) HR_REQUIRES(mu) {
    if (off) return PowerIsOff();
    Node* node = &nodes.front();
    for (size_t i = 0; i < num_parts; ++i) {
      if (!node->is_directory) return PathError(ENOTDIR, verb, path);
      auto found = node->names.find(parts[i]);
      if (found == node->names.end()) return PathError(ENOENT, verb, path);
      node = found->second;
    }
    return node;
  }

  Result<Node*> Find(const std::string& path, std::string_view verb) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(std::vector<std::string> parts, SplitPath(path, verb));
    return Walk(parts, parts.size(), verb, path);
  }

  // A name in a directory that is there, and the node it stands for, if any.
  struct Place {
    Node* parent = nullptr;
    std::string name;
    Node* node = nullptr;
  };
  Result<Place> FindPlace(const std::string& path, std::string_view verb) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(std::vector<std::string> parts, SplitPath(path, verb));
    if (parts.empty()) return PathError(EISDIR, verb, path);  // the root
    Place place;
    HR_ASSIGN_OR_RETURN(place.parent, Walk(parts, parts.size() - 1, verb, path));
    if (!place.parent->is_directory) return PathError(ENOTDIR, verb, path);
    place.name = parts.back();
    auto found = place.parent->names.find(place.name);
    if (found != place.parent->names.end()) place.node = found->second;
    return place;
  }

  void Enter(const Place& place, Node* node) HR_REQUIRES(mu) {
    place.parent->Make({{place.name, node}});
    place.parent->mtime_ns = ++clock_ns;
  }

  Result<Node*> FindFile(const std::string& path, std::string_view verb) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(Node * node, Find(path, verb));
    if (node->is_directory) return PathError(EISDIR, verb, path);
    return node;
  }

  // The file at `path`, made when it is not there yet.
  Result<Node*> FindOrMakeFile(const std::string& path, std::string_view verb) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(Place place, FindPlace(path, verb));
    if (place.node && place.node->is_directory) return PathError(EISDIR, verb, path);
    if (place.node) return place.node;
    HR_RETURN_IF_ERROR(PassBoundary("create " + path));
    Node* made = MakeNode(false);
    Enter(place, made);
    return made;
  }

  Status MakeDirectory(const std::string& path) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(Place place, FindPlace(path, "make the directory"));
    if (place.node && place.node->is_directory) return OkStatus();
    if (place.node) return PathError(EEXIST, "make the directory", path);
    HR_RETURN_IF_ERROR(PassBoundary("make directory " + path));
    Enter(place, MakeNode(true));
    return OkStatus();
  }

  Status Remove(const std::string& path) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(Place place, FindPlace(path, "remove"));
    if (!place.node) return PathError(ENOENT, "remove", path);
    if (!place.node->names.empty()) return PathError(ENOTEMPTY, "remove", path);
    HR_RETURN_IF_ERROR(PassBoundary("remove " + path));
    Enter(place, nullptr);
    return OkStatus();
  }

  Status RemoveTree(const std::string& path) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(Node * node, Find(path, "remove"));
    auto names = node->names;  // a copy: they go one by one
    for (const auto& entry : names) HR_RETURN_IF_ERROR(RemoveTree(JoinPath(path, entry.first)));
    return Remove(path);
  }

  Status CheckRename(const Place& from, const Place& to, const std::string& what) HR_REQUIRES(mu) {
    if (!from.node) return PathError(ENOENT, "rename", what);
    if (from.node->is_directory && Contains(*from.node, to.parent))
      return PathError(EINVAL, "rename", what);
    if (!to.node || to.node == from.node) return OkStatus();
    if (!from.node->is_directory && to.node->is_directory) return PathError(EISDIR, "rename", what);
    if (from.node->is_directory && !to.node->is_directory)
      return PathError(ENOTDIR, "rename", what);
    if (!to.node->names.empty()) return PathError(ENOTEMPTY, "rename", what);
    return OkStatus();
  }

  static bool Contains(const Node& tree, const Node* node) {
    if (&tree == node) return true;
    return std::any_of(tree.names.begin(), tree.names.end(),
                       [node](const auto& entry) { return Contains(*entry.second, node); });
  }

  Status Rename(const std::string& from_path, const std::string& to_path) HR_REQUIRES(mu) {
    HR_ASSIGN_OR_RETURN(Place from, FindPlace(from_path, "rename"));
    HR_ASSIGN_OR_RETURN(Place to, FindPlace(to_path, "rename"));
    std::string what = fmt::format("{} to {}", from_path, to_path);
    HR_RETURN_IF_ERROR(CheckRename(from, to, what));
    if (from.node == to.node) return OkStatus();
    HR_RETURN_IF_ERROR(PassBoundary("rename " + what));
    if (from.parent == to.parent) {
      from.parent->Make({{from.name, nullptr}, {to.name, from.node}});
      from.parent->mtime_ns = ++clock_ns;
    } else {
      Enter(from, nullptr);
      Enter(to, from.node);
    }
    return OkStatus();
  }
};

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
