#include "headrace/env/uring_reader.h"

#include <linux/io_uring.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace headrace {

namespace {

constexpr uint64_t kWakeTag = 0;

enum : size_t { kRequests, kAnswers, kEntries };  // of mappings_

// A word of the rings; the kernel reads and writes it too.
std::atomic_ref<uint32_t> WordAt(void* ring, uint32_t offset) {
  return std::atomic_ref<uint32_t>(
      *reinterpret_cast<uint32_t*>(static_cast<std::byte*>(ring) + offset));
}

Status CannotHave(int error) {
  switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrnoError(error, "cannot set up io_uring");
    case EPERM:
    case EACCES:
      return Error(Code::kUnimplemented,
                   "io_uring is forbidden here (by sysctl kernel.io_uring_disabled or the "
                   "container's rules); HEADRACE_IO=threads does without");
    default:
      return Error(Code::kUnimplemented,
                   "this kernel has no io_uring ({}); HEADRACE_IO=threads does without",
                   std::strerror(error));
  }
}

}  // namespace

UringQueue::UringQueue() : parameters_(std::make_unique<io_uring_params>()) {}

Result<std::unique_ptr<UringQueue>> UringQueue::Create(uint32_t entries) {
  std::unique_ptr<UringQueue> queue(new UringQueue);
  long fd = ::syscall(__NR_io_uring_setup, std::bit_ceil(entries), queue->parameters_.get());
  if (fd < 0) return CannotHave(errno);
  queue->ring_ = Descriptor(static_cast<int>(fd));
  HR_RETURN_IF_ERROR(queue->Map());
  return queue;
}

Status UringQueue::Map() {
  const io_uring_params& p = *parameters_;
  const std::pair<size_t, off_t> wanted[] = {
      {p.sq_off.array + p.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING},
      {p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING},
      {p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES}};
  for (size_t i = 0; i < mappings_.size(); ++i) {
    auto [bytes, offset] = wanted[i];
    void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                         ring_.get(), offset);
    if (start == MAP_FAILED) return CannotHave(errno);
    mappings_[i] = {start, bytes};
  }
  return OkStatus();
}

UringQueue::~UringQueue() {
  for (const Mapping& mapping : mappings_)
    if (mapping.start) ::munmap(mapping.start, mapping.bytes);
}

io_uring_sqe* UringQueue::NextEntry() {
  const auto& at = parameters_->sq_off;
  void* ring = mappings_[kRequests].start;
  uint32_t tail = WordAt(ring, at.tail).load(std::memory_order_relaxed);
  uint32_t place = tail & WordAt(ring, at.ring_mask).load(std::memory_order_relaxed);
  auto* entry = static_cast<io_uring_sqe*>(mappings_[kEntries].start) + place;
  std::memset(entry, 0, sizeof(*entry));
  WordAt(ring, at.array + place * static_cast<uint32_t>(sizeof(uint32_t)))
      .store(place, std::memory_order_relaxed);
  // The kernel looks at it in Enter and not before.
  WordAt(ring, at.tail).store(tail + 1, std::memory_order_release);
  ++num_added_;
  return entry;
}

void UringQueue::AddRead(ReadProgress* read, uint64_t tag) {
  io_uring_sqe* entry = NextEntry();
  entry->opcode = IORING_OP_READV;
  entry->fd = read->descriptor();
  entry->off = read->offset();
  entry->addr = reinterpret_cast<uint64_t>(read->vectors());
  entry->len = read->num_vectors();
  entry->user_data = tag;
  if (read->may_wait()) entry->flags = IOSQE_ASYNC;
}

void UringQueue::AddPoll(int descriptor, uint64_t tag) {
  io_uring_sqe* entry = NextEntry();
  entry->opcode = IORING_OP_POLL_ADD;
  entry->fd = descriptor;
  entry->poll_events = 1;  // POLLIN
  entry->user_data = tag;
}

int UringQueue::Enter() {
  long n = ::syscall(__NR_io_uring_enter, ring_.get(), num_added_, 1, IORING_ENTER_GETEVENTS,
                     nullptr, 0);
  if (n < 0) return errno;
  num_added_ -= static_cast<uint32_t>(n);
  return 0;
}

