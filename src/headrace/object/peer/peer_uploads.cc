#include "headrace/object/peer/peer_uploads.h"

#include <chrono>
#include <limits>
#include <utility>

#include "headrace/env/process.h"
#include "headrace/object/object_key.h"

namespace headrace::object {
namespace {

constexpr size_t kMostPending = 256;
constexpr std::chrono::minutes kForgotten(15);

// A number of a part, or of parts, as Upload takes it; 0 for one that is none there either.
uint32_t PartNumber(uint64_t number) {
  return number > std::numeric_limits<uint32_t>::max() ? 0 : static_cast<uint32_t>(number);
}

}  // namespace

Result<std::string> PeerUploads::Start(const std::string& key, const Context& ctx) {
  GiveUpOld();
  Pending fresh;
  fresh.about = {key, RandomToken(), WallClockNanos()};
  fresh.used = Context::Clock::now();
  {
    MutexLock lock(&mu_);
    if (pending_.size() >= kMostPending)
      return Error(Code::kResourceExhausted, "{} objects are being sent already", pending_.size());
  }
  HR_ASSIGN_OR_RETURN(fresh.upload, store_->StartUpload(key, ctx));
  std::string id = fresh.about.id;
  MutexLock lock(&mu_);
  pending_.emplace(id, std::move(fresh));
  return id;
}

Result<std::shared_ptr<Upload>> PeerUploads::Find(const std::string& id, const std::string& key) {
  MutexLock lock(&mu_);
  const auto at = pending_.find(id);
  if (at == pending_.end() || at->second.about.key != key)
    return Error(Code::kNotFound, "no upload of {} is under way under this id",
                 ObjectName(store_->name(), key));
  at->second.used = Context::Clock::now();
  return at->second.upload;
}

// What was reserved for a part belongs to its upload now, or to nobody where that has ended.
void PeerUploads::Book(const std::string& id, uint64_t number, uint64_t charge) {
  MutexLock lock(&mu_);
  const auto at = pending_.find(id);
  if (at == pending_.end()) return ledger_->Release(charge);
  uint64_t& held = at->second.charges[number];
  ledger_->Release(std::exchange(held, charge));
}

Status PeerUploads::PutPart(const std::string& id, const std::string& key, uint64_t number,
                            Bytes data, const Context& ctx) {
  GiveUpOld();
  HR_ASSIGN_OR_RETURN(const auto upload, Find(id, key));
  const uint64_t charge = PeerLedger::ChargeOf(data.size());
  HR_RETURN_IF_ERROR(ledger_->Reserve(charge));
  Status put = upload->PutPart(PartNumber(number), data, ctx);
  if (put.ok())
    Book(id, number, charge);
  else
    ledger_->Release(charge);
  return put;
}

uint64_t PeerUploads::ChargeOf(const std::string& id) {
  MutexLock lock(&mu_);
  const auto at = pending_.find(id);
  uint64_t charge = 0;
  if (at != pending_.end())
    for (const auto& [number, part] : at->second.charges) charge += part;
  return charge;
}

Result<std::string> PeerUploads::Complete(const std::string& id, const std::string& key,
                                          uint64_t num_parts, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(const auto upload, Find(id, key));
  const uint64_t charge = ChargeOf(id);
  HR_RETURN_IF_ERROR(ledger_->Reserve(charge));
  auto etag = upload->Complete(PartNumber(num_parts), ctx);
  if (!etag.ok()) {
    ledger_->Release(charge);
    return etag;
  }
  ledger_->Settle(key, charge);
  (void)Take(id);
  return etag;
}

// Ends it here, and gives back what was reserved for its parts.
std::shared_ptr<Upload> PeerUploads::Take(const std::string& id) {
  MutexLock lock(&mu_);
  const auto at = pending_.find(id);
  if (at == pending_.end()) return nullptr;
  for (const auto& [number, charge] : at->second.charges) ledger_->Release(charge);
  auto upload = std::move(at->second.upload);
  pending_.erase(at);
  return upload;
}

Status PeerUploads::Abort(const std::string& id, const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  const auto upload = Take(id);
  return upload == nullptr ? OkStatus() : upload->Abort(ctx);
}

void PeerUploads::GiveUpOld() {
  const auto since = Context::Clock::now() - kForgotten;
  std::vector<std::string> old;
  {
    MutexLock lock(&mu_);
    for (const auto& [id, pending] : pending_)
      if (pending.used < since) old.push_back(id);
  }
  for (const std::string& id : old) (void)Abort(id, {});
}

std::vector<PendingUpload> PeerUploads::List(const std::string& prefix) {
  MutexLock lock(&mu_);
  std::vector<PendingUpload> found;
  for (const auto& [id, pending] : pending_)
    if (pending.about.key.starts_with(prefix)) found.push_back(pending.about);
  return found;
}

}  // namespace headrace::object
