// The pieces of a restore, as threads take them: those that have been read and wait for their check
// first, then the next one to be read. Bounds the reads under way, and keeps their memory for the
// next ones. Internal to restore. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/env/direct_memory.h"

namespace headrace::checkpoint {

class PieceQueue {
 public:
  struct Turn {
    enum class Kind { kRead, kCheck, kEnd };
    Kind kind = Kind::kEnd;
    size_t piece = 0;
    DirectMemory memory;  // kRead: of an earlier piece, or null; kCheck: what was read
    Status read;          // kCheck: how that went
  };

  // Pieces are 0 to count - 1.
  PieceQueue(size_t count, size_t depth) : count_(count), depth_(depth) {}

  // Waits for something to do; kEnd when all pieces are done, or after Stop. Failures are those of
  // the context, looked at about ten times a second.
  Result<Turn> Take(const Context& ctx);
  // A piece that was to be read has been: another thread may take it.
  void Read(size_t piece, DirectMemory memory, Status read);
  // A piece is done; its memory, if it has any, is for the next one.
  void Done(DirectMemory memory);
  // Nothing more is to be done.
  void Stop();

 private:
  const size_t count_, depth_;
  Mutex mu_;  // none is taken under it; no I/O
  CondVar changed_;
  size_t next_ HR_GUARDED_BY(mu_) = 0, under_way_ HR_GUARDED_BY(mu_) = 0;
  bool stopped_ HR_GUARDED_BY(mu_) = false;
  std::deque<Turn> read_ HR_GUARDED_BY(mu_);
  std::vector<DirectMemory> idle_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::checkpoint
