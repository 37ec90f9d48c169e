// How much of an object is on the node's disk already. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "headrace/cache/caching_store.h"

namespace headrace::cache {

struct Presence {
  uint64_t size_bytes = 0;     // of the object
  uint64_t present_bytes = 0;  // of these: in blocks that are on the disk
  uint64_t missing_bytes() const { return size_bytes - present_bytes; }
};

// Asks the origin for the object where it is not known yet, and then looks for each block's file;
// nothing is read. `here` is told each block that is there. Failures are those of
// CachingStore::Find; without a cache that works nothing is present.
Result<Presence> LookFor(CachingStore* store, const std::string& key, const Context& ctx,
                         const std::function<void(const BlockId&)>& here = {});

}  // namespace headrace::cache
