// An object version that is read through the cache: which it is, and where it comes from.
// Immutable.
#pragma once

#include <memory>

#include "headrace/cache/block_format.h"
#include "headrace/object/object_store.h"

namespace headrace::cache {

struct CachedObject {
  std::shared_ptr<object::ObjectStore> origin;
  object::ObjectInfo info;
  ObjectVersion version;
  ObjectId id;
  uint32_t block_bytes = kDefaultBlockBytes;

  BlockId Block(uint64_t number) const {
    return BlockOf(id, version.size_bytes, block_bytes, number);
  }
  uint64_t num_blocks() const { return (version.size_bytes + block_bytes - 1) / block_bytes; }
};

}  // namespace headrace::cache
