// One small pointer that is replaced in one atomic step, by whoever has seen its present value:
// compare-and-swap. Whatever is published (a dataset version, a checkpoint, "latest") turns on one.
// Thread-safe; any number of processes and machines may use the same place.
//
//   HR_ASSIGN_OR_RETURN(Ref::Value now, ref->Read(ctx));
//   auto version = ref->Swap(now.version, AsBytes(next), ctx);   // kFailedPrecondition: read again
#pragma once

#include <memory>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

class Ref {
 public:
  static constexpr uint64_t kMaxBytes = 64 << 10;  // of a content

  struct Value {
    std::string content;
    std::string version;  // opaque; another content has another one
  };

  virtual ~Ref() = default;
  // The place, for messages: without secrets.
  virtual const std::string& name() const = 0;

  // kNotFound when it was never set. Also the store's or file system's failures.
  virtual Result<Value> Read(const Context& ctx) = 0;
  // Replaces the content if the version is still `expected`, or if `expected` is empty and the ref
  // was never set. Durable and seen by all when it returns. Returns the new version. A ref that has
  // come back to a content counts as unchanged.
  //   kFailedPrecondition  it is another version: nothing was changed. (Over a RetryingStore, whose
  //                        first try may have been done before its answer was lost: or what was
  //                        written has been replaced since.)
  //   kInvalidArgument     more than kMaxBytes.
  virtual Result<std::string> Swap(const std::string& expected, Bytes content,
                                   const Context& ctx) = 0;
};

// A file that is replaced by a rename, under a lock on PATH.lock beside it, which stays. Its folder
// must be there. For folders that all writers share with working locks.
std::unique_ptr<Ref> MakeFileRef(FileSystem* fs, const std::string& path);

// An object that is put with a condition. kUnimplemented when the store lacks put_if_absent,
// put_if_match or get_if_match.
Result<std::unique_ptr<Ref>> MakeObjectRef(std::shared_ptr<ObjectStore> store,
                                           const std::string& key);

}  // namespace headrace::object
