// Walks a store's folder in the order of its keys. For one call of List: what it has listed it does
// not list again. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/env/file.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

class DirListing {
 public:
  // Tells what a file is as an object; kNotFound when it is none.
  using Describe =
      std::function<Result<ObjectInfo>(const std::string& key, const std::string& path)>;

  // Only keys that begin with `prefix`. All must outlive this.
  DirListing(FileSystem* fs, const std::string& root, const std::string& prefix, Describe describe,
             const Context& ctx);

  // The object with the smallest key that is not less than `at_least`.
  Result<std::optional<ObjectInfo>> Next(const std::string& at_least);

 private:
  struct Entry {
    std::string text;  // what it adds to the key: a part, with '/' behind it for a folder
    std::string path;
    bool is_folder = false;
  };
  using Entries = std::vector<Entry>;

  Result<std::optional<ObjectInfo>> Find(const std::string& folder, const std::string& begin,
                                         const std::string& at_least);
  bool MayHold(const std::string& begin) const;
  // The entries of a folder in the order of their texts.
  Result<const Entries*> List(const std::string& folder);
  Status Gather(const std::string& folder, const std::string& part, int depth, Entries* entries);

  FileSystem* fs_;
  const std::string& root_;
  const std::string& prefix_;
  const Describe describe_;
  const Context& ctx_;
  std::map<std::string, Entries> listed_;
};

}  // namespace headrace::object
