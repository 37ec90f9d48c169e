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
inline constexpr std::array<uint8_t, 256> kPlaces = [] {
  std::array<uint8_t, 256> places{};
  for (size_t i = 0; i < places.size(); ++i) places[i] = i < 64 ? kZigZag[i] : uint8_t{64};
  return places;
}();

// One run of MCUs that is being decoded.
struct EntropyLane {
  uint64_t bit, place;  // `place` in the block, in zig-zag order
  int16_t* block;
  const HuffmanTable* const* table;
  const HuffmanTable* const* end;
  EntropyJob* job;
};

// Hands out jobs. Bit positions are counted so that those past the end of the input have bit 40
// set: one test for all lanes.
class EntropyQueue {
 public:
  static constexpr uint64_t kOverrun = uint64_t{1} << 40;

  explicit EntropyQueue(const EntropyTask& task)
      : task_(task),
        bias_(kOverrun - (uint64_t{task.num_bytes} + 8) * 8),
        base_(reinterpret_cast<uintptr_t>(task.bytes) - bias_ / 8) {}
  bool empty() const { return next_ >= task_.num_jobs; }
  void Begin(EntropyLane* lane) {
    Start(&task_.jobs[next_], lane);
    while (task_.jobs[next_++].continues) {
    }
  }
  // Ends the lane's job and gives it another one; false when there is none.
  bool Next(EntropyLane* lane) {
    lane->job->bit = lane->bit - bias_;
    if (lane->job->continues) return Start(lane->job + 1, lane), true;
    if (empty()) return false;
    Begin(lane);
    return true;
  }
  // Address of the byte of bit 0.
  uintptr_t base() const { return base_; }

 private:
  void Start(EntropyJob* job, EntropyLane* lane) const {
    *lane = {job->bit + bias_,
             0,
             job->coefficients,
             task_.tables,
             task_.tables + 2 * size_t{job->num_blocks},
             job};
  }

  const EntropyTask& task_;
  const uint64_t bias_;
  const uintptr_t base_;
  size_t next_ = 0;
};

inline uint64_t EntropyWindow(uintptr_t base, uint64_t bit) {
  return __builtin_bswap64(LoadLittle<uint64_t>(reinterpret_cast<const void*>(base + (bit >> 3))))
         << (bit & 7);
}

// The rare symbols: longer than the look-up, or in the last place of a block.
inline void DecodeRareSymbol(EntropyLane* lane, uintptr_t base) {
  HuffmanValue symbol = (*lane->table)->DecodeOne(EntropyWindow(base, lane->bit));
  if (symbol.bits == 0) symbol = {16, HuffmanTable::kEndOfBlock, 0};
  lane->bit += symbol.bits;
  lane->place += symbol.run;
  lane->block[kPlaces[lane->place]] = static_cast<int16_t>(symbol.value);
  ++lane->place;
}

}  // namespace headrace::codec
#endif

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {

// One look-up: up to two symbols. No branch depends on what they are, so several lanes that take
// turns keep the processor busy. At the end of a block the lane moves on to the next one's tables.
HWY_INLINE void DecodeSymbols(EntropyLane& lane, uintptr_t base) {
  const uint64_t window = EntropyWindow(base, lane.bit);
  const uint64_t entry = (*lane.table)->pairs[window >> (64 - HuffmanTable::kLookupBits)];
  const uint64_t first = lane.place + (entry >> 8 & 255);
  if (HWY_UNLIKELY((entry & HuffmanTable::kUnresolved) || first == 63)) {
    DecodeRareSymbol(&lane, base);
  } else {
    const uint64_t raw = window >> (-entry & 63) & ((uint64_t{1} << (entry >> 60)) - 1);
    lane.block[kPlaces[first]] = static_cast<int16_t>((entry >> 32) + raw);
    lane.block[kPlaces[lane.place + (entry >> 16 & 255)]] =
        static_cast<int16_t>(static_cast<int64_t>(entry << 4) >> 52);
    lane.bit += entry & 63;
    lane.place += entry >> 24 & 255;
  }
  const uint64_t done = lane.place >= 64;
  lane.block += done << 6;
  lane.place &= done - 1;
  // From a DC table on to its AC table, which stands behind it; from there on to the next DC table.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): to set a bit of the address is the point
  lane.table = reinterpret_cast<const HuffmanTable* const*>(
                   reinterpret_cast<uintptr_t>(lane.table) | sizeof(void*)) +
               done;
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
    HWY_UNROLL(3)
    for (size_t i = 0; i < kLanes; ++i) {
      DecodeSymbols(lanes[i], base);
      bits |= lanes[i].bit;
      if (HWY_UNLIKELY(lanes[i].table == lanes[i].end) && !queue->Next(&lanes[i])) {
        idle = i;
        break;
      }
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
  std::array<EntropyLane, 3> lanes;
  size_t started = 0;
  while (started < lanes.size() && !queue.empty()) queue.Begin(&lanes[started++]);
  switch (started) {
    case 0:
      return true;
    case 1:
      return RunLanes<1>(lanes.data(), &queue);
    case 2:
      return RunLanes<2>(lanes.data(), &queue);
    default:
      return RunLanes<3>(lanes.data(), &queue);
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
