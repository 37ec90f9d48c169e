#include "headrace/object/dir/dir_listing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "headrace/object/dir/key_path.h"
#include "headrace/object/object_key.h"

namespace headrace::object {

DirListing::DirListing(FileSystem* fs, const std::string& root, const std::string& prefix,
                       Describe describe, const Context& ctx)
    : fs_(fs), root_(root), prefix_(prefix), describe_(std::move(describe)), ctx_(ctx) {}

Result<std::optional<ObjectInfo>> DirListing::Next(const std::string& at_least) {
  return Find(root_, "", std::max(at_least, prefix_));
}

// No text of a folder begins another text, so a folder's keys stand together in the order.
Result<std::optional<ObjectInfo>> DirListing::Find(const std::string& folder,
                                                   const std::string& begin,
                                                   const std::string& at_least) {
  HR_RETURN_IF_ERROR(ctx_.Check());
  HR_ASSIGN_OR_RETURN(const Entries* entries, List(folder));
  std::string rest = at_least.starts_with(begin) ? at_least.substr(begin.size()) : "";
  auto entry = std::upper_bound(entries->begin(), entries->end(), rest,
                                [](const std::string& r, const Entry& e) { return r < e.text; });
  // Back to `rest` itself, or the folder that it goes on in.
  while (entry != entries->begin() && rest.starts_with(std::prev(entry)->text)) --entry;
  for (; entry != entries->end(); ++entry) {
    std::string key = begin + entry->text;
    if (key.size() > kMaxKeyBytes) continue;
    if (!entry->is_folder) {
      // Only the one path that the key has: a person may have made others that read like it.
      if (key < at_least || entry->path != JoinPath(root_, PathOfKey(key))) continue;
      Result<ObjectInfo> info = describe_(key, entry->path);
      if (info.ok()) return std::optional<ObjectInfo>(*std::move(info));
      if (info.status().code() != Code::kNotFound) return std::move(info).status();
    } else if (MayHold(key) && (key >= at_least || at_least.starts_with(key))) {
      HR_ASSIGN_OR_RETURN(std::optional<ObjectInfo> found, Find(entry->path, key, at_least));
      if (found) return found;
    }
  }
  return std::optional<ObjectInfo>();
}

// Can a key with the prefix begin with `begin`?
bool DirListing::MayHold(const std::string& begin) const {
  return begin.size() < prefix_.size() ? prefix_.starts_with(begin) : begin.starts_with(prefix_);
}

Result<const DirListing::Entries*> DirListing::List(const std::string& folder) {
  auto known = listed_.find(folder);
  if (known != listed_.end()) return &known->second;
  Entries entries;
  HR_RETURN_IF_ERROR(Gather(folder, "", 0, &entries));
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
  return &listed_.emplace(folder, std::move(entries)).first->second;
}

// Adds the entries of `folder`, with those of the folders that a long part was cut into.
Status DirListing::Gather(const std::string& folder, const std::string& part, int depth,
                          Entries* entries) {
  constexpr int kMaxDepth = 16;  // of one part: more is no key's
  auto listed = fs_->List(folder);
  // Removed since its own folder was listed: then its keys are gone too.
  if (!listed.ok())
    return listed.status().code() == Code::kNotFound ? OkStatus() : std::move(listed).status();
  for (DirectoryEntry& entry : *listed) {
    std::optional<NamedPart> named = PartOfName(entry.name);
    if (!named) continue;
    std::string path = JoinPath(folder, entry.name);
    bool is_folder = entry.kind == FileKind::kDirectory;
    std::string text = part + named->text;
    if (named->goes_on) {
      if (is_folder && depth < kMaxDepth)
        HR_RETURN_IF_ERROR(Gather(path, text, depth + 1, entries));
    } else {
      entries->push_back({text + (is_folder ? "/" : ""), std::move(path), is_folder});
    }
  }
  return OkStatus();
}

}  // namespace headrace::object