bool UringQueue::Take(uint64_t* tag, int32_t* answer) {
  const auto& at = parameters_->cq_off;
  void* ring = mappings_[kAnswers].start;
  uint32_t head = WordAt(ring, at.head).load(std::memory_order_relaxed);
  if (head == WordAt(ring, at.tail).load(std::memory_order_acquire)) return false;
  uint32_t place = head & WordAt(ring, at.ring_mask).load(std::memory_order_relaxed);
  const auto* entries = reinterpret_cast<io_uring_cqe*>(static_cast<std::byte*>(ring) + at.cqes);
  *tag = entries[place].user_data;
  *answer = entries[place].res;
  WordAt(ring, at.head).store(head + 1, std::memory_order_release);
  return true;
}

// ---------------------------------------------------------------- reader

Result<std::unique_ptr<UringReader>> UringReader::Create(const Options& options) {
  HR_ASSIGN_OR_RETURN(auto queue, UringQueue::Create(options.depth + 1));
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoError(errno, "cannot set up io_uring");
  // Some sandboxes make the rings and do nothing with them.
  uint64_t one = 1, tag = 0;
  if (::write(wake.get(), &one, sizeof(one)) != sizeof(one))
    return ErrnoError(errno, "cannot set up io_uring");
  queue->AddPoll(wake.get(), kWakeTag);
  int error;
  do {
    error = queue->Enter();
  } while (error == EINTR);
  int32_t answer = -ENOSYS;
  if (error != 0) return CannotHave(error);
  if (!queue->Take(&tag, &answer) || answer < 0) return CannotHave(-answer);
  return std::unique_ptr<UringReader>(new UringReader(options, std::move(queue), std::move(wake)));
}

UringReader::UringReader(const Options& options, std::unique_ptr<UringQueue> queue, Descriptor wake)
    : options_(options), others_(options), queue_(std::move(queue)), wake_(std::move(wake)) {}

UringReader::~UringReader() {
  std::unique_ptr<Thread> thread;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  Wake();
  thread.reset();
}

void UringReader::Wake() {
  uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void UringReader::Submit(std::vector<AsyncRead> reads) {
  std::vector<AsyncRead> by_threads;
  std::deque<ReadProgress> refused;
  Status why;
  bool wake;
  {
    MutexLock lock(&mu_);
    for (AsyncRead& read : reads) {
      if (read.file->descriptor() < 0) {
        by_threads.push_back(std::move(read));
      } else {
        waiting_.emplace_back(std::move(read));
      }
    }
    if (!started_ && !waiting_.empty()) {
      auto thread = Thread::Start("hr-uring", [this] { Run(); });
      if (thread.ok()) {
        thread_ = *std::move(thread);
        started_ = true;
      } else {
        refused.swap(waiting_);
        why = std::move(thread).status();
      }
    }
    wake = !waiting_.empty() && !woken_;
    woken_ |= wake;
  }
  if (wake) Wake();
  if (!by_threads.empty()) others_.Submit(std::move(by_threads));
  for (ReadProgress& read : refused) {
    read.Fail(why);
    read.Finish();
  }
}

// ---- the thread ----

void UringReader::Run() {
  while (TakeWork()) {
    if (!listening_) queue_->AddPoll(wake_.get(), kWakeTag);
    listening_ = true;
    int error = queue_->Enter();
    // EAGAIN, EBUSY: the kernel has no room at the moment. What was added stays so.
    if (error != 0 && error != EINTR) {
      Mutex mu;
      CondVar never;
      MutexLock lock(&mu);
      never.WaitFor(&mu, std::chrono::milliseconds(1));
    }
    TakeAnswers();
  }
}

bool UringReader::TakeWork() {
  std::deque<ReadProgress> mine;
  bool stopping;
  {
    MutexLock lock(&mu_);
    woken_ = false;
    while (!waiting_.empty() && under_way_.size() + mine.size() < options_.depth) {
      mine.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    stopping = stopping_ && waiting_.empty();
  }
  for (ReadProgress& read : mine) {
    uint64_t tag = next_tag_++;
    under_way_.emplace(tag, std::move(read));
    Ask(tag);
  }
  return !stopping || !under_way_.empty();
}

void UringReader::Ask(uint64_t tag) { queue_->AddRead(&under_way_.at(tag), tag); }

void UringReader::TakeAnswers() {
  uint64_t tag;
  int32_t answer;
  while (queue_->Take(&tag, &answer)) {
    if (tag == kWakeTag) {
      listening_ = false;
      uint64_t count;
      while (::read(wake_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
      }
      continue;
    }
    ReadProgress& read = under_way_.at(tag);
    if (!read.TakeAnswer(options_.alter_answer ? options_.alter_answer(answer) : answer)) {
      Ask(tag);
      continue;
    }
    auto ended = under_way_.extract(tag);
    ended.mapped().Finish();
  }
}

}  // namespace headrace
