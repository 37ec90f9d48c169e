// Collects the answers of requests that run at once. For tests only. Thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/net/http_client.h"

namespace headrace::net {

class HttpCollector {
 public:
  // A `done` whose answer will stand at the next place; places count from 0.
  HttpClient::Done Next() {
    MutexLock lock(&state_->mu);
    size_t place = state_->answers.size();
    state_->answers.push_back(Error(Code::kInternal, "no answer yet"));
    return [state = state_, place](Result<HttpResponse> answer) {
      MutexLock done(&state->mu);
      state->answers[place] = std::move(answer);
      ++state->num_done;
      state->cv.NotifyAll();
    };
  }
  // Waits until `count` answers came; returns all places.
  std::vector<Result<HttpResponse>> Wait(size_t count) {
    MutexLock lock(&state_->mu);
    while (state_->num_done < count) state_->cv.Wait(&state_->mu);
    return state_->answers;
  }
  // How often a `done` was called.
  size_t num_done() const {
    MutexLock lock(&state_->mu);
    return state_->num_done;
  }

 private:
  struct State {
    Mutex mu;
    CondVar cv;
    std::vector<Result<HttpResponse>> answers HR_GUARDED_BY(mu);
    size_t num_done HR_GUARDED_BY(mu) = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace headrace::net
