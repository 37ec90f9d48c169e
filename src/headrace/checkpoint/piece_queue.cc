#include "headrace/checkpoint/piece_queue.h"

#include <chrono>
#include <utility>

namespace headrace::checkpoint {
namespace {

constexpr std::chrono::milliseconds kLook{100};  // at the context, while waiting

}  // namespace

Result<PieceQueue::Turn> PieceQueue::Take(const Context& ctx) {
  MutexLock lock(&mu_);
  for (;;) {
    if (stopped_) return Turn();
    if (!read_.empty()) {
      Turn turn = std::move(read_.front());
      read_.pop_front();
      return turn;
    }
    if (next_ < count_ && under_way_ < depth_) {
      ++under_way_;
      Turn turn{Turn::Kind::kRead, next_++, nullptr, {}};
      if (!idle_.empty()) {
        turn.memory = std::move(idle_.back());
        idle_.pop_back();
      }
      return turn;
    }
    if (next_ == count_ && under_way_ == 0) return Turn();
    HR_RETURN_IF_ERROR(ctx.Check());
    changed_.WaitFor(&mu_, kLook);
  }
}

void PieceQueue::Read(size_t piece, DirectMemory memory, Status read) {
  MutexLock lock(&mu_);
  read_.push_back({Turn::Kind::kCheck, piece, std::move(memory), std::move(read)});
  changed_.NotifyOne();
}

void PieceQueue::Done(DirectMemory memory) {
  MutexLock lock(&mu_);
  --under_way_;
  if (memory) idle_.push_back(std::move(memory));
  if (next_ == count_ && under_way_ == 0) {
    changed_.NotifyAll();
  } else {
    changed_.NotifyOne();
  }
}

void PieceQueue::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace headrace::checkpoint
