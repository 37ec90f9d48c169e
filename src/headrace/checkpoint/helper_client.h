// A trainer's side of its helper process, over a local socket. Thread-safe; calls go one after the
// other. In a forked child every call fails with kFailedPrecondition: the child connects anew.
//
// Failures of every call, besides those named there: kUnavailable when the helper is gone, with all
// it had in memory only; kFailedPrecondition when another process has taken over.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/context.h"
#include "headrace/base/json.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/helper_protocol.h"
#include "headrace/checkpoint/memory_index.h"
#include "headrace/checkpoint/rank_writer.h"
#include "headrace/env/local_socket.h"
#include "headrace/env/shared_memory.h"

namespace headrace::checkpoint {

class HelperClient {
 public:
  // kNotFound: no helper runs for this store and rank. kFailedPrecondition: one of another version.
  static Result<std::unique_ptr<HelperClient>> Connect(const std::string& home, uint32_t rank);

  // What the helper tells of itself: see helper_protocol.h.
  Result<Json> Hello();
  // Waits until all saves that it holds now can be restored, or never will be: so a trainer that
  // follows another one takes what that one saved last. With `published` until they are published
  // or never will be, which must be waited for before their epoch ends. A save of several ranks
  // never will be when one of them has died before it handed it in. kDeadlineExceeded, kCancelled.
  Status Settle(bool published, const Context& ctx);

  // Claims the helper for an epoch that the caller took at all tiers (TakeOverTiers), and maps its
  // arena. Takes as long as touching the memory does. As rank 0 the first of all ranks.
  Status Open(const HelperSettings& settings);
  uint64_t arena_bytes() const { return arena_ == nullptr ? 0 : arena_->bytes().size(); }

  // Room in the arena. Comes back when destroyed, unless it was handed in; must not outlive the
  // client.
  class Loan {
   public:
    Loan() = default;
    ~Loan() { Return(); }
    Loan(Loan&& other) noexcept { *this = std::move(other); }
    Loan& operator=(Loan&& other) noexcept;
    MutableBytes bytes() const { return bytes_; }
    void Return();

   private:
    friend class HelperClient;
    HelperClient* client_ = nullptr;
    uint64_t number_ = 0;
    MutableBytes bytes_;
  };
  // Waits for room. kDeadlineExceeded, kCancelled; kResourceExhausted: more than the arena has.
  Result<Loan> Borrow(uint64_t bytes, const Context& ctx);
  // Hands in a save whose bytes lie in `loan`; from then on it survives this process. Returns its
  // number. save.info.id's epoch and attempt are set here.
  Result<uint64_t> Submit(RankSave save, Loan loan);

  Result<KeptStatus> Look(uint64_t number);
  // Waits until the save has reached `level`, or fails as it did. kDeadlineExceeded (with what the
  // drain last failed with), kCancelled, kNotFound.
  Result<KeptStatus> Wait(uint64_t number, Level level, const Context& ctx);

  // For the drain: the loader's input stall lately as a share of the time, and when the next save
  // comes.
  Status ReportStall(double share);
  Status SetDeadline(double seconds);
  // The helper may end when all is drained.
  Status Bye();

 private:
  friend class HelperMemory;
  HelperClient(std::unique_ptr<LocalSocket> socket, std::string home, uint32_t rank);
  Result<Json> Ask(const Json& request, std::chrono::seconds limit, int send = -1,
                   int* got = nullptr);
  bool MayBeWhole(const Json& hello);

  const uint64_t fork_;
  const std::string home_;
  const uint32_t rank_;
  std::unique_ptr<SharedMemory> arena_;  // set by Open
  uint64_t epoch_ = 0;                   // set by Open

  Mutex mu_;
  std::unique_ptr<LocalSocket> socket_ HR_GUARDED_BY(mu_);
  Status broken_ HR_GUARDED_BY(mu_);
  std::map<uint64_t, uint64_t> attempts_ HR_GUARDED_BY(mu_);  // by step
};

// What a helper has in memory, mapped; it stays there while this lives.
class HelperMemory {
 public:
  // Empty when there is no helper, or none that has anything. Waits as HelperClient::Settle.
  static Result<std::unique_ptr<HelperMemory>> Read(const std::string& home, uint32_t rank,
                                                    const Context& ctx);
  const MemoryContent& content() const { return content_; }

 private:
  HelperMemory() = default;
  std::unique_ptr<HelperClient> client_;
  std::unique_ptr<SharedMemory> arena_, index_;
  MemoryContent content_;  // last: refers to those
};

}  // namespace headrace::checkpoint
