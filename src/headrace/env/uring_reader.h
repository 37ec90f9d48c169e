// The driver of AsyncReader over io_uring. Internal to env. Thread-safe.
//
// One thread of its own gives reads to the kernel and takes its answers, so that no read depends on
// the life of the thread that asked for it.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/async_read.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/process.h"
#include "headrace/env/read_progress.h"
#include "headrace/env/thread_reader.h"

struct io_uring_params;
struct io_uring_sqe;

namespace headrace {

// The rings that are shared with the kernel. For one thread at a time.
class UringQueue {
 public:
  //   kUnimplemented      the kernel has no io_uring, or forbids it: says why.
  //   kResourceExhausted  no memory or descriptors.
  static Result<std::unique_ptr<UringQueue>> Create(uint32_t entries);
  ~UringQueue();
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  // Adds a request that the next Enter hands over; `tag` comes back with its answer. No more than
  // the entries asked for may be under way.
  void AddRead(ReadProgress* read, uint64_t tag);
  void AddPoll(int descriptor, uint64_t tag);
  // Hands over what was added and waits for an answer. Returns 0 or an errno.
  int Enter();
  // Takes an answer, if there is one.
  bool Take(uint64_t* tag, int32_t* answer);

 private:
  struct Mapping {
    void* start = nullptr;
    size_t bytes = 0;
  };
  UringQueue();
  Status Map();
  io_uring_sqe* NextEntry();

  Descriptor ring_;
  std::array<Mapping, 3> mappings_;
  std::unique_ptr<io_uring_params> parameters_;
  uint32_t num_added_ = 0;  // and not handed over yet
};

class UringReader final : public AsyncReader {
 public:
  // Failures are those of UringQueue::Create.
  static Result<std::unique_ptr<UringReader>> Create(const Options& options);
  ~UringReader() override;
  void Submit(std::vector<AsyncRead> reads) override;
  Driver driver() const override { return Driver::kUring; }

 private:
  UringReader(const Options& options, std::unique_ptr<UringQueue> queue, Descriptor wake);
  void Wake();
  void Run();
  // True while there is something to do.
  bool TakeWork();
  void Ask(uint64_t tag);
  void TakeAnswers();

  const Options options_;
  ThreadReader others_;  // reads files without a descriptor
  const std::unique_ptr<UringQueue> queue_;
  const Descriptor wake_;  // an eventfd: written to when there is news for the thread

  // Of the thread.
  std::unordered_map<uint64_t, ReadProgress> under_way_;
  uint64_t next_tag_ = 1;
  bool listening_ = false;

  Mutex mu_;  // order: none is taken under it; no I/O. The thread is started under it
  std::deque<ReadProgress> waiting_ HR_GUARDED_BY(mu_);
  bool woken_ HR_GUARDED_BY(mu_) = false;
  bool started_ HR_GUARDED_BY(mu_) = false, stopping_ HR_GUARDED_BY(mu_) = false;
  std::unique_ptr<Thread> thread_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace
