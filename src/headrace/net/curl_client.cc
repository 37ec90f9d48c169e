#include "headrace/net/curl_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace headrace::net {

namespace {

// How often contexts and progress are looked at: twice as often as promised.
constexpr std::chrono::milliseconds kCheckInterval{50};
constexpr std::chrono::milliseconds kIdleWait{60000};

}  // namespace

Result<std::unique_ptr<CurlLoop>> CurlLoop::Create(const CurlLibrary* curl,
                                                   const HttpClientOptions& options) {
  CURLM* multi = curl->multi_init();
  if (!multi) return Error(Code::kResourceExhausted, "no memory for an HTTP client");
  std::unique_ptr<CurlLoop> loop(new CurlLoop(curl, options, multi));
  HR_RETURN_IF_ERROR(loop->SetLimits());
  return loop;
}

CurlLoop::~CurlLoop() {
  if (multi_) curl_->multi_cleanup(multi_);
}

// The queue here keeps requests within the limits; these keep idle connections within them too.
Status CurlLoop::SetLimits() {
  const long connections = options_.max_connections;
  for (CURLMoption option : {CURLMOPT_MAXCONNECTS, CURLMOPT_MAX_TOTAL_CONNECTIONS}) {
    CURLMcode code = curl_->multi_setopt(multi_, option, connections);
    if (code != CURLM_OK)
      return Error(Code::kInternal, "libcurl {} refused a limit: {}", curl_->version,
                   curl_->multi_strerror(code));
  }
  return OkStatus();
}

void CurlLoop::Submit(TransferPtr transfer) {
  bool wake = false;
  {
    MutexLock lock(&mu_);
    submitted_.push_back(std::move(transfer));
    wake = std::exchange(waiting_for_news_, false);
  }
  if (wake) (void)curl_->multi_wakeup(multi_);
}

void CurlLoop::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  (void)curl_->multi_wakeup(multi_);  // under the lock: the thread ends the handle once it sees it
}

void CurlLoop::Run() {
  bool stopping = false;
  while (TakeSubmitted(&stopping), !stopping) {
    StartWaiting();
    const Clock::time_point asked = Clock::now();
    int num_running = 0;
    CURLMcode code = curl_->multi_perform(multi_, &num_running);
    if (code != CURLM_OK)
      EndAll(Error(Code::kInternal, "libcurl cannot go on: {}", curl_->multi_strerror(code)));
    bool ended = FinishEnded();
    Clock::time_point now = Clock::now();
    if (now >= next_check_) EndOverdue(asked, now);
    if (!ended) Wait(now);
  }
  // What a `done` submits from here on ends the same way.
  do EndAll(Error(Code::kCancelled, "the HTTP client is being closed"));
  while (TakeSubmitted(&stopping));
  for (CURL* easy : idle_handles_) curl_->easy_cleanup(easy);
  // Here, where SIGPIPE is blocked, since it says good-bye on encrypted connections.
  curl_->multi_cleanup(multi_);
  multi_ = nullptr;
}

// Returns true when there was something.
bool CurlLoop::TakeSubmitted(bool* stopping) {
  std::vector<TransferPtr> taken;
  {
    MutexLock lock(&mu_);
    taken.swap(submitted_);
    *stopping = stopping_;
  }
  for (TransferPtr& transfer : taken) Accept(std::move(transfer));
  return !taken.empty();
}

void CurlLoop::Accept(TransferPtr transfer) {
  Status wrong = transfer->Check();
  if (wrong.ok()) wrong = transfer->CheckContext(Clock::now());
  if (!wrong.ok()) return transfer->Fail(std::move(wrong));
  transfer->number = num_accepted_++;
  Origin& origin = origins_[transfer->origin()];
  origin.waiting.push_back(std::move(transfer));
  ++num_waiting_;
}

void CurlLoop::StartWaiting() {
  while (num_waiting_ > 0 && running_.size() < options_.max_connections) {
    Origin* origin = NextToStart();
    if (!origin) return;
    TransferPtr transfer = std::move(origin->waiting.front());
    origin->waiting.pop_front();
    --num_waiting_;
    ++origin->num_running;
    Start(std::move(transfer));
  }
}

// The server below its limit whose first waiting request came first; null when there is none.
CurlLoop::Origin* CurlLoop::NextToStart() {
  Origin* next = nullptr;
  for (auto& [name, origin] : origins_) {
    if (origin.waiting.empty() || origin.num_running >= options_.max_connections_per_host) continue;
    if (!next || origin.waiting.front()->number < next->waiting.front()->number) next = &origin;
  }
  return next;
}

void CurlLoop::Start(TransferPtr transfer) {
  CURL* easy = nullptr;
  if (idle_handles_.empty()) {
    easy = curl_->easy_init();
  } else {
    easy = idle_handles_.back();
    idle_handles_.pop_back();
  }
  CurlTransfer* started = transfer.get();
  started->slot = running_.size();
  running_.push_back(std::move(transfer));
  Status status = Error(Code::kResourceExhausted, "no memory for a transfer");
  if (easy) status = started->Start(*curl_, options_, easy);
  if (status.ok()) {
    CURLMcode code = curl_->multi_add_handle(multi_, easy);
    if (code == CURLM_OK) return;
    status = Error(Code::kInternal, "libcurl refused a transfer: {}", curl_->multi_strerror(code));
  }
  TakeRunning(started)->Fail(std::move(status));
}

