#include "headrace/dataset/shard_files.h"

#include <algorithm>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"

namespace headrace::dataset {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

// A list of slots in order of use, linked by numbers; slot_of finds a shard's slot.
struct ShardFiles::Table {
  struct Slot {
    File file;
    uint64_t memory_bytes = 0;
    uint32_t shard = kNone;
    uint32_t newer = kNone, older = kNone;
  };

  Table(uint32_t num_shards, const Limits& limits, uint64_t fork_generation)
      : generation(fork_generation),
        max_slots(std::min(num_shards, limits.open_files)),
        max_memory_bytes(limits.memory_bytes),
        slot_of(num_shards, kNone),
        opening(num_shards) {
    slots.reserve(max_slots);
  }

  // The file, or null when the caller is to open it and then to call Finish; waits while another
  // thread does.
  File FindOrBegin(uint32_t shard) HR_EXCLUDES(mu) {
    MutexLock lock(&mu);
    while (slot_of[shard] == kNone && opening[shard]) opened.Wait(&mu);
    uint32_t slot = slot_of[shard];
    if (slot == kNone) {
      opening[shard] = true;
      return nullptr;
    }
    MoveToFront(slot);
    return slots[slot].file;
  }

  // Ends what FindOrBegin began. `file` null: it could not be opened, the next one tries.
  void Finish(uint32_t shard, File file, uint64_t memory_bytes) HR_EXCLUDES(mu) {
    std::vector<File> dropped;  // closed after the lock is gone
    MutexLock lock(&mu);
    opening[shard] = false;
    opened.NotifyAll();
    if (!file) return;
    while (used_memory_bytes > 0 && memory_bytes > 0 &&
           used_memory_bytes + memory_bytes > max_memory_bytes)
      dropped.push_back(Drop(OldestInMemory()));
    uint32_t slot = FreeSlot(&dropped);
    slots[slot].file = std::move(file);
    slots[slot].memory_bytes = memory_bytes;
    slots[slot].shard = shard;
    used_memory_bytes += memory_bytes;
    slot_of[shard] = slot;
  }

  // A slot without a file, at the front.
  uint32_t FreeSlot(std::vector<File>* dropped) HR_REQUIRES(mu) {
    uint32_t slot = static_cast<uint32_t>(slots.size());
    if (slots.size() < max_slots) {
      slots.emplace_back();
      PushFront(slot);
      return slot;
    }
    slot = oldest;
    if (slots[slot].shard != kNone) dropped->push_back(Drop(slot));
    MoveToFront(slot);
    return slot;
  }

  // Takes the file out of a slot, which goes to the end of the list.
  File Drop(uint32_t slot) HR_REQUIRES(mu) {
    Slot& s = slots[slot];
    slot_of[s.shard] = kNone;
    s.shard = kNone;
    used_memory_bytes -= s.memory_bytes;
    s.memory_bytes = 0;
    if (slot != oldest) {
      Unlink(slot);
      PushBack(slot);
    }
    return std::move(s.file);
  }

  uint32_t OldestInMemory() HR_REQUIRES(mu) {
    uint32_t slot = oldest;
    while (slots[slot].memory_bytes == 0) slot = slots[slot].newer;
    return slot;
  }

  void Forget(uint32_t shard, const File& file) HR_EXCLUDES(mu) {
    File dropped;  // closed after the lock is gone
    MutexLock lock(&mu);
    uint32_t slot = slot_of[shard];
    if (slot != kNone && slots[slot].file == file) dropped = Drop(slot);
  }

  void CloseAll() HR_EXCLUDES(mu) {
    std::vector<File> dropped;
    MutexLock lock(&mu);
    for (uint32_t slot = 0; slot < slots.size(); ++slot)
      if (slots[slot].shard != kNone) dropped.push_back(Drop(slot));
  }

