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
  //   kFailedPrecondition  it is another version: nothing was changed. (Over a RetryingStore whose
  //                        first try's answer was lost: or it was done, and what was written has
  //                        been replaced since by a swap that had seen it.)
  //   kInvalidArgument     more than kMaxBytes.
  // Of several swaps of one version at most one succeeds, also when they write the same bytes. (Of
  // the same bytes over a RetryingStore only where the store has put_mark.)
  virtual Result<std::string> Swap(const std::string& expected, Bytes content,
                                   const Context& ctx) = 0;
};

// A file that is replaced by a rename, under a lock on PATH.lock beside it, which stays; PATH.seen
// is there for moments. Its folder must be there. For folders that all writers share with working
// locks. A swap goes by what the folder's server says and not by what this machine remembers, where
// the file system has hard links; a Read may give for a while (the mount's setting) what was there
// before.
std::unique_ptr<Ref> MakeFileRef(FileSystem* fs, const std::string& path);

// An object that is put with a condition. kUnimplemented when the store lacks put_if_absent,
// put_if_match or get_if_match.
Result<std::unique_ptr<Ref>> MakeObjectRef(std::shared_ptr<ObjectStore> store,
                                           const std::string& key);

}  // namespace headrace::object
