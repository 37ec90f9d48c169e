// The files of a DirStore, as its parts share them. Internal to object/dir. Thread-safe.
#pragma once

#include <set>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/env/file.h"
#include "headrace/object/dir/dir_handles.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/object_store.h"
#include "headrace/object/per_process.h"

namespace headrace::object {

class DirFiles {
 public:
  DirFiles(FileSystem* fs, std::string root, const DirStoreOptions& options);

  FileSystem* fs() const { return fs_; }
  const std::string& root() const { return root_; }
  const std::string& name() const { return name_; }
  // Below the root, in a folder that is no key's path.
  std::string UploadsFolder() const;

  std::string PathOf(const std::string& key) const;
  static ObjectInfo Describe(const std::string& key, const FileInfo& file);
  // kNotFound when nothing is there, or a folder.
  Result<ObjectInfo> Stat(const std::string& key, const std::string& path) const;

  // An object as an open file, which may have been open before (DirHandles).
  //   kNotFound            nothing is there, or a folder.
  //   kFailedPrecondition  it is not the version `if_match`.
  struct OpenObject {
    DirHandles::File file;
    ObjectInfo info;
  };
  Result<OpenObject> Open(const std::string& key, const std::string& if_match);
  // The next Open opens it anew.
  void Close(const std::string& key) { handles_.Get().Forget(PathOf(key)); }

  // Makes an object of what `write` appends: a temporary file beside the place, synced and renamed.
  // Returns its etag.
  Result<std::string> Publish(const std::string& key, const PutOptions& options, const Context& ctx,
                              const std::function<Status(WritableFile*)>& write);
  Status Remove(const std::string& key);
  // Makes a folder and its parents, and their names durable.
  Status MakeFolder(const std::string& folder);

 private:
  Result<std::unique_ptr<WritableFile>> CreateBeside(const std::string& key,
                                                     const std::string& path, const Context& ctx,
                                                     std::string* temporary);
  Result<OpenObject> OpenAnew(const std::string& key, const std::string& path,
                              const std::string& if_match);
  Status Rename(const std::string& key, const std::string& temporary, const FileInfo& written,
                const std::string& path, const PutOptions& options, const Context& ctx);
  bool IsThere(const std::string& path, const FileInfo& written) const;
  Result<bool> ServerHas(const std::string& key, const std::string& path, const std::string& etag,
                         const std::string& temporary) const;
  Result<std::unique_ptr<FileLock>> LockForMatch(const Context& ctx);
  Status MakeNamesDurable(const std::string& folder);
  void Forget(const std::string& folder);

  FileSystem* const fs_;
  const std::string root_, name_;
  const bool direct_;
  PerProcess<DirHandles> handles_;
  Mutex mu_;  // order: none is taken under it
  // Folders whose own names, up to the root's, this process has synced.
  std::set<std::string> durable_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::object
