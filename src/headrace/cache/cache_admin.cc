#include "headrace/cache/cache_admin.h"

#include <algorithm>
#include <map>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::cache {
namespace {
constexpr uint64_t kMaxDescriptorBytes = 64 << 10;
constexpr std::string_view kAt = " at ";  // "s3://bucket at http://host"
}  // namespace

std::string CachedObjectSummary::Url() const {
  if (!descriptor) return id.Hex();
  const std::string& store = descriptor->version.store;
  return store.substr(0, store.find(kAt)) + "/" + EscapeText(descriptor->version.key);
}

std::string CachedObjectSummary::Name() const {
  if (!descriptor) return id.Hex();
  const std::string& store = descriptor->version.store;
  const size_t at = store.find(kAt);
  return Url() + (at == std::string::npos ? "" : store.substr(at));
}

Result<std::unique_ptr<CacheAdmin>> CacheAdmin::Open(FileSystem* fs,
                                                     const std::string& directories) {
  NodeCacheOptions options;
  options.directory = directories;
  options.create = false;
  HR_ASSIGN_OR_RETURN(auto cache, DiskTier::Open(fs, options, Context()));
  if (!cache->healthy())
    return Error(Code::kUnavailable, "the cache {} cannot be used: is its disk there and writable?",
                 EscapeText(directories));
  return std::unique_ptr<CacheAdmin>(new CacheAdmin(std::move(cache)));
}

std::vector<NodeCache*> CacheAdmin::Working() const {
  std::vector<NodeCache*> working;
  for (const auto& disk : cache_->disks())
    if (disk->healthy()) working.push_back(disk.get());
  return working;
}

void CacheAdmin::ReadDescriptor(const NodeCache& disk, CachedObjectSummary* object) {
  auto text = disk.files()->ReadWhole(disk.paths().Descriptor(object->id), kMaxDescriptorBytes);
  if (!text.ok()) return;
  auto descriptor = ParseDescriptor(*text);
  if (descriptor.ok()) object->descriptor = *std::move(descriptor);
}

Result<std::vector<CachedObjectSummary>> CacheAdmin::List(const Context& ctx) {
  std::map<ObjectId, CachedObjectSummary> objects;
  for (NodeCache* disk : Working()) {
    HR_ASSIGN_OR_RETURN(CacheContents contents, ContentsOf(*disk));
    for (const BlockId& block : contents.blocks) {
      CachedObjectSummary& object = objects[block.object];
      object.blocks += 1;
      object.bytes += block.length;
    }
    for (const ObjectId& pinned : contents.pinned) objects[pinned].pinned = true;
    for (auto& [id, object] : objects) {
      HR_RETURN_IF_ERROR(ctx.Check());
      object.id = id;
      if (!object.descriptor) ReadDescriptor(*disk, &object);
    }
  }
  std::vector<CachedObjectSummary> list;
  for (auto& [id, object] : objects) list.push_back(std::move(object));
  std::stable_sort(list.begin(), list.end(),
                   [](const CachedObjectSummary& a, const CachedObjectSummary& b) {
                     return a.Name() < b.Name();
                   });
  return list;
}

Result<std::vector<CachedObjectSummary>> CacheAdmin::Find(const std::string& name,
                                                          const Context& ctx) {
  HR_ASSIGN_OR_RETURN(std::vector<CachedObjectSummary> objects, List(ctx));
  std::string_view wanted = name;
  bool prefix = wanted.ends_with('*');
  if (prefix) wanted.remove_suffix(1);
  std::erase_if(objects, [&](const CachedObjectSummary& object) {
    const std::string url = object.Url();
    bool matches = prefix ? url.starts_with(wanted) : url == wanted || object.Name() == wanted;
    return !matches && object.id.Hex() != name;
  });
  if (!objects.empty()) return objects;
  return Error(Code::kNotFound, "nothing of '{}' is cached; 'headrace cache ls' lists what is",
               EscapeText(name));
}

Status CacheAdmin::VerifyBlock(NodeCache* disk, const BlockId& id, std::string* buffer,
                               CacheVerifyReport* report, const Context& ctx) {
  buffer->resize(id.length);
  Status status = disk->Read(id, 0, std::as_writable_bytes(std::span(*buffer)), ctx);
  if (status.code() == Code::kNotFound) return OkStatus();  // evicted meanwhile
  if (status.code() == Code::kDataLoss) {
    report->damaged += 1;
    status = OkStatus();
  }
  report->blocks += 1;
  report->bytes += id.length;
  return status;
}

Status CacheAdmin::Verify(CacheVerifyReport* report, const Context& ctx) {
  std::string buffer;
  std::vector<std::pair<NodeCache*, CacheContents>> all;
  for (NodeCache* disk : Working()) {
    HR_ASSIGN_OR_RETURN(CacheContents contents, ContentsOf(*disk));
    for (const BlockId& id : contents.blocks) report->total_bytes += id.length;
    all.emplace_back(disk, std::move(contents));
  }
  for (const auto& [disk, contents] : all)
    for (const BlockId& id : contents.blocks)
      HR_RETURN_IF_ERROR(VerifyBlock(disk, id, &buffer, report, ctx));
  return OkStatus();
}

Result<std::vector<SideFileEntry>> CacheAdmin::SideFiles() {
  std::vector<SideFileEntry> all;
  for (NodeCache* disk : Working()) {
    HR_ASSIGN_OR_RETURN(auto files, ListSideFiles(disk->files(), disk->paths()));
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

// In every directory, since each may have blocks of it.
Status CacheAdmin::Pin(const ObjectId& id) {
  for (NodeCache* disk : Working()) {
    HR_RETURN_IF_ERROR(disk->files()->MakeDirectories(JoinPath(disk->paths().root(), "pins")));
    HR_RETURN_IF_ERROR(disk->files()->WriteAtomically(disk->paths().Pin(id), {}));
  }
  return OkStatus();
}

Status CacheAdmin::Unpin(const ObjectId& id) {
  for (NodeCache* disk : Working()) {
    Status status = disk->files()->Remove(disk->paths().Pin(id));
    if (!status.ok() && status.code() != Code::kNotFound) return status;
  }
  return OkStatus();
}

Result<uint64_t> CacheAdmin::Remove(const ObjectId& id, const Context& ctx) {
  uint64_t bytes = 0;
  for (NodeCache* disk : Working()) {
    HR_ASSIGN_OR_RETURN(CacheContents contents, ContentsOf(*disk));
    for (const BlockId& block : contents.blocks) {
      HR_RETURN_IF_ERROR(ctx.Check());
      if (block.object == id && disk->Drop(block)) bytes += block.length;
    }
  }
  return bytes;
}

Result<uint64_t> CacheAdmin::Clear(const Context& ctx) {
  uint64_t bytes = 0;
  for (NodeCache* disk : Working()) {
    HR_ASSIGN_OR_RETURN(CacheContents contents, ContentsOf(*disk));
    for (const ObjectId& pinned : contents.pinned) HR_RETURN_IF_ERROR(Unpin(pinned));
    for (const BlockId& block : contents.blocks) {
      HR_RETURN_IF_ERROR(ctx.Check());
      if (disk->Drop(block)) bytes += block.length;
    }
    for (const SideFileEntry& side : contents.side_files) {
      if (!RemoveSideFile(disk->files(), disk->paths(), side.id)) continue;
      disk->UncountSide(side.cost);
      bytes += side.cost;
    }
    // A walk for room removes the descriptors of what has gone.
    HR_RETURN_IF_ERROR(disk->MakeRoom(disk->limit_bytes() + 1).status());
  }
  return bytes;
}

}  // namespace headrace::cache
