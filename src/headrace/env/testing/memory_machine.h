// The disk of MemoryFileSystem and its power: what its files and calls, in memory_file_system.cc,
// work on. For nobody else.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/base/text.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace {

inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxPathBytes = 4095;

inline Status PowerIsOff() {
  return Status(Code::kUnavailable, "the power of the memory file system is off");
}

// "/a/./b/../c" -> {"a", "c"}. A relative path starts at the root.
inline Result<std::vector<std::string>> SplitPath(const std::string& path, std::string_view verb) {
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

inline void MemoryFileSystem::Node::Settle(Survival survival, uint64_t seed) {
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
  Status PassBoundary(const std::string& what) HR_REQUIRES(mu) {
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

}  // namespace headrace
