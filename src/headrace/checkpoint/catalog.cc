#include "headrace/checkpoint/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/env/process.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/pause.h"

namespace headrace::checkpoint {
namespace {

using object::GetRequest;
using object::ObjectInfo;
using object::ObjectStore;

constexpr std::string_view kHeadKey = "head";
constexpr uint64_t kMaxCatalogBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 34;
constexpr size_t kHeadsAtOnce = 512;  // objects that are asked for at once
// A reader that comes upon a catalog that is gone, or a writer that was beaten, begins anew.
constexpr int kMaxTries = 1000;
constexpr std::chrono::milliseconds kLongestPause(50);

std::chrono::nanoseconds PauseAfter(int tries) {
  return std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(tries / 4), kLongestPause);
}

// Asks for the sizes of many objects at once, and waits for all answers.
class SizeQuestions {
 public:
  // Sizes, or why not; in the order of the keys.
  static std::vector<Result<ObjectInfo>> Ask(ObjectStore* store, std::vector<std::string> keys,
                                             const Context& ctx) {
    SizeQuestions questions(keys.size());
    std::vector<GetRequest> requests(keys.size());
    std::vector<ObjectStore::GetDone> dones;
    for (size_t i = 0; i < keys.size(); ++i) {
      requests[i].key = std::move(keys[i]);
      dones.emplace_back(
          [&questions, i](Result<ObjectInfo> info) { questions.Answer(i, std::move(info)); });
    }
    store->SubmitGets(std::move(requests), std::move(dones), ctx);
    return questions.Wait();
  }

 private:
  explicit SizeQuestions(size_t count)
      : open_(count), answers_(count, Result<ObjectInfo>(ObjectInfo())) {}

  void Answer(size_t i, Result<ObjectInfo> info) {
    MutexLock lock(&mu_);
    answers_[i] = std::move(info);
    if (--open_ == 0) answered_.NotifyAll();
  }
  std::vector<Result<ObjectInfo>> Wait() {
    MutexLock lock(&mu_);
    while (open_ > 0) answered_.Wait(&mu_);
    return std::move(answers_);
  }

  Mutex mu_;
  CondVar answered_;
  size_t open_ HR_GUARDED_BY(mu_);
  std::vector<Result<ObjectInfo>> answers_ HR_GUARDED_BY(mu_);
};

// Makes a folder and those above it so that their names survive a power cut.
Status MakeDurableFolder(FileSystem* fs, const std::string& folder) {
  std::vector<std::string> above;  // in which a name is made
  for (std::string path = folder; !fs->Exists(path);) {
    const std::string parent(DirectoryName(path));
    if (parent == path) break;
    above.push_back(parent);
    path = parent;
  }
  HR_RETURN_IF_ERROR(fs->MakeDirectories(folder));
  for (const std::string& path : above) HR_RETURN_IF_ERROR(fs->SyncDirectory(path));
  // Another process may have made it and died before that. Best effort: the folder above may be one
  // that may not be read.
  if (above.empty()) (void)fs->SyncDirectory(std::string(DirectoryName(folder)));
  return OkStatus();
}

Status TakenOver(std::string_view store, uint64_t epoch, const StoreHead& head) {
  return Error(Code::kFailedPrecondition,
               "another writer has taken over {}: it has epoch {} ('{}'), this one has {}. Nothing "
               "was changed; open the store again to take it back",
               store, head.epoch, EscapeText(head.owner), epoch);
}

}  // namespace

struct CatalogStore::Present {
  StoreHead head;
  std::string version;  // of the ref; empty when it was never set
  Catalog catalog;
};

Result<StorePlace> StoreInFolder(FileSystem* fs, const std::string& folder) {
  HR_RETURN_IF_ERROR(MakeDurableFolder(fs, folder));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> store,
                      object::OpenDirStore(folder, {.fs = fs, .open_files = 0}));
  return StorePlace{std::move(store), "", object::MakeFileRef(fs, JoinPath(folder, kHeadKey))};
}

