#include "headrace/env/mapping_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace headrace {

// Read by the handler without a lock. `begin` is written last and cleared first.
struct GuardedRange::Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};  // begin 0: no range
  std::atomic<int> protection{0};
  std::atomic<bool> failed{false};
};

namespace {

using Slot = GuardedRange::Slot;

// Slots, a block behind the other. Blocks are never freed, since the handler may be in any.
struct Block {
  static constexpr int kSlots = 256;
  std::atomic<int> used{0};
  std::array<Slot, kSlots> slots;
  std::atomic<Block*> next{nullptr};
};
Block* FirstBlock() {
  static auto* first = new Block;
  return first;
}

// What the handler needs, made before it is put in place.
std::atomic<Block*> first_block{nullptr};
std::atomic<const struct sigaction*> previous{nullptr};
// The thread whose fault the previous handler is told of just now, and the last one it was told of.
std::atomic<pid_t> telling{0}, told{0};

pid_t ThreadId() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// Only what may be called in a signal handler: mmap is a bare system call.
bool PutZerosInPlace(uintptr_t address) {
  for (Block* block = first_block.load(); block; block = block->next.load()) {
    for (Slot& slot : block->slots) {
      uintptr_t begin = slot.begin.load(std::memory_order_acquire), end = slot.end.load();
      if (begin == 0 || address < begin || address >= end) continue;
      slot.failed.store(true);  // before anybody can read a zero
      // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are numbers where they are compared
      void* zeros = ::mmap(reinterpret_cast<void*>(begin), end - begin, slot.protection.load(),
                           MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      return zeros != MAP_FAILED;
    }
  }
  return false;
}

void LeaveToTheDefault(int signal, bool by_kernel) {
  struct sigaction none{};
  none.sa_handler = SIG_DFL;
  ::sigaction(signal, &none, nullptr);
  // A fault happens again when this returns; what a program has sent does not.
  if (!by_kernel) ::raise(signal);
}

// The previous handler may call this one again, or restore it and raise the signal anew, as
// Python's faulthandler does: then that was the end of the chain.
void PassOn(int signal, siginfo_t* info, void* context) {
  const bool by_kernel = info->si_code > 0;
  const pid_t self = ThreadId();
  const struct sigaction* before = previous.load();
  const bool is_function =
      before && ((before->sa_flags & SA_SIGINFO) != 0 ||
                 (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN));
  if (!is_function) {
    // A program may ignore what others send it, but not its own faults.
    if (before && before->sa_handler == SIG_IGN && !by_kernel) return;
    return LeaveToTheDefault(signal, by_kernel);
  }
  if (telling.load() == self || (!by_kernel && told.load() == self))
    return LeaveToTheDefault(signal, by_kernel);
  telling.store(self);
  if (by_kernel) told.store(self);
  if ((before->sa_flags & SA_SIGINFO) != 0)
    before->sa_sigaction(signal, info, context);
  else
    before->sa_handler(signal);
  telling.store(0);
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool by_kernel = info->si_code > 0;
  if (!by_kernel || !PutZerosInPlace(reinterpret_cast<uintptr_t>(info->si_addr)))
    PassOn(signal, info, context);
  errno = error;
}

// Again with each range: another library may have put its own handler in place since then.
void PutHandlerInPlace() {
  struct sigaction now;
  if (::sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  first_block.store(FirstBlock());
  previous.store(new struct sigaction(now));  // never freed: the handler may be reading it
  struct sigaction ours{};
  ours.sa_sigaction = OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

// Without a lock, which a child forked meanwhile would find taken for ever.
Slot* TakeSlot() {
  for (Block* block = FirstBlock();;) {
    if (block->used.fetch_add(1) < Block::kSlots) {
      // One is free, or is just being given back.
      for (size_t i = 0;; i = (i + 1) % block->slots.size())
        if (!block->slots[i].taken.exchange(true)) return &block->slots[i];
    }
    block->used.fetch_sub(1);
    Block* next = block->next.load();
    if (!next) {
      auto* fresh = new Block;
      if (block->next.compare_exchange_strong(next, fresh))
        next = fresh;
      else
        delete fresh;  // another thread was faster, and `next` is its block
    }
    block = next;
  }
}

void GiveBack(Slot* slot) {
  slot->begin.store(0);
  slot->end.store(0);
  slot->failed.store(false);
  slot->taken.store(false, std::memory_order_release);
  for (Block* block = FirstBlock(); block; block = block->next.load()) {
    const bool is_its = slot >= block->slots.data() && slot < block->slots.data() + Block::kSlots;
    if (is_its) block->used.fetch_sub(1);
    if (is_its) return;
  }
}

}  // namespace

GuardedRange::GuardedRange(void* start, size_t bytes, int protection) : slot_(TakeSlot()) {
  const auto begin = reinterpret_cast<uintptr_t>(start);
  slot_->protection.store(protection);
  slot_->end.store(begin + bytes);
  slot_->begin.store(begin, std::memory_order_release);
  PutHandlerInPlace();
}

GuardedRange::~GuardedRange() { GiveBack(slot_); }

bool GuardedRange::failed() const { return slot_->failed.load(std::memory_order_acquire); }

}  // namespace headrace