  void Unlink(uint32_t slot) HR_REQUIRES(mu) {
    Slot& s = slots[slot];
    (s.newer == kNone ? newest : slots[s.newer].older) = s.older;
    (s.older == kNone ? oldest : slots[s.older].newer) = s.newer;
  }
  void PushFront(uint32_t slot) HR_REQUIRES(mu) {
    slots[slot].newer = kNone;
    slots[slot].older = newest;
    (newest == kNone ? oldest : slots[newest].newer) = slot;
    newest = slot;
  }
  void PushBack(uint32_t slot) HR_REQUIRES(mu) {
    slots[slot].older = kNone;
    slots[slot].newer = oldest;
    (oldest == kNone ? newest : slots[oldest].older) = slot;
    oldest = slot;
  }
  void MoveToFront(uint32_t slot) HR_REQUIRES(mu) {
    if (slot == newest) return;
    Unlink(slot);
    PushFront(slot);
  }

  const uint64_t generation;
  const uint32_t max_slots;
  const uint64_t max_memory_bytes;
  Mutex mu;  // no I/O under it
  CondVar opened;
  std::vector<Slot> slots HR_GUARDED_BY(mu);
  std::vector<uint32_t> slot_of HR_GUARDED_BY(mu);
  std::vector<bool> opening HR_GUARDED_BY(mu);  // of each shard: some thread is at it
  uint64_t used_memory_bytes HR_GUARDED_BY(mu) = 0;
  uint32_t newest HR_GUARDED_BY(mu) = kNone;
  uint32_t oldest HR_GUARDED_BY(mu) = kNone;
};

namespace {

ShardFiles::Limits AtLeastOneFile(ShardFiles::Limits limits) {
  limits.open_files = std::max<uint32_t>(limits.open_files, 1);
  return limits;
}

}  // namespace

ShardFiles::ShardFiles(uint32_t num_shards, const Limits& limits, Opener open)
    : num_shards_(num_shards),
      limits_(AtLeastOneFile(limits)),
      open_(std::move(open)),
      table_(new Table(num_shards, limits_, ForkGeneration())) {}

ShardFiles::~ShardFiles() {
  Table* table = table_.load();
  // A table of before a fork may be in the middle of a change: it is left alone.
  if (table->generation == ForkGeneration()) delete table;
}

ShardFiles::Table& ShardFiles::Current() {
  Table* table = table_.load(std::memory_order_acquire);
  const uint64_t generation = ForkGeneration();
  if (table->generation == generation) return *table;
  Table* fresh = new Table(num_shards_, limits_, generation);
  if (table_.compare_exchange_strong(table, fresh)) return *fresh;
  delete fresh;
  return *table;
}

Result<ShardFiles::File> ShardFiles::Get(uint32_t shard) {
  Table& table = Current();
  if (File file = table.FindOrBegin(shard)) return file;
  // Ends the turn on every way out, since others may wait for it.
  struct Turn {
    Table& table;
    uint32_t shard;
    File file = {};
    uint64_t memory_bytes = 0;
    ~Turn() { table.Finish(shard, file, memory_bytes); }
  } turn{table, shard};
  auto opened = open_(shard);
  if (!opened.ok() && opened.status().code() == Code::kResourceExhausted) {
    table.CloseAll();
    opened = open_(shard);
  }
  if (!opened.ok()) return std::move(opened).status();
  turn.file = File(std::move(opened->file));
  turn.memory_bytes = opened->memory_bytes;
  return turn.file;
}

void ShardFiles::Forget(uint32_t shard, const File& file) { Current().Forget(shard, file); }

ShardFiles::File ShardFiles::GetIfOpen(uint32_t shard) {
  Table& table = Current();
  MutexLock lock(&table.mu);
  const uint32_t slot = table.slot_of[shard];
  return slot == kNone ? nullptr : table.slots[slot].file;
}

uint64_t ShardFiles::memory_bytes() {
  Table& table = Current();
  MutexLock lock(&table.mu);
  return table.used_memory_bytes;
}

uint32_t ShardFiles::num_open() {
  Table& table = Current();
  MutexLock lock(&table.mu);
  return static_cast<uint32_t>(
      std::count_if(table.slots.begin(), table.slots.end(),
                    [](const auto& slot) { return slot.file != nullptr; }));
}

}  // namespace headrace::dataset