Result<StorePlace> StoreInBucket(std::shared_ptr<ObjectStore> store, const std::string& prefix) {
  std::string folder = prefix;
  if (!folder.empty() && folder.back() != '/') folder += '/';
  HR_ASSIGN_OR_RETURN(std::unique_ptr<object::Ref> head,
                      object::MakeObjectRef(store, folder + std::string(kHeadKey)));
  return StorePlace{std::move(store), std::move(folder), std::move(head)};
}

CatalogStore::CatalogStore(StorePlace place) : place_(std::move(place)) {}

const std::string& CatalogStore::name() const { return place_.head->name(); }

Result<Catalog> CatalogStore::Read(const Context& ctx) {
  HR_ASSIGN_OR_RETURN(Present present, ReadPresent(ctx));
  return std::move(present.catalog);
}

Result<StoreHead> CatalogStore::ReadHead(const Context& ctx) {
  Result<object::Ref::Value> value = place_.head->Read(ctx);
  if (value.status().code() == Code::kNotFound) return StoreHead();
  if (!value.ok()) return std::move(value).status();
  return StoreHead::FromJson(value->content, name());
}

Result<CatalogStore::Present> CatalogStore::ReadPresent(const Context& ctx) {
  Status gone;
  std::string version_gone;  // of the head whose catalog is not there
  for (int tries = 0; tries < kMaxTries; ++tries) {
    Result<object::Ref::Value> value = place_.head->Read(ctx);
    if (value.status().code() == Code::kNotFound) return Present();
    if (!value.ok()) return std::move(value).status();
    Present present;
    HR_ASSIGN_OR_RETURN(present.head, StoreHead::FromJson(value->content, name()));
    present.version = value->version;
    if (present.head.catalog.empty()) return present;
    if (present.head.catalog_bytes > kMaxCatalogBytes)
      return Error(Code::kDataLoss, "{} names a catalog of {} bytes", name(),
                   present.head.catalog_bytes);
    Result<std::string> text = ReadObject(present.head.catalog, present.head.catalog_bytes,
                                          present.head.catalog_hash, ctx);
    if (text.ok()) {
      HR_ASSIGN_OR_RETURN(present.catalog, Catalog::FromJson(*text, present.head.catalog));
      return present;
    }
    if (text.status().code() != Code::kNotFound) return std::move(text).status();
    // It may have been swept since another one took its place.
    if (present.version == version_gone)
      return Error(Code::kDataLoss, "{} names a catalog that is not there: {}", name(),
                   text.status().message());
    version_gone = present.version;
    gone = std::move(text).status();
  }
  return Error(Code::kUnavailable, "{} is replaced all the time: {}", name(), gone.message());
}

Result<std::string> CatalogStore::ReadObject(const std::string& key, uint64_t bytes,
                                             const Hash128& hash, const Context& ctx) {
  std::string content(bytes, '\0');
  GetRequest request{.key = place_.prefix + key, .offset = 0, .out = {}, .if_match = {}};
  request.out = std::as_writable_bytes(std::span(content));
  Result<ObjectInfo> got = place_.store->Get(std::move(request), ctx);
  const bool too_short = got.status().code() == Code::kOutOfRange;
  if (!got.ok() && !too_short) return std::move(got).status();
  if (too_short || HashOf(AsBytes(content)) != hash)
    return Error(Code::kDataLoss, "{} in {} is damaged: {} bytes with hash {} were expected, {}",
                 key, place_.store->name(), bytes, hash.Hex(),
                 too_short ? "it is shorter" : "its bytes are others");
  return content;
}

Status CatalogStore::PutObject(const std::string& key, Bytes bytes, const Context& ctx) {
  // Without a condition: what is there already has the same bytes, since the name comes from them,
  // but may have been left by a process that died before it was durable.
  HR_RETURN_IF_ERROR(place_.store->Put(place_.prefix + key, bytes, {}, ctx).status());
  return ReadObject(key, bytes.size(), HashOf(bytes), ctx).status();
}

Result<Manifest> CatalogStore::ReadManifest(const CatalogEntry& entry, const Context& ctx) {
  if (entry.manifest_bytes > kMaxManifestBytes)
    return Error(Code::kDataLoss, "the catalog of {} speaks of a manifest of {} bytes", name(),
                 entry.manifest_bytes);
  HR_ASSIGN_OR_RETURN(std::string bytes,
                      ReadObject(entry.manifest, entry.manifest_bytes, entry.manifest_hash, ctx));
  return DecodeManifest(AsBytes(bytes), entry.manifest);
}

