#include "headrace/cache/cache_admin.h"

#include <algorithm>
#include <map>

#include "headrace/base/text.h"

namespace headrace::cache {
namespace {
constexpr uint64_t kMaxDescriptorBytes = 64 << 10;
}  // namespace

std::string CachedObjectSummary::Name() const {
  if (!descriptor) return id.Hex();
  return descriptor->version.store + "/" + EscapeText(descriptor->version.key);
}

Result<std::unique_ptr<CacheAdmin>> CacheAdmin::Open(FileSystem* fs, const std::string& directory) {
  NodeCacheOptions options;
  options.directory = directory;
  options.create = false;
  HR_ASSIGN_OR_RETURN(auto cache, NodeCache::Open(fs, options, Context()));
  if (!cache->healthy())
    return Error(Code::kUnavailable, "the cache {} cannot be used: is its disk there and writable?",
                 EscapeText(directory));
  return std::unique_ptr<CacheAdmin>(new CacheAdmin(std::move(cache)));
}

Result<std::vector<CachedObjectSummary>> CacheAdmin::List(const Context& ctx) {
  HR_ASSIGN_OR_RETURN(CacheContents contents, Contents());
  std::map<ObjectId, CachedObjectSummary> objects;
  for (const BlockId& block : contents.blocks) {
    CachedObjectSummary& object = objects[block.object];
    object.blocks += 1;
    object.bytes += block.length;
  }
  for (const ObjectId& pinned : contents.pinned) objects[pinned].pinned = true;
  std::vector<CachedObjectSummary> list;
  for (auto& [id, object] : objects) {
    HR_RETURN_IF_ERROR(ctx.Check());
    object.id = id;
    auto text = cache_->files()->ReadWhole(cache_->paths().Descriptor(id), kMaxDescriptorBytes);
    if (text.ok()) {
      auto descriptor = ParseDescriptor(*text);
      if (descriptor.ok()) object.descriptor = *std::move(descriptor);
    }
    list.push_back(std::move(object));
  }
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
    std::string its_name = object.Name();
    bool matches = prefix ? its_name.starts_with(wanted) : its_name == wanted;
    return !matches && object.id.Hex() != name;
  });
  if (!objects.empty()) return objects;
  return Error(Code::kNotFound, "nothing of '{}' is cached; 'headrace cache ls' lists what is",
               EscapeText(name));
}

Status CacheAdmin::VerifyBlock(const BlockId& id, std::string* buffer, CacheVerifyReport* report,
                               const Context& ctx) {
  buffer->resize(id.length);
  Status status =
      cache_->Read(id, 0, std::as_writable_bytes(std::span(buffer->data(), id.length)), ctx);
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
  HR_ASSIGN_OR_RETURN(CacheContents contents, Contents());
  std::string buffer;
  for (const BlockId& id : contents.blocks)
    HR_RETURN_IF_ERROR(VerifyBlock(id, &buffer, report, ctx));
  return OkStatus();
}

Status CacheAdmin::Pin(const ObjectId& id) {
  HR_RETURN_IF_ERROR(cache_->files()->MakeDirectories(JoinPath(cache_->paths().root(), "pins")));
  return cache_->files()->WriteAtomically(cache_->paths().Pin(id), {});
}

Status CacheAdmin::Unpin(const ObjectId& id) {
  Status status = cache_->files()->Remove(cache_->paths().Pin(id));
  return status.code() == Code::kNotFound ? OkStatus() : status;
}

Result<uint64_t> CacheAdmin::Remove(const ObjectId& id, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(CacheContents contents, Contents());
  uint64_t bytes = 0;
  for (const BlockId& block : contents.blocks) {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (block.object == id && cache_->Drop(block)) bytes += block.length;
  }
  return bytes;
}

Result<uint64_t> CacheAdmin::Clear(const Context& ctx) {
  HR_ASSIGN_OR_RETURN(CacheContents contents, Contents());
  uint64_t bytes = 0;
  for (const ObjectId& pinned : contents.pinned) HR_RETURN_IF_ERROR(Unpin(pinned));
  for (const BlockId& block : contents.blocks) {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (cache_->Drop(block)) bytes += block.length;
  }
  // A walk for room removes the descriptors of what has gone.
  HR_RETURN_IF_ERROR(cache_->MakeRoom(cache_->limit_bytes() + 1).status());
  return bytes;
}

}  // namespace headrace::cache
