// What a trainer and its helper say to each other over a local socket: one JSON object asks, one
// answers, either may bring a descriptor. Internal to checkpoint: both sides are of one program,
// and the version keeps strangers apart. Pure functions, any thread.
//
// Requests, by "ask" (what is answered behind the arrow):
//   hello     -> version, process, epoch, newest, first_unready, first_pending, pending,
//                waits_for_ranks (the save and its world_size), idle, in_memory, arena_bytes, drain
//                (to the destination), peer_drain
//   expects   step, epoch, attempt -> expects: that save was handed in, or a trainer that still may
//                is there
//   open      settings -> arena_bytes; the arena's descriptor. Claims the helper for an epoch
//   borrow    bytes -> loan, offset, bytes; or busy
//   return    loan
//   submit    loan, stall_ns, restore_ns; the descriptor of the save's description, bytes -> number
//   look      number -> status of the save
//   arena     -> the arena's descriptor
//   memory    -> bytes; the descriptor of the index of what is in memory, which stays there until
//                the connection ends
//   stall     share;  deadline  seconds: for the drain
//   bye       the trainer needs it no more: it may end once all is drained
// A failure is answered with "error": its code and message.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "headrace/base/json.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/drain.h"
#include "headrace/checkpoint/save_keeper.h"
#include "headrace/checkpoint/tiers.h"

namespace headrace::checkpoint {

inline constexpr uint64_t kHelperProtocol = 2;

// What a trainer opens its helper with.
struct HelperSettings {
  TierSettings tiers;
  std::map<std::string, std::string> storage;  // of URLs; may hold secrets
  uint32_t rank = 0;
  uint64_t epoch = 0;
  uint64_t arena_bytes = 0;
  int threads = 1;
  bool reuse = true;
  uint64_t keep_last = 3, keep_every = 0;
  uint64_t drain_limit = 0;  // bytes a second; 0: none
  uint64_t publish_timeout_ms = 1'800'000;
  // How long it stays, for restoring from its memory, after a trainer that went without a word.
  uint64_t linger_ms = 900'000;

  Json ToJson() const;
  // kInvalidArgument.
  static Result<HelperSettings> FromJson(const Json& json);
  // Whether a helper of these settings can go on with others, but for epoch and arena.
  bool SameStores(const HelperSettings& other) const {
    return tiers == other.tiers && storage == other.storage && rank == other.rank &&
           threads == other.threads && reuse == other.reuse && keep_last == other.keep_last &&
           keep_every == other.keep_every && drain_limit == other.drain_limit &&
           publish_timeout_ms == other.publish_timeout_ms;
  }
};

// Where the helper of a rank listens: "<home>/helper/rank<rank>".
std::string HelperFolder(const std::string& home);
std::string HelperSocket(const std::string& home, uint32_t rank);
// Whoever drains or sweeps holds it: "<home>/drain.lock".
std::string DrainLock(const std::string& home);

Json ErrorJson(const Status& status);
// The failure that an answer tells; OK when it tells none.
Status ErrorOf(const Json& answer);

Json SaveIdJson(const SaveId& id);
Result<SaveId> SaveIdFromJson(const Json& json);
Json KeptStatusJson(const KeptStatus& status);
Result<KeptStatus> KeptStatusFromJson(const Json& json);
Json ProgressJson(const DrainProgress& progress);

}  // namespace headrace::checkpoint
