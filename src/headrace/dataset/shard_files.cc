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
    uint32_t shard = kNone;
    uint32_t newer = kNone, older = kNone;
  };

  Table(uint32_t num_shards, uint32_t capacity, uint64_t fork_generation)
      : generation(fork_generation),
        max_slots(std::min(num_shards, capacity)),
        slot_of(num_shards, kNone) {
    slots.reserve(max_slots);
  }

  File Find(uint32_t shard) HR_EXCLUDES(mu) {
    MutexLock lock(&mu);
    uint32_t slot = slot_of[shard];
    if (slot == kNone) return nullptr;
    MoveToFront(slot);
    return slots[slot].file;
  }

  // Returns the file that is now in the table: another thread's when that was faster.
  File Insert(uint32_t shard, File file) HR_EXCLUDES(mu) {
    File dropped;  // closed after the lock is gone
    MutexLock lock(&mu);
    if (slot_of[shard] != kNone) return slots[slot_of[shard]].file;
    uint32_t slot = static_cast<uint32_t>(slots.size());
    if (slots.size() < max_slots) {
      slots.emplace_back();
      PushFront(slot);
    } else {
      slot = oldest;
      if (slots[slot].shard != kNone) slot_of[slots[slot].shard] = kNone;
      dropped = std::move(slots[slot].file);
      MoveToFront(slot);
    }
    slots[slot].file = std::move(file);
    slots[slot].shard = shard;
    slot_of[shard] = slot;
    return slots[slot].file;
  }

  void CloseAll() HR_EXCLUDES(mu) {
    MutexLock lock(&mu);
    for (Slot& slot : slots) {
      if (slot.shard != kNone) slot_of[slot.shard] = kNone;
      slot.shard = kNone;
      slot.file = nullptr;
    }
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
  void MoveToFront(uint32_t slot) HR_REQUIRES(mu) {
    if (slot == newest) return;
    Unlink(slot);
    PushFront(slot);
  }

  const uint64_t generation;
  const uint32_t max_slots;
  Mutex mu;  // no I/O under it
  std::vector<Slot> slots HR_GUARDED_BY(mu);
  std::vector<uint32_t> slot_of HR_GUARDED_BY(mu);
  uint32_t newest HR_GUARDED_BY(mu) = kNone;
  uint32_t oldest HR_GUARDED_BY(mu) = kNone;
};

ShardFiles::ShardFiles(uint32_t num_shards, uint32_t max_open_files, Opener open)
    : num_shards_(num_shards),
      max_open_files_(std::max<uint32_t>(max_open_files, 1)),
      open_(std::move(open)),
      table_(new Table(num_shards, max_open_files_, ForkGeneration())) {}

ShardFiles::~ShardFiles() {
  Table* table = table_.load();
  // A table of before a fork may be in the middle of a change: it is left alone.
  if (table->generation == ForkGeneration()) delete table;
}

ShardFiles::Table& ShardFiles::Current() {
  Table* table = table_.load(std::memory_order_acquire);
  const uint64_t generation = ForkGeneration();
  if (table->generation == generation) return *table;
  Table* fresh = new Table(num_shards_, max_open_files_, generation);
  if (table_.compare_exchange_strong(table, fresh)) return *fresh;
  delete fresh;
  return *table;
}

Result<ShardFiles::File> ShardFiles::Get(uint32_t shard) {
  Table& table = Current();
  if (File file = table.Find(shard)) return file;
  auto opened = open_(shard);
  if (!opened.ok() && opened.status().code() == Code::kResourceExhausted) {
    table.CloseAll();
    opened = open_(shard);
  }
  if (!opened.ok()) return std::move(opened).status();
  return table.Insert(shard, File(*std::move(opened)));
}

uint32_t ShardFiles::num_open() {
  Table& table = Current();
  MutexLock lock(&table.mu);
  return static_cast<uint32_t>(
      std::count_if(table.slots.begin(), table.slots.end(),
                    [](const auto& slot) { return slot.file != nullptr; }));
}

}  // namespace headrace::dataset