Result<uint64_t> CatalogStore::TakeOver(std::string_view owner, const Context& ctx,
                                        uint64_t at_least) {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    Result<object::Ref::Value> value = place_.head->Read(ctx);
    if (!value.ok() && value.status().code() != Code::kNotFound) return std::move(value).status();
    StoreHead head;
    if (value.ok()) {
      HR_ASSIGN_OR_RETURN(head, StoreHead::FromJson(value->content, name()));
    }
    head.epoch = std::max(head.epoch + 1, at_least);
    head.owner = owner;
    Result<std::string> swapped =
        place_.head->Swap(value.ok() ? value->version : std::string(), AsBytes(head.ToJson()), ctx);
    if (swapped.ok()) return head.epoch;
    if (swapped.status().code() != Code::kFailedPrecondition) return std::move(swapped).status();
    HR_RETURN_IF_ERROR(object::PauseFor(PauseAfter(tries), ctx));
  }
  return Error(Code::kUnavailable, "{} is replaced all the time", name());
}

Status CatalogStore::CheckEpoch(uint64_t epoch, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(const StoreHead head, ReadHead(ctx));
  if (head.epoch == epoch) return OkStatus();
  return TakenOver(name(), epoch, head);
}

Status CatalogStore::Update(uint64_t epoch, const Change& change, const Context& ctx) {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    HR_ASSIGN_OR_RETURN(Present present, ReadPresent(ctx));
    if (present.head.epoch != epoch) return TakenOver(name(), epoch, present.head);
    HR_ASSIGN_OR_RETURN(const bool changed, change(&present.catalog));
    if (!changed) return OkStatus();
    ++present.catalog.sequence;
    const std::string text = present.catalog.ToJson();
    StoreHead& head = present.head;
    head.catalog_bytes = text.size();
    head.catalog_hash = HashOf(AsBytes(text));
    head.catalog =
        fmt::format("catalogs/{:012}-{}.json", present.catalog.sequence, head.catalog_hash.Hex());
    HR_RETURN_IF_ERROR(PutObject(head.catalog, AsBytes(text), ctx));
    Result<std::string> swapped = place_.head->Swap(present.version, AsBytes(head.ToJson()), ctx);
    if (swapped.ok()) return OkStatus();
    if (swapped.status().code() != Code::kFailedPrecondition) return std::move(swapped).status();
    HR_RETURN_IF_ERROR(object::PauseFor(PauseAfter(tries), ctx));
  }
  return Error(Code::kUnavailable, "{} is replaced all the time", name());
}

Status CatalogStore::CheckFiles(std::span<const FileEntry> files, const Context& ctx) {
  for (size_t begin = 0; begin < files.size(); begin += kHeadsAtOnce) {
    const auto part = files.subspan(begin, std::min(kHeadsAtOnce, files.size() - begin));
    std::vector<std::string> keys;
    for (const FileEntry& file : part) {
      keys.push_back(place_.prefix + file.DataKey());
      keys.push_back(place_.prefix + file.SumsKey());
    }
    const auto infos = SizeQuestions::Ask(place_.store.get(), keys, ctx);
    for (size_t i = 0; i < infos.size(); ++i) {
      const FileEntry& file = part[i / 2];
      const std::string key = i % 2 == 0 ? file.DataKey() : file.SumsKey();
      const uint64_t expected = i % 2 == 0 ? file.bytes : ChunkSumsBytes(file.bytes);
      if (infos[i].status().code() == Code::kNotFound)
        return Error(Code::kDataLoss, "{} of rank {} is not in {}: the checkpoint is not published",
                     key, file.rank, place_.store->name());
      if (!infos[i].ok()) return infos[i].status();
      if (infos[i]->size_bytes != expected)
        return Error(Code::kDataLoss,
                     "{} of rank {} in {} has {} bytes, not {}: the checkpoint is not published",
                     key, file.rank, place_.store->name(), infos[i]->size_bytes, expected);
    }
  }
  return OkStatus();
}

