#include "headrace/env/thread_reader.h"

#include <sys/uio.h>

#include <cerrno>
#include <utility>

namespace headrace {

ThreadReader::~ThreadReader() {
  std::vector<std::unique_ptr<Thread>> threads;
  {
    MutexLock lock(&mu_);
    while (num_unfinished_ > 0) idle_cv_.Wait(&mu_);
    stopping_ = true;
    threads.swap(threads_);
    work_cv_.NotifyAll();
  }
  threads.clear();
}

void ThreadReader::Submit(std::vector<AsyncRead> reads) {
  std::deque<ReadProgress> refused;
  Status why;
  {
    MutexLock lock(&mu_);
    for (AsyncRead& read : reads) waiting_.emplace_back(std::move(read));
    num_unfinished_ += reads.size();
    StartThreads();
    if (threads_.empty()) {
      refused.swap(waiting_);
      why = no_thread_;
    }
    work_cv_.NotifyAll();
  }
  for (ReadProgress& read : refused) {
    read.Fail(why);
    Finish(&read);
  }
}

// With at least one thread the others are a matter of speed.
void ThreadReader::StartThreads() {
  while (waiting_.size() > num_idle_ && threads_.size() < options_.threads) {
    auto thread = Thread::Start("hr-read", [this] { Run(); });
    if (!thread.ok()) {
      no_thread_ = std::move(thread).status();
      return;
    }
    threads_.push_back(*std::move(thread));
    ++num_idle_;  // as good as
  }
}

void ThreadReader::Run() {
  while (true) {
    std::deque<ReadProgress> mine;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !stopping_) work_cv_.Wait(&mu_);
      if (waiting_.empty()) return;
      mine.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      --num_idle_;
    }
    ReadNow(&mine.front());
    Finish(&mine.front());
    MutexLock lock(&mu_);
    ++num_idle_;
  }
}

// What `done` submits is counted before this one no longer is.
void ThreadReader::Finish(ReadProgress* read) {
  read->Finish();
  MutexLock lock(&mu_);
  if (--num_unfinished_ == 0) idle_cv_.NotifyAll();
}

void ThreadReader::ReadNow(ReadProgress* read) const {
  if (read->descriptor() < 0) return read->ReadByFile();
  int64_t answer;
  do {
    answer = ::preadv(read->descriptor(), read->vectors(), static_cast<int>(read->num_vectors()),
                      static_cast<off_t>(read->offset()));
    if (answer < 0) answer = -errno;
    if (options_.alter_answer) answer = options_.alter_answer(answer);
  } while (!read->TakeAnswer(answer));
}

}  // namespace headrace
