// What a checkpoint store holds: one small pointer, `head`, names the present catalog, an object
// that lists the published checkpoints. Publishing, changing a level and removing make a new
// catalog and swap `head`, in one atomic step; who reads sees the old or the new list and nothing
// between. docs/design/checkpoint.md, docs/formats/checkpoint.md. Thread-safe; any number of
// processes and machines may use a store at once.
//
// Whoever writes first takes an epoch, which shuts out all that took one before. So a writer that
// was thought dead changes nothing behind its successor's back.
//
//   CatalogStore store(*StoreInFolder(PosixFileSystem(), "/ckpt"));
//   HR_ASSIGN_OR_RETURN(uint64_t epoch, store.TakeOver("node1 pid 77", ctx));
//   HR_RETURN_IF_ERROR(store.Publish(epoch, *manifest, Level::kLocal, ctx));
//   HR_ASSIGN_OR_RETURN(Catalog catalog, store.Read(ctx));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/manifest.h"
#include "headrace/checkpoint/policy/level.h"
#include "headrace/env/file.h"
#include "headrace/object/object_store.h"
#include "headrace/object/ref.h"

namespace headrace::checkpoint {

// A published checkpoint.
struct CatalogEntry {
  SaveId id;
  std::string manifest;  // its key in the store
  uint64_t manifest_bytes = 0;
  Hash128 manifest_hash;        // of its bytes
  Level level = Level::kLocal;  // up to which it is durable
  std::string kind = "full";    // SaveInfo::kind
  int64_t published_ns = 0;     // since 1970
  uint64_t data_bytes = 0;      // of all boxes
  uint64_t new_bytes = 0;       // of the files that this save wrote
  // Measured, for the advice on how often to save; 0: not known.
  uint64_t stall_ns = 0, restore_ns = 0;  // as in SaveInfo
  uint64_t save_ns = 0;                   // from the save's start until it was published

  bool operator==(const CatalogEntry&) const = default;
};

struct Catalog {
  uint64_t sequence = 0;  // counts up with each new catalog; 0: nothing was ever published
  std::vector<CatalogEntry> entries;  // ascending in the order of Newer

  const CatalogEntry* Find(const SaveId& id) const;
  // The newest that is durable at least at `level`; of one step only when `step` is given. Null:
  // none.
  const CatalogEntry* Latest(Level level = Level::kMemory, std::optional<uint64_t> step = {}) const;

  // The newest full one that is older than `id`, and durable at least at `level`. Null: none.
  const CatalogEntry* FullBefore(const SaveId& id, Level level = Level::kMemory) const;

  std::string ToJson() const;
  // kDataLoss, kFailedPrecondition (a newer program's). `name` is for messages.
  static Result<Catalog> FromJson(std::string_view text, std::string_view name);
};
// Which of two saves is the newer one: by epoch, then step, then attempt. So a run that goes back
// to an older step takes a new epoch first, and what it saves is newer than what it left behind.
bool Newer(const SaveId& a, const SaveId& b);

// The content of `head`.
struct StoreHead {
  uint64_t epoch = 0;   // 0: no writer was ever there
  std::string owner;    // who took the epoch, for messages
  std::string catalog;  // its key; empty: nothing was published yet
  uint64_t catalog_bytes = 0;
  Hash128 catalog_hash;

  std::string ToJson() const;
  static Result<StoreHead> FromJson(std::string_view text, std::string_view name);
};

// Where a store is. Keys are put behind `prefix` ("" or "a/b/").
struct StorePlace {
  std::shared_ptr<object::ObjectStore> store;
  std::string prefix;
  std::shared_ptr<object::Ref> head;
};
// A folder, which is made when it is missing. `fs` must outlive the place.
Result<StorePlace> StoreInFolder(FileSystem* fs, const std::string& folder);
// A prefix in a bucket: "" or "a/b". kUnimplemented when the bucket cannot put with a condition.
Result<StorePlace> StoreInBucket(std::shared_ptr<object::ObjectStore> store,
                                 const std::string& prefix);

// Failures of every call, besides those named there: those of the store, and
//   kDataLoss            head, catalog or manifest is damaged or gone.
//   kFailedPrecondition  written by a newer program; and of calls with an epoch: another writer has
//                        taken over (it is named). Nothing was changed then.
class CatalogStore {
 public:
  explicit CatalogStore(StorePlace place);
  const StorePlace& place() const { return place_; }
  const std::string& name() const;  // the place, for messages

  // The present list; empty when nothing was published.
  Result<Catalog> Read(const Context& ctx);
  Result<StoreHead> ReadHead(const Context& ctx);
  // kNotFound when it was removed meanwhile.
  Result<Manifest> ReadManifest(const CatalogEntry& entry, const Context& ctx);

  // Raises the epoch and returns it: 1 for the first writer, and never less than `at_least` (for
  // who keeps the epochs of several stores equal). `owner` is for messages.
  Result<uint64_t> TakeOver(std::string_view owner, const Context& ctx, uint64_t at_least = 1);
  // OK while no other writer has taken over.
  Status CheckEpoch(uint64_t epoch, const Context& ctx);

  // Writes the manifest, checks that it and all of its files are there with the right length, and
  // publishes the checkpoint. Doing it again changes nothing. The files and their sums must be
  // durable before.
  //   kInvalidArgument  the manifest's epoch is not `epoch`, or it cannot be stored.
  //   kAlreadyExists    this attempt was published with another manifest.
  //   kDataLoss         a file is missing or has another length: names the file and its rank.
  Status Publish(uint64_t epoch, const Manifest& manifest, Level level, const Context& ctx);
  // The same for a checkpoint of another store (a drain): the manifest is that store's, `id` and
  // all. Its epoch may be any.
  Status PublishCopy(uint64_t epoch, const CatalogEntry& entry, Bytes manifest, Level level,
                     const Context& ctx);
  // kNotFound. Levels only rise; a lower one changes nothing.
  Status RaiseLevel(uint64_t epoch, const SaveId& id, Level level, const Context& ctx);
  // Takes checkpoints off the list; OK when one is not on it. Their files stay for the sweep.
  Status Remove(uint64_t epoch, std::span<const SaveId> ids, const Context& ctx);

 private:
  using Change = std::function<Result<bool>(Catalog*)>;  // false: nothing to do

  struct Present;  // head and catalog as they are just now
  Result<Present> ReadPresent(const Context& ctx);
  Status Update(uint64_t epoch, const Change& change, const Context& ctx);
  Status PublishEntry(uint64_t epoch, CatalogEntry entry, std::span<const FileEntry> files,
                      Bytes manifest, Level level, const Context& ctx);
  Result<std::string> ReadObject(const std::string& key, uint64_t bytes, const Hash128& hash,
                                 const Context& ctx);
  Status PutObject(const std::string& key, Bytes bytes, const Context& ctx);
  Status CheckFiles(std::span<const FileEntry> files, const Context& ctx);

  StorePlace place_;
};

}  // namespace headrace::checkpoint
