// Compiled once for each instruction set and chosen at run time; see entropy_lanes.h.
#include "headrace/codec/entropy_lanes.h"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/codec/entropy_lanes.cc"
// Vectors of an unknown number of 128-bit blocks would need another way of packing.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "headrace/codec/simd-inl.h"

#ifndef HEADRACE_CODEC_ENTROPY_LANES_ONCE
#define HEADRACE_CODEC_ENTROPY_LANES_ONCE
namespace headrace::codec {

// Zig-zag to natural order. Places past the end of a block lead to the first of the next one, which
// is written later.
inline constexpr size_t PlaceOf(size_t i) { return i < 64 ? kZigZag[i] : 64; }

// By the place of an entry's first value. Those that need DecodeRareSymbol are negative: the last
// place of a block, since a second value would belong to the next block, and unresolved entries.
inline constexpr std::array<int8_t, 256> kFirstPlaces = [] {
  std::array<int8_t, 256> places{};
  for (size_t i = 0; i < places.size(); ++i)
    places[i] =
        i == 63 || i >= HuffmanEntry::kUnresolved ? int8_t{-1} : static_cast<int8_t>(PlaceOf(i));
  return places;
}();
// By the position after the second value.
inline constexpr std::array<uint8_t, 256> kSecondPlaces = [] {
  std::array<uint8_t, 256> places{};
  for (size_t i = 1; i < places.size(); ++i) places[i] = static_cast<uint8_t>(PlaceOf(i - 1));
  return places;
}();

// One run of MCUs that is being decoded.
struct EntropyLane {
  uint64_t state;  // bit << 8 | place in the block, in zig-zag order
  int16_t* block;
  const HuffmanTable* const* table;
  EntropyJob* job;
};

// Hands out jobs. Bit positions are counted so that those past the end of the input have bit 40
// set (bit 48 of a lane's state): one test for all lanes.
class EntropyQueue {
 public:
  static constexpr uint64_t kFirstBeyond = uint64_t{1} << 40, kOverrun = kFirstBeyond << 8;

  explicit EntropyQueue(const EntropyTask& task)
      : task_(task),
        bias_(kFirstBeyond - (uint64_t{task.num_bytes} + 8) * 8),
        base_(reinterpret_cast<uintptr_t>(task.bytes) - bias_ / 8) {}
  bool empty() const { return next_ >= task_.num_jobs; }
  void Begin(EntropyLane* lane) {
    Start(&task_.jobs[next_], lane);
    while (task_.jobs[next_++].continues) {
    }
  }
  // Ends the lane's job and gives it another one; false when there is none.
  bool Next(EntropyLane* lane) {
    lane->job->bit = (lane->state >> 8) - bias_;
    if (lane->job->continues) return Start(lane->job + 1, lane), true;
    if (empty()) return false;
    Begin(lane);
    return true;
  }
  // Address of the byte of bit 0.
  uintptr_t base() const { return base_; }

 private:
  void Start(EntropyJob* job, EntropyLane* lane) const {
    *lane = {(job->bit + bias_) << 8, job->coefficients,
             task_.tables + 2 * size_t{task_.most_blocks - job->num_blocks}, job};
  }

  const EntropyTask& task_;
  const uint64_t bias_;
  const uintptr_t base_;
  size_t next_ = 0;
};

inline uint64_t EntropyWindow(uintptr_t base, uint64_t state) {
  return __builtin_bswap64(
             LoadLittle<uint64_t>(reinterpret_cast<const void*>(base + (state >> 11))))
         << (state >> 8 & 7);
}

// At the end of a block the lane moves on to the next one's tables: from a DC table to its AC
// table, which stands behind it, and from there to the next DC table.
inline void MoveOn(EntropyLane* lane, uint64_t state) {
  const uint64_t place = state & 255, done = place > 63;
  lane->state = state - (place & (0 - done));
  lane->block += done << 6;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): to set a bit of the address is the point
  lane->table = reinterpret_cast<const HuffmanTable* const*>(
                    reinterpret_cast<uintptr_t>(lane->table) | sizeof(void*)) +
                done;
}