Status CatalogStore::Publish(uint64_t epoch, const Manifest& manifest, Level level,
                             const Context& ctx) {
  if (manifest.info.id.epoch != epoch)
    return Error(Code::kInvalidArgument, "{} is not of epoch {}", manifest.info.id.Text(), epoch);
  HR_ASSIGN_OR_RETURN(const std::string bytes, EncodeManifest(manifest));
  CatalogEntry entry;
  entry.id = manifest.info.id;
  entry.manifest_bytes = bytes.size();
  entry.manifest_hash = HashOf(AsBytes(bytes));
  entry.manifest = ManifestKey(entry.id, entry.manifest_hash);
  entry.kind = manifest.info.kind;
  entry.stall_ns = manifest.info.stall_ns;
  entry.restore_ns = manifest.info.restore_ns;
  // Only of those that were measured; the clock may have been set back meanwhile.
  if (entry.stall_ns > 0)
    entry.save_ns =
        static_cast<uint64_t>(std::max<int64_t>(WallClockNanos() - manifest.info.started_ns, 0));
  entry.data_bytes = manifest.data_bytes();
  for (const FileEntry& file : manifest.files) entry.new_bytes += file.carried ? 0 : file.bytes;
  return PublishEntry(epoch, std::move(entry), manifest.files, AsBytes(bytes), level, ctx);
}

Status CatalogStore::PublishCopy(uint64_t epoch, const CatalogEntry& entry, Bytes manifest,
                                 Level level, const Context& ctx) {
  if (manifest.size() != entry.manifest_bytes || HashOf(manifest) != entry.manifest_hash)
    return Error(Code::kDataLoss, "the manifest of {} that is to be copied to {} is damaged",
                 entry.id.Text(), name());
  HR_ASSIGN_OR_RETURN(const Manifest decoded, DecodeManifest(manifest, entry.manifest));
  return PublishEntry(epoch, entry, decoded.files, manifest, level, ctx);
}

Status CatalogStore::PublishEntry(uint64_t epoch, CatalogEntry entry,
                                  std::span<const FileEntry> files, Bytes manifest, Level level,
                                  const Context& ctx) {
  HR_RETURN_IF_ERROR(CheckEpoch(epoch, ctx));  // before anything is written
  HR_RETURN_IF_ERROR(CheckFiles(files, ctx));
  HR_RETURN_IF_ERROR(PutObject(entry.manifest, manifest, ctx));
  entry.level = level;
  entry.published_ns = WallClockNanos();
  auto add = [this, &entry](Catalog* catalog) -> Result<bool> {
    if (const CatalogEntry* there = catalog->Find(entry.id)) {
      if (there->manifest_hash == entry.manifest_hash) return false;
      return Error(Code::kAlreadyExists,
                   "{} was published in {} before, with other content: save it as a new attempt",
                   entry.id.Text(), name());
    }
    const auto behind =
        std::find_if(catalog->entries.begin(), catalog->entries.end(),
                     [&entry](const CatalogEntry& other) { return Newer(other.id, entry.id); });
    catalog->entries.insert(behind, entry);
    return true;
  };
  return Update(epoch, add, ctx);
}

Status CatalogStore::RaiseLevel(uint64_t epoch, const SaveId& id, Level level, const Context& ctx) {
  auto raise = [this, &id, level](Catalog* catalog) -> Result<bool> {
    for (CatalogEntry& entry : catalog->entries) {
      if (entry.id != id) continue;
      if (entry.level >= level) return false;
      entry.level = level;
      return true;
    }
    return Error(Code::kNotFound, "{} has no checkpoint of {}", name(), id.Text());
  };
  return Update(epoch, raise, ctx);
}

Status CatalogStore::Remove(uint64_t epoch, std::span<const SaveId> ids, const Context& ctx) {
  auto remove = [ids](Catalog* catalog) -> Result<bool> {
    return std::erase_if(catalog->entries, [ids](const CatalogEntry& entry) {
             return std::find(ids.begin(), ids.end(), entry.id) != ids.end();
           }) > 0;
  };
  return Update(epoch, remove, ctx);
}

}  // namespace headrace::checkpoint
