// Objects that come to a peer in parts. Internal to object/peer. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/object/object_store.h"
#include "headrace/object/peer/peer_ledger.h"

namespace headrace::object {

class PeerUploads {
 public:
  // Both must outlive it.
  PeerUploads(ObjectStore* store, PeerLedger* ledger) : store_(store), ledger_(ledger) {}

  // Returns its id. Those that nobody has sent a part of for an hour are given up.
  // kResourceExhausted: too many are under way.
  Result<std::string> Start(const std::string& key, const Context& ctx);
  // kNotFound: it has ended, or belongs to another key.
  Status PutPart(const std::string& id, const std::string& key, uint64_t number, Bytes data,
                 const Context& ctx);
  // The parts are copied into one, which needs its room twice for so long.
  Result<std::string> Complete(const std::string& id, const std::string& key, uint64_t num_parts,
                               const Context& ctx);
  Status Abort(const std::string& id, const Context& ctx);
  std::vector<PendingUpload> List(const std::string& prefix);

 private:
  struct Pending {
    PendingUpload about;
    std::shared_ptr<Upload> upload;
    std::map<uint64_t, uint64_t> charges;  // of the parts, by number
    Context::Clock::time_point used;
  };

  Result<std::shared_ptr<Upload>> Find(const std::string& id, const std::string& key);
  void Book(const std::string& id, uint64_t number, uint64_t charge);
  std::shared_ptr<Upload> Take(const std::string& id);
  void GiveUpOld();
  uint64_t ChargeOf(const std::string& id);

  ObjectStore* const store_;
  PeerLedger* const ledger_;
  Mutex mu_;                                                   // the ledger's is taken under it
  std::map<std::string, Pending> pending_ HR_GUARDED_BY(mu_);  // by id
};

}  // namespace headrace::object
