// The HttpClient on libcurl's multi interface. One thread drives all transfers; requests beyond the
// limits of connections wait here, in the order in which they came.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"
#include "headrace/net/curl_library.h"
#include "headrace/net/curl_transfer.h"
#include "headrace/net/http_client.h"

namespace headrace::net {

// What the client's thread works on. Apart from the client, since in a forked child it is left as
// it was: the lock may be held and the connections are the parent's.
class CurlLoop {
 public:
  static Result<std::unique_ptr<CurlLoop>> Create(const CurlLibrary* curl,
                                                  const HttpClientOptions& options);
  ~CurlLoop();

  // From any thread.
  void Submit(std::unique_ptr<CurlTransfer> transfer) HR_EXCLUDES(mu_);
  void Stop() HR_EXCLUDES(mu_);
  // What the thread runs, until Stop(): then ends all transfers.
  void Run() HR_EXCLUDES(mu_);

 private:
  using Clock = Context::Clock;
  using TransferPtr = std::unique_ptr<CurlTransfer>;
  struct Origin {
    std::deque<TransferPtr> waiting;
    uint32_t num_running = 0;
  };
  struct Ending {
    TransferPtr transfer;
    Status status;
  };

  CurlLoop(const CurlLibrary* curl, const HttpClientOptions& options, CURLM* multi)
      : curl_(curl), options_(options), multi_(multi) {}
  Status SetLimits();
  bool TakeSubmitted(bool* stopping) HR_EXCLUDES(mu_);
  void Accept(TransferPtr transfer);
  void StartWaiting();
  Origin* NextToStart();
  void Start(TransferPtr transfer);
  bool FinishEnded();
  void EndOverdue(Clock::time_point asked, Clock::time_point now);
  void EndAll(const Status& status);
  void Wait(Clock::time_point now) HR_EXCLUDES(mu_);
  TransferPtr TakeRunning(CurlTransfer* transfer);

  const CurlLibrary* const curl_;
  const HttpClientOptions options_;
  CURLM* multi_;

  Mutex mu_;  // leaf; nothing but queueing under it
  std::vector<TransferPtr> submitted_ HR_GUARDED_BY(mu_);
  bool stopping_ HR_GUARDED_BY(mu_) = false;
  bool waiting_for_news_ HR_GUARDED_BY(mu_) = false;  // the thread sleeps, or is about to

  // From here on of the thread alone.
  std::map<std::string, Origin> origins_;
  std::vector<TransferPtr> running_;
  std::vector<CURL*> idle_handles_;
  uint64_t num_accepted_ = 0;
  uint64_t num_waiting_ = 0;
  Clock::time_point next_check_{};
};

class CurlClient final : public HttpClient {
 public:
  static Result<std::unique_ptr<HttpClient>> Create(const HttpClientOptions& options);
  ~CurlClient() override;

  void Submit(HttpRequest request, const Context& ctx, Done done) override;

 private:
  CurlClient() = default;
  const uint64_t fork_generation_ = ForkGeneration();
  std::unique_ptr<CurlLoop> loop_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace headrace::net
