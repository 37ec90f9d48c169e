// Open files of an ObjectFileSystem. Internal to it. Thread-safe as FileSystem's files are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/env/file.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// Reads all of `out` of one version of an object, in parts of `part_bytes` at once. Each part is of
// the version `info` or the read fails.
//   kFailedPrecondition  the object was replaced.
//   kDataLoss            the range is not inside the object.
Status ReadObject(ObjectStore* store, const ObjectInfo& info, uint64_t offset, MutableBytes out,
                  uint64_t part_bytes, const Context& ctx);

FileInfo FileInfoOf(const std::string& root, const ObjectInfo& info);
FileInfo DirectoryInfoOf(const std::string& root, const std::string& key);

// `cancelled` ends reads whose Context has no flag of its own; null: none does.
std::unique_ptr<RandomAccessFile> MakeObjectFile(std::shared_ptr<ObjectStore> store,
                                                 ObjectInfo info, const std::string& root,
                                                 std::string path, uint64_t part_bytes,
                                                 const std::atomic<bool>* cancelled);
std::unique_ptr<WritableFile> MakeObjectWriter(std::shared_ptr<ObjectStore> store, std::string key,
                                               std::string path, uint64_t part_bytes,
                                               const Context& ctx);

}  // namespace headrace::object
