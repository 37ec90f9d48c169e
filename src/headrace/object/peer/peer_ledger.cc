#include "headrace/object/peer/peer_ledger.h"

#include "headrace/base/text.h"

namespace headrace::object {

uint64_t PeerLedger::ChargeOf(uint64_t bytes) {
  constexpr uint64_t kBlock = 4096;
  return (bytes + kBlock - 1) / kBlock * kBlock + kBlock;
}

Status PeerLedger::Reserve(uint64_t charge) {
  MutexLock lock(&mu_);
  if (used_ <= limit_ && charge <= limit_ - used_) {
    used_ += charge;
    return OkStatus();
  }
  return Error(Code::kResourceExhausted,
               "it is full: {} of {} are taken and {} more are needed; give it more (--size), or "
               "keep fewer checkpoints",
               FormatSize(used_), FormatSize(limit_), FormatSize(charge));
}

void PeerLedger::Release(uint64_t charge) {
  MutexLock lock(&mu_);
  used_ -= charge;
}

void PeerLedger::RemoveHeld(const std::string& key) {
  const auto at = charges_.find(key);
  if (at == charges_.end()) return;
  used_ -= at->second;
  charges_.erase(at);
}

void PeerLedger::Settle(const std::string& key, uint64_t charge) {
  MutexLock lock(&mu_);
  RemoveHeld(key);
  charges_[key] = charge;
}

void PeerLedger::Add(const std::string& key, uint64_t charge) {
  MutexLock lock(&mu_);
  RemoveHeld(key);
  charges_[key] = charge;
  used_ += charge;
}

void PeerLedger::Remove(const std::string& key) {
  MutexLock lock(&mu_);
  RemoveHeld(key);
}

uint64_t PeerLedger::used_bytes() {
  MutexLock lock(&mu_);
  return used_;
}

}  // namespace headrace::object
