#include "storage.h"

#include <utility>

#include "errors.h"
#include "headrace/env/console.h"

namespace headrace::python {

cache::StorageSettings ReadStorage(const std::map<std::string, std::string>& options) {
  return Unwrap(cache::ReadStorageSettings(options, [](const std::string& line) {
    // From threads that Python knows nothing of, maybe while it ends: so not through `logging`.
    WriteStderr(AsBytes("headrace: " + line + "\n"));
  }));
}

nanobind::dict ToDict(const cache::CacheCounters& counters) {
  const cache::NodeCacheCounters& node = counters.node;
  nanobind::dict dict;
  for (const auto& [name, value] : {std::pair("memory_hits", counters.memory_hits),
                                    std::pair("disk_hits", counters.disk_hits),
                                    std::pair("misses", counters.misses),
                                    std::pair("memory_bytes", counters.memory_bytes),
                                    std::pair("disk_bytes", counters.disk_bytes),
                                    std::pair("origin_bytes", counters.origin_bytes),
                                    std::pair("origin_requests", counters.origin_requests),
                                    std::pair("streamed_bytes", counters.streamed_bytes),
                                    std::pair("waits", counters.waits),
                                    std::pair("hedges", counters.hedges),
                                    std::pair("hedge_bytes", counters.hedge_bytes),
                                    std::pair("prefetched_bytes", counters.prefetched_bytes),
                                    std::pair("unused_bytes", counters.unused_bytes),
                                    std::pair("admitted_blocks", node.admitted_blocks),
                                    std::pair("admitted_bytes", node.admitted_bytes),
                                    std::pair("refused_blocks", node.refused_blocks),
                                    std::pair("dropped_blocks", node.dropped_blocks),
                                    std::pair("evicted_blocks", node.evicted_blocks),
                                    std::pair("evicted_bytes", node.evicted_bytes),
                                    std::pair("read_failures", node.read_failures),
                                    std::pair("write_failures", node.write_failures),
                                    std::pair("degraded", node.degraded)})
    dict[name] = value.value();
  return dict;
}

}  // namespace headrace::python
