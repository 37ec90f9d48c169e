// How many bytes a peer holds, and whether there is room for more: what is written is reserved
// before and settled after, so that the bound holds at each moment. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/base/status.h"

namespace headrace::object {

class PeerLedger {
 public:
  explicit PeerLedger(uint64_t limit_bytes) : limit_(limit_bytes) {}

  // What a file takes on a disk: whole blocks, and one for its name.
  static uint64_t ChargeOf(uint64_t bytes);

  // kResourceExhausted: says how much there is and how much is wanted.
  Status Reserve(uint64_t charge);
  void Release(uint64_t charge);
  // An object is there that was reserved before; one that it replaced is there no more.
  void Settle(const std::string& key, uint64_t charge);
  // An object that was there at the start.
  void Add(const std::string& key, uint64_t charge);
  void Remove(const std::string& key);

  uint64_t used_bytes();
  uint64_t limit_bytes() const { return limit_; }

 private:
  void RemoveHeld(const std::string& key) HR_REQUIRES(mu_);

  const uint64_t limit_;
  Mutex mu_;  // leaf
  uint64_t used_ HR_GUARDED_BY(mu_) = 0;
  std::map<std::string, uint64_t> charges_ HR_GUARDED_BY(mu_);  // by key
};

}  // namespace headrace::object
