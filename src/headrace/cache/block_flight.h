// What BlockCache has under way. Internal to it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/cache/block_cache.h"

namespace headrace::cache {

// A call of BlockCache::Read. Ends when all its parts are settled.
struct BlockCache::Request {
  std::shared_ptr<const CachedObject> object;
  Context ctx;
  ReadDone done;
  std::atomic<uint64_t> pending{0};  // parts
  Mutex mu;                          // order: none is taken under it
  Status status HR_GUARDED_BY(mu);   // the first failure
};

// The bytes that a request wants of one block. Settled exactly once, by whoever holds it.
struct BlockCache::Part {
  std::shared_ptr<Request> request;
  BlockId id;
  uint32_t offset = 0;  // in the block
  MutableBytes out;
  int tries = 0;

  uint64_t object_offset() const { return id.number * request->object->block_bytes + offset; }
};

// Who asked for a block ahead, and as which of those that were asked for together.
struct BlockCache::Prefetching {
  std::shared_ptr<const FetchDone> done;
  size_t place;
};

// One block being fetched, and all who wait for it. In BlockCache::flights_ until it is admitted or
// has failed. Members from `parts` on are guarded by BlockCache::mu_.
struct BlockCache::Flight {
  std::shared_ptr<const CachedObject> object;
  BlockId id;
  bool by_prefetch = false;                 // nobody waited for it when it began
  std::unique_ptr<NodeCache::Claim> claim;  // of the thread that drives the flight

  std::vector<Part> parts;
  std::vector<Prefetching> prefetching;
  ExpectedUse use;
  Displace displace = Displace::kFarther;
  std::optional<uint64_t> needed_until;  // by a plan, in memory too
  bool was_read = false;
  std::shared_ptr<const BlockBytes> bytes;  // once fetched
  uint64_t waiting_since_ms = 0;            // for another process; 0: not
};

// Neighbouring blocks fetched in one request, or in two when the first is late. Members from `open`
// on are guarded by BlockCache::mu_.
struct BlockCache::Run {
  std::vector<FlightPtr> flights;
  uint64_t offset = 0, length = 0;
  std::array<std::atomic<bool>, 2> cancelled{};

  std::array<std::shared_ptr<const BufferPool::Buffer>, 2> buffers;
  int open = 0;  // requests
  bool hedged = false, decided = false;
  int winner = 0;
  uint64_t submitted_ns = 0;
};

}  // namespace headrace::cache
