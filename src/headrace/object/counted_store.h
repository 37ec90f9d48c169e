// A store around another one that counts what is asked of it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "headrace/base/stage_timer.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// Each may be read at any time. They only grow.
struct StoreCounters {
  std::atomic<uint64_t> gets{0};    // reads with bytes
  std::atomic<uint64_t> heads{0};   // Head, and reads without bytes
  std::atomic<uint64_t> lists{0};   // pages
  std::atomic<uint64_t> writes{0};  // Put, PutPart, Complete, Delete and the like
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> throttled{0};  // of these: refused because too much was asked (429, 503)
  std::atomic<uint64_t> bytes_read{0}, bytes_written{0};  // of calls that succeeded
  std::atomic<uint64_t> busy_ns{0};  // between call and answer, summed over all calls
  // By RetryingStore, where it is given them: tries after the first, and the time before them,
  // summed over all calls.
  std::atomic<uint64_t> retries{0}, back_off_ns{0};
  // The same calls one by one: reads are of the stage "fetch", heads and lists of "meta", writes of
  // "copy". Bytes are those of calls that succeeded.
  SharedStageRecorder stages;
};

std::shared_ptr<ObjectStore> MakeCountedStore(std::shared_ptr<ObjectStore> store,
                                              std::shared_ptr<StoreCounters> counters);

}  // namespace headrace::object
