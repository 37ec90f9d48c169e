#include "headrace/object/object_file_system.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/base/text.h"
#include "headrace/object/object_file.h"
#include "headrace/object/object_key.h"

namespace headrace::object {

namespace {

class HeldBytes final : public MappedFile {
 public:
  HeldBytes(AlignedBuffer buffer, size_t bytes) : buffer_(std::move(buffer)), bytes_(bytes) {}
  Bytes bytes() const override { return {buffer_.data(), bytes_}; }

 private:
  const AlignedBuffer buffer_;
  const size_t bytes_;
};

class ObjectFileSystem final : public FileSystem, public HasObjects {
 public:
  ObjectFileSystem(std::shared_ptr<ObjectStore> store, const ObjectFileSystemOptions& options)
      : store_(std::move(store)), options_(options) {
    if (options_.root.empty()) options_.root = store_->name();
  }

  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, Find(path, "read"));
    return MakeObjectFile(store_, std::move(info), options_.root, path, options_.part_bytes,
                          options_.context.cancelled);
  }

  Result<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, Find(path, "map"));
    if (info.size_bytes > options_.max_memory_bytes)
      return Error(Code::kResourceExhausted, "{} has {} bytes, at most {} are held in memory",
                   EscapeText(path), info.size_bytes, options_.max_memory_bytes);
    AlignedBuffer buffer;
    if (!buffer.Reserve(info.size_bytes, true))
      return Error(Code::kResourceExhausted, "no memory for the {} bytes of {}", info.size_bytes,
                   EscapeText(path));
    HR_RETURN_IF_ERROR(Fetch(info, path, {buffer.data(), info.size_bytes}));
    return std::make_unique<HeldBytes>(std::move(buffer), info.size_bytes);
  }

  Result<std::unique_ptr<SharedWords>> OpenSharedWords(const std::string& path, size_t) override {
    return Refuse(path, "be shared between processes");
  }

  Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, Find(path, "read"));
    if (info.size_bytes > limit_bytes)
      return Error(Code::kResourceExhausted,
                   "{} has {} bytes, expected at most {}: it is not the kind of file expected",
                   EscapeText(path), info.size_bytes, limit_bytes);
    std::string content(info.size_bytes, '\0');
    HR_RETURN_IF_ERROR(Fetch(info, path, std::as_writable_bytes(std::span(content))));
    return content;
  }

  Result<size_t> ReadInto(const std::string& path, MutableBytes out) override {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, Find(path, "read"));
    out = out.first(std::min<uint64_t>(out.size(), info.size_bytes));
    HR_RETURN_IF_ERROR(Fetch(info, path, out));
    return out.size();
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
    if (key.empty()) return NotAFile(path, "write");
    if (!store_->abilities().write) return Refuse(path, "be written");
    return MakeObjectWriter(store_, std::move(key), path, options_.part_bytes, options_.context);
  }

  Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& directory,
                                                        std::string*) override {
    return Refuse(directory, "hold temporary files");
  }

  Result<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return Refuse(path, "be appended to");
  }

  Status WriteAtomically(const std::string& path, Bytes content) override {
    HR_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
    if (key.empty()) return NotAFile(path, "write");
    return store_->Put(key, content, {}, options_.context).status();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    HR_ASSIGN_OR_RETURN(std::string from_key, KeyOf(from));
    HR_ASSIGN_OR_RETURN(std::string to_key, KeyOf(to));
    if (from_key == to_key) return OkStatus();
    HR_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> content, Map(from));
    HR_RETURN_IF_ERROR(WriteAtomically(to, content->bytes()));
    return store_->Delete(from_key, options_.context);
  }

  Status RenameIfAbsent(const std::string&, const std::string& to) override {
    return Refuse(to, "be the new name of a file");
  }

  Status Remove(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, Find(path, "remove"));
    return store_->Delete(info.key, options_.context);
  }

  Status RemoveTree(const std::string& path) override {
    return Refuse(path, "be removed with all below it");
  }

  Status MakeDirectories(const std::string& path) override { return KeyOf(path).status(); }
  Status SyncDirectory(const std::string& path) override { return KeyOf(path).status(); }

  Result<FileInfo> Stat(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
    if (key.empty()) return DirectoryInfoOf(options_.root, key);
    Result<ObjectInfo> info = store_->Head(key, options_.context);
    if (info.ok()) return FileInfoOf(options_.root, *info);
    // A store that may not be listed says "not allowed" of what is not there.
    Code code = info.status().code();
    if (code != Code::kNotFound && code != Code::kPermissionDenied) return std::move(info).status();
    if (!store_->abilities().list) return std::move(info).status();
    Result<bool> directory = HasObjectsBelow(key);
    if (directory.ok() && *directory) return DirectoryInfoOf(options_.root, key);
    if (directory.ok() || code == Code::kPermissionDenied) return std::move(info).status();
    return std::move(directory).status();
  }

  Result<std::vector<DirectoryEntry>> List(const std::string& path) override;

  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    return Refuse(path, "be locked");
  }

  Result<StorePlace> FindObject(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
    if (key.empty()) return NotAFile(path, "find");
    return StorePlace{store_, std::move(key)};
  }

 private:
  Result<std::string> KeyOf(const std::string& path) const;
  Result<ObjectInfo> Find(const std::string& path, std::string_view verb);

  Result<bool> HasObjectsBelow(const std::string& key) {
    HR_ASSIGN_OR_RETURN(
        ListPage page,
        store_->List({.prefix = key + "/", .delimiter = {}, .after = {}, .token = {}, .max = 1},
                     options_.context));
    return !page.objects.empty();
  }

  Status Fetch(const ObjectInfo& info, const std::string& path, MutableBytes out) {
    return ReadObject(store_.get(), info, 0, out, options_.part_bytes, options_.context)
        .At({path, {}, {}, {}});
  }

  static Status NotAFile(const std::string& path, std::string_view verb) {
    return Error(Code::kInvalidArgument, "cannot {} {}: expected a file, found a directory", verb,
                 EscapeText(path));
  }
  static Status Refuse(const std::string& path, std::string_view what) {
    return Error(Code::kUnimplemented,
                 "{} cannot {}: it is in an object store; use a folder of this machine for that",
                 EscapeText(path), what);
  }

  const std::shared_ptr<ObjectStore> store_;
  ObjectFileSystemOptions options_;
};

