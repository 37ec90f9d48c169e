// The memory that saves are copied into: shared memory, touched once at the start, so that the
// first save is as fast as the tenth. Parts of it are lent to saves and come back when these are
// done; a part in use is never lent again. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/env/shared_memory.h"

namespace headrace::checkpoint {

class Arena {
 public:
  static constexpr uint64_t kAlignment = 4096;

  // A part in use. Gives it back when destroyed; must not outlive the arena.
  class Loan {
   public:
    Loan() = default;
    ~Loan() { Return(); }
    Loan(Loan&& other) noexcept { *this = std::move(other); }
    Loan& operator=(Loan&& other) noexcept;
    MutableBytes bytes() const { return bytes_; }
    void Return();

   private:
    friend class Arena;
    Arena* arena_ = nullptr;
    uint64_t offset_ = 0;
    MutableBytes bytes_;
  };

  // kResourceExhausted when there is no such memory.
  static Result<std::unique_ptr<Arena>> Create(uint64_t bytes, int threads);

  // Waits for `bytes` in one piece.
  //   kResourceExhausted  more than the arena has.
  //   kDeadlineExceeded, kCancelled (looked at about ten times a second).
  Result<Loan> Borrow(uint64_t bytes, const Context& ctx);
  uint64_t size() const { return memory_->bytes().size(); }
  // All of it, and what other processes map it by (SharedMemory).
  MutableBytes memory() const { return memory_->bytes(); }
  int descriptor() const { return memory_->descriptor(); }

 private:
  explicit Arena(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  bool FindGap(uint64_t bytes, uint64_t* offset) HR_REQUIRES(mu_);

  const std::unique_ptr<SharedMemory> memory_;
  Mutex mu_;
  CondVar returned_;
  std::map<uint64_t, uint64_t> lent_ HR_GUARDED_BY(mu_);  // offset -> bytes
};

// Bytes to be copied.
struct CopyPiece {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};
// Copies all by `threads` threads, the caller's among them. Pieces must not overlap.
void CopyPieces(std::span<const CopyPiece> pieces, int threads);

}  // namespace headrace::checkpoint