// The rare symbols: longer than the look-up, or in the last place of a block. Also the end of a
// job; false when there is no other one for the lane.
inline bool DecodeRareSymbol(EntropyLane* lane, EntropyQueue* queue) {
  if (*lane->table == &HuffmanTable::End()) return queue->Next(lane);
  HuffmanValue symbol = (*lane->table)->DecodeOne(EntropyWindow(queue->base(), lane->state));
  if (symbol.bits == 0) symbol = {16, HuffmanTable::kEndOfBlock, 0};
  const uint64_t state = lane->state + (uint64_t{symbol.bits} << 8) + symbol.run;
  lane->block[PlaceOf(state & 255)] = static_cast<int16_t>(symbol.value);
  MoveOn(lane, state + 1);
  return true;
}

}  // namespace headrace::codec
#endif

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {

// The `range` / 256 bits of `word` from bit range % 256 (at most 64) on.
HWY_INLINE uint64_t ExtractBits(uint64_t word, uint32_t range) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2
  return __builtin_ia32_bextr_u64(word, range);
#else
  return word >> (range & 63) & ((uint64_t{1} << (range >> 8)) - 1);
#endif
}

// One look-up: up to two symbols. No branch depends on what they are, so several lanes that take
// turns keep the processor busy. False when the lane is at its end and there is no other job.
HWY_INLINE bool DecodeSymbols(EntropyLane& lane, uintptr_t base, EntropyQueue* queue) {
  const uint64_t window = EntropyWindow(base, lane.state);
  const HuffmanEntry& entry = (*lane.table)->entries[window >> (64 - HuffmanTable::kLookupBits)];
  const int8_t first = kFirstPlaces[(lane.state & 255) + entry.run];
  if (HWY_UNLIKELY(first < 0)) return DecodeRareSymbol(&lane, queue);
  const uint64_t raw = ExtractBits(window, LoadLittle<uint16_t>(&entry.shift));
  const uint64_t state = lane.state + LoadLittle<uint16_t>(&entry.advance);
  // Without a second value both have the same place.
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): it is a number
  lane.block[kSecondPlaces[state & 255]] = entry.second;
  lane.block[first] = static_cast<int16_t>(static_cast<uint64_t>(entry.value) + raw);
  MoveOn(&lane, state);
  return true;
}

// Runs kLanes lanes in turn until one is left without a job; the others go on without it.
template <size_t kLanes>
bool RunLanes(EntropyLane* started, EntropyQueue* queue) {
  std::array<EntropyLane, kLanes> lanes;
  std::copy_n(started, kLanes, lanes.begin());
  const uintptr_t base = queue->base();
  size_t idle = kLanes;
  while (idle == kLanes) {
    uint64_t bits = 0;
    HWY_UNROLL(4)
    for (size_t i = 0; i < kLanes; ++i) {
      if (HWY_UNLIKELY(!DecodeSymbols(lanes[i], base, queue))) {
        idle = i;
        break;
      }
      bits |= lanes[i].state;
    }
    if (HWY_UNLIKELY(bits & EntropyQueue::kOverrun)) return false;
  }
  if constexpr (kLanes > 1) {
    std::copy(lanes.begin() + idle + 1, lanes.end(), lanes.begin() + idle);
    return RunLanes<kLanes - 1>(lanes.data(), queue);
  }
  return true;
}

bool DecodeEntropyImpl(const EntropyTask& task) {
  EntropyQueue queue(task);
  std::array<EntropyLane, 4> lanes;
  size_t started = 0;
  while (started < lanes.size() && !queue.empty()) queue.Begin(&lanes[started++]);
  switch (started) {
    case 0:
      return true;
    case 1:
      return RunLanes<1>(lanes.data(), &queue);
    case 2:
      return RunLanes<2>(lanes.data(), &queue);
    case 3:
      return RunLanes<3>(lanes.data(), &queue);
    default:
      return RunLanes<4>(lanes.data(), &queue);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::codec {

HWY_EXPORT(DecodeEntropyImpl);

bool DecodeEntropy(const EntropyTask& task) {
  return HWY_DYNAMIC_DISPATCH(DecodeEntropyImpl)(task);
}

}  // namespace headrace::codec
#endif  // HWY_ONCE