Result<std::string> ObjectFileSystem::KeyOf(const std::string& path) const {
  const std::string& root = options_.root;
  std::string_view rest = path;
  if (!rest.starts_with(root) || (rest.size() > root.size() && rest[root.size()] != '/'))
    return Error(Code::kInvalidArgument, "{} is not below {}", EscapeText(path), root);
  rest.remove_prefix(root.size());
  std::vector<std::string_view> parts;
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the '/' before a part
    size_t end = std::min(rest.find('/'), rest.size());
    std::string_view part = rest.substr(0, end);
    rest.remove_prefix(end);
    if (part == ".." && parts.empty())
      return Error(Code::kInvalidArgument, "{} leaves {}", EscapeText(path), root);
    if (part == "..") {
      parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
  }
  std::string key;
  for (std::string_view part : parts) key.append(key.empty() ? "" : "/").append(part);
  return key;
}

// The object of a file. kInvalidArgument when it is a directory.
Result<ObjectInfo> ObjectFileSystem::Find(const std::string& path, std::string_view verb) {
  HR_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
  if (key.empty()) return NotAFile(path, verb);
  Result<ObjectInfo> info = store_->Head(key, options_.context);
  if (info.ok()) return info;
  if (info.status().code() == Code::kNotFound && store_->abilities().list) {
    Result<bool> directory = HasObjectsBelow(key);
    if (directory.ok() && *directory) return NotAFile(path, verb);
  }
  return std::move(info).status().At({path, {}, {}, {}});
}

Result<std::vector<DirectoryEntry>> ObjectFileSystem::List(const std::string& path) {
  HR_ASSIGN_OR_RETURN(std::string key, KeyOf(path));
  ListRequest request{.prefix = key.empty() ? "" : key + "/",
                      .delimiter = "/",
                      .after = {},
                      .token = {},
                      .max = 1000};
  std::vector<DirectoryEntry> entries;
  bool found = key.empty();
  auto add = [&](std::string_view name, FileKind kind, std::optional<FileInfo> info) {
    found = true;
    name.remove_prefix(request.prefix.size());
    if (name.ends_with('/')) name.remove_suffix(1);
    if (!name.empty() && name != "." && name != "..")
      entries.push_back({std::string(name), kind, info});
  };
  do {
    HR_ASSIGN_OR_RETURN(ListPage page, store_->List(request, options_.context));
    for (const ObjectInfo& info : page.objects)
      add(info.key, FileKind::kRegular, FileInfoOf(options_.root, info));
    for (const std::string& prefix : page.prefixes) add(prefix, FileKind::kDirectory, {});
    request.token = std::move(page.next);
  } while (!request.token.empty());
  if (!found)
    return Error(Code::kNotFound, "there is no object below {}", EscapeText(path))
        .At({path, {}, {}, {}});
  // Of an object and a directory with the same name the object can be reached by it.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const DirectoryEntry& a, const DirectoryEntry& b) {
                     return a.name != b.name ? a.name < b.name : a.kind < b.kind;
                   });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [](const DirectoryEntry& a, const DirectoryEntry& b) {
                              return a.name == b.name;
                            }),
                entries.end());
  return entries;
}

}  // namespace

Result<StorePlace> FindObject(FileSystem* fs, const std::string& path) {
  if (auto* objects = dynamic_cast<HasObjects*>(fs)) return objects->FindObject(path);
  return Error(Code::kUnimplemented, "{} is not in an object store", EscapeText(path));
}

std::shared_ptr<FileSystem> MakeObjectFileSystem(std::shared_ptr<ObjectStore> store,
                                                 const ObjectFileSystemOptions& options) {
  return std::make_shared<ObjectFileSystem>(std::move(store), options);
}

}  // namespace headrace::object