// Takes a transfer off libcurl and out of the books.
CurlLoop::TransferPtr CurlLoop::TakeRunning(CurlTransfer* transfer) {
  if (CURL* easy = transfer->easy()) {
    (void)curl_->multi_remove_handle(multi_, easy);
    curl_->easy_reset(easy);
    idle_handles_.push_back(easy);
  }
  auto found = origins_.find(transfer->origin());
  if (--found->second.num_running == 0 && found->second.waiting.empty()) origins_.erase(found);
  size_t slot = transfer->slot;
  std::swap(running_[slot], running_.back());
  running_[slot]->slot = slot;
  TransferPtr taken = std::move(running_.back());
  running_.pop_back();
  return taken;
}

// Returns true when transfers ended.
bool CurlLoop::FinishEnded() {
  bool ended = false;
  int num_left = 0;
  while (CURLMsg* message = curl_->multi_info_read(multi_, &num_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURLcode code = message->data.result;
    CurlTransfer* transfer = nullptr;
    (void)curl_->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    TakeRunning(transfer)->Finish(code);
    ended = true;
  }
  return ended;
}

void CurlLoop::EndOverdue(Clock::time_point asked, Clock::time_point now) {
  next_check_ = now + kCheckInterval;
  std::vector<Ending> endings;
  for (auto at = origins_.begin(); at != origins_.end();) {
    Origin& origin = at->second;
    for (TransferPtr& transfer : origin.waiting) {
      Status status = transfer->CheckContext(now);
      if (!status.ok()) endings.push_back({std::move(transfer), std::move(status)});
    }
    num_waiting_ -= std::erase(origin.waiting, nullptr);
    at = origin.waiting.empty() && origin.num_running == 0 ? origins_.erase(at) : std::next(at);
  }
  for (size_t i = running_.size(); i-- > 0;) {
    Status status = running_[i]->CheckContext(now);
    if (status.ok()) status = running_[i]->CheckProgress(options_, asked);
    if (!status.ok()) endings.push_back({TakeRunning(running_[i].get()), std::move(status)});
  }
  for (Ending& ending : endings) ending.transfer->Fail(std::move(ending.status));
}

void CurlLoop::EndAll(const Status& status) {
  std::vector<TransferPtr> ended;
  while (!running_.empty()) ended.push_back(TakeRunning(running_.back().get()));
  for (auto& [name, origin] : origins_)
    for (TransferPtr& transfer : origin.waiting) ended.push_back(std::move(transfer));
  origins_.clear();
  num_waiting_ = 0;
  for (TransferPtr& transfer : ended) transfer->Fail(status);
}

// Sleeps until a connection has news, something is submitted, or it is time to look around.
void CurlLoop::Wait(Clock::time_point now) {
  {
    MutexLock lock(&mu_);
    if (!submitted_.empty() || stopping_) return;
    waiting_for_news_ = true;
  }
  std::chrono::milliseconds wait = kIdleWait;
  if (!running_.empty() || num_waiting_ > 0)
    wait = std::chrono::ceil<std::chrono::milliseconds>(next_check_ - now);
  (void)curl_->multi_poll(multi_, nullptr, 0, static_cast<int>(wait.count()), nullptr);
  MutexLock lock(&mu_);
  waiting_for_news_ = false;
}

Result<std::unique_ptr<HttpClient>> CurlClient::Create(const HttpClientOptions& options) {
  HR_ASSIGN_OR_RETURN(const CurlLibrary* curl, LoadCurl());
  std::unique_ptr<CurlClient> client(new CurlClient);
  HR_ASSIGN_OR_RETURN(client->loop_, CurlLoop::Create(curl, options));
  CurlLoop* loop = client->loop_.get();
  HR_ASSIGN_OR_RETURN(client->thread_, Thread::Start("hr-http", [loop] { loop->Run(); }));
  return client;
}

CurlClient::~CurlClient() {
  if (ForkGeneration() != fork_generation_) {
    // Of the parent: the thread, and what is said on the connections.
    [[maybe_unused]] auto* thread = thread_.release();
    [[maybe_unused]] auto* loop = loop_.release();
    return;
  }
  if (!thread_) return;
  loop_->Stop();
  thread_.reset();
}

void CurlClient::Submit(HttpRequest request, const Context& ctx, Done done) {
  if (ForkGeneration() != fork_generation_)
    return done(Error(Code::kFailedPrecondition,
                      "this HTTP client was made before fork(); its thread and connections belong "
                      "to the parent process. Make the client after the fork, or start the process "
                      "with spawn or forkserver"));
  loop_->Submit(std::make_unique<CurlTransfer>(std::move(request), ctx, std::move(done)));
}

}  // namespace headrace::net
