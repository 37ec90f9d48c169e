#include "headrace/checkpoint/arena.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "headrace/checkpoint/parallel.h"

namespace headrace::checkpoint {
namespace {

constexpr std::chrono::milliseconds kLook{100};  // at the context, while waiting
// Of one thread at a time. Large enough that memcpy goes around the processor's caches.
constexpr uint64_t kSliceBytes = uint64_t{32} << 20;
constexpr uint64_t kBatchBytes = uint64_t{4} << 20;  // small pieces are taken together up to this

}  // namespace

Arena::Loan& Arena::Loan::operator=(Loan&& other) noexcept {
  if (this == &other) return *this;
  Return();
  arena_ = std::exchange(other.arena_, nullptr);
  offset_ = other.offset_;
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

void Arena::Loan::Return() {
  if (arena_ == nullptr) return;
  Arena* arena = std::exchange(arena_, nullptr);
  bytes_ = {};
  MutexLock lock(&arena->mu_);
  arena->lent_.erase(offset_);
  arena->returned_.NotifyAll();
}

Result<std::unique_ptr<Arena>> Arena::Create(uint64_t bytes, int threads) {
  HR_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create("headrace-arena", bytes));
  HR_RETURN_IF_ERROR(memory->Touch(threads));
  return std::unique_ptr<Arena>(new Arena(std::move(memory)));
}

// The first gap that is large enough.
bool Arena::FindGap(uint64_t bytes, uint64_t* offset) {
  uint64_t at = 0;
  for (const auto& [begin, size] : lent_) {
    if (begin - at >= bytes) break;
    at = begin + size;
  }
  *offset = at;
  return size() - at >= bytes;
}

Result<Arena::Loan> Arena::Borrow(uint64_t bytes, const Context& ctx) {
  if (bytes > size())
    return Error(Code::kResourceExhausted,
                 "the state takes {} bytes and the arena has {}: give it more memory (arena_bytes)",
                 bytes, size());
  bytes = std::max<uint64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  MutexLock lock(&mu_);
  uint64_t offset = 0;
  while (!FindGap(bytes, &offset)) {
    HR_RETURN_IF_ERROR(ctx.Check());
    returned_.WaitFor(&mu_, kLook);
  }
  lent_[offset] = bytes;
  Loan loan;
  loan.arena_ = this;
  loan.offset_ = offset;
  loan.bytes_ = memory_->bytes().subspan(offset, bytes);
  return loan;
}

void CopyPieces(std::span<const CopyPiece> pieces, int threads) {
  // Long pieces are cut; short ones go together, so that threads take about equal turns.
  std::vector<CopyPiece> slices;
  for (CopyPiece piece : pieces) {
    while (piece.bytes > 0) {
      uint64_t bytes = std::min(piece.bytes, kSliceBytes);
      slices.push_back({piece.from, piece.to, bytes});
      piece = {piece.from + bytes, piece.to + bytes, piece.bytes - bytes};
    }
  }
  std::vector<size_t> turns{0};
  uint64_t turn_bytes = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    turn_bytes += slices[i].bytes;
    if (turn_bytes < kBatchBytes) continue;
    turns.push_back(i + 1);
    turn_bytes = 0;
  }
  if (turns.back() != slices.size()) turns.push_back(slices.size());
  (void)ForEach(turns.size() - 1, threads, [&](size_t turn) {
    for (size_t i = turns[turn]; i < turns[turn + 1]; ++i)
      std::memcpy(slices[i].to, slices[i].from, slices[i].bytes);
    return OkStatus();
  });
}

}  // namespace headrace::checkpoint
