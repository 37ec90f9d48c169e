#include "headrace/cache/presence.h"

namespace headrace::cache {

Result<Presence> LookFor(CachingStore* store, const std::string& key, const Context& ctx,
                         const std::function<void(const BlockId&)>& here) {
  HR_ASSIGN_OR_RETURN(auto object, store->Find(key, ctx));
  Presence found{.size_bytes = object->version.size_bytes};
  BlockCache* cache = store->cache();
  if (!cache || !cache->node()) return found;
  for (uint64_t number = 0; number < object->num_blocks(); ++number) {
    HR_RETURN_IF_ERROR(ctx.Check());
    BlockId id = object->Block(number);
    if (!cache->node()->Contains(id)) continue;
    found.present_bytes += id.length;
    if (here) here(id);
  }
  return found;
}

}  // namespace headrace::cache
