// A store around another one that tries again what failed with kUnavailable, and nothing else. The
// only level where requests are retried. Thread-safe, also in forked children. Destroying it ends
// reads that wait for their next try (kCancelled) and waits for those that run.
//
// Between two tries it waits a random time of up to first_pause, twice that, and so on up to
// longest_pause (exponential back-off with full jitter), until the budget of the call or the
// context's deadline is used up. Then the last failure is told, with how often it was tried. Where
// the failure says how long to stay away (Status::retry_after) that time is added; should it go
// beyond the budget, the last try is made when the budget ends.
//
// A write whose answer was lost may have been done. So each Put with a condition carries a mark
// (Abilities::put_mark), and one that fails by its condition after such a try is looked up: where
// the object has this mark, it succeeded, and where it has another one, the write was not done or
// has been replaced since. Where the store keeps no marks the object's bytes are compared: two
// writers of the same bytes may then both think they were first. The end of an upload is settled in
// that way, by size and CRC32C. A lost StartUpload leaves an upload behind that ListUploads finds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/object/object_store.h"

namespace headrace::object {

struct RetryOptions {
  std::chrono::nanoseconds first_pause = std::chrono::milliseconds(50);
  std::chrono::nanoseconds longest_pause = std::chrono::seconds(5);
  // Of one call, from its first try on; no try begins after it.
  std::chrono::nanoseconds budget = std::chrono::seconds(120);
  // Both not owned: counts tries after the first, and adds up the time before them.
  std::atomic<uint64_t>* num_retries = nullptr;
  std::atomic<uint64_t>* back_off_ns = nullptr;

  // The world outside, for tests to replace; empty: the real one.
  std::function<Context::Clock::time_point()> now = {};
  std::function<double()> random = {};  // in [0, 1)
  std::function<Status(std::chrono::nanoseconds, const Context&)> pause = {};
  // Runs the function after the time, on another thread.
  std::function<void(std::chrono::nanoseconds, std::function<void()>)> run_after = {};
};

std::shared_ptr<ObjectStore> MakeRetryingStore(std::shared_ptr<ObjectStore> store,
                                               const RetryOptions& options = {});

}  // namespace headrace::object
