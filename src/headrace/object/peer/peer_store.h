// What another node keeps for this one, `headrace ckpt serve` there: a driver of ObjectStore, which
// see. Every byte is checked against its CRC32C on both sides, before it counts there and before it
// is given out here. Nothing is encrypted. A peer that is gone, slow, full or lying costs each call
// a bounded time, and the failure names it. No retries. Thread-safe; a forked child makes
// connections of its own.
//
// Failures, besides those of ObjectStore: kUnavailable for a peer that cannot be reached, is slower
// than 1 MiB a second, or says what makes no sense; kPermissionDenied for a token that is missing
// or wrong; kResourceExhausted for one that is full; kInvalidArgument for a Put of more than 64
// MiB.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

struct PeerStoreOptions {
  std::string token;     // as the peer's; empty: none
  uint32_t threads = 8;  // that read at once
  // For one step of an exchange, besides 1 s for each MiB.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

// `authority` is ADDRESS:PORT. Asks nothing of the peer yet. kInvalidArgument: no numeric address.
Result<std::shared_ptr<ObjectStore>> OpenPeerStore(const std::string& authority,
                                                   const PeerStoreOptions& options);

}  // namespace headrace::object
