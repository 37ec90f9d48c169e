// Brings whole objects to the node's disk before a job starts. Stopped at any time and started
// again it goes on where it was, since what is there is not fetched again.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "headrace/cache/caching_store.h"

namespace headrace::cache {

struct WarmOptions {
  uint64_t in_flight_bytes = 128 << 20;
  uint64_t request_bytes = 16 << 20;  // asked for together
};

// May be read by other threads meanwhile.
struct WarmProgress {
  std::atomic<uint64_t> total_bytes{0};    // of the objects
  std::atomic<uint64_t> done_bytes{0};     // are on the disk now
  std::atomic<uint64_t> fetched_bytes{0};  // of these: fetched by this run
};

// Brings the objects, in the order given, and returns when they are on the disk.
//   kUnavailable        there is no cache on disk, or it stopped to work.
//   kResourceExhausted  the objects are larger than the cache's limit: nothing is fetched then; or
//                       there is no room besides what is pinned.
//   kCancelled, kDeadlineExceeded  from the Context; what was brought stays.
//   others              the origin's.
Status Warm(CachingStore* store, const std::vector<object::ObjectInfo>& objects,
            const WarmOptions& options, WarmProgress* progress, const Context& ctx);

}  // namespace headrace::cache
