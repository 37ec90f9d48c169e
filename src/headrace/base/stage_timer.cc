#include "headrace/base/stage_timer.h"

#include <bit>

namespace headrace {

namespace {
constexpr std::string_view kNames[kNumStages] = {"plan",    "meta",     "fetch",  "cache",
                                                 "read",    "checksum", "decode", "transform",
                                                 "collate", "queue",    "copy",   "step"};
constexpr auto kRelaxed = std::memory_order_relaxed;

// Only the owner writes, so a plain load and store is enough and cheaper than an atomic add.
void Bump(std::atomic<uint64_t>& cell, uint64_t by) {
  cell.store(cell.load(kRelaxed) + by, kRelaxed);
}

size_t Bucket(uint64_t ns) {
  size_t bucket = ns == 0 ? 0 : std::bit_width(ns) - 1;
  return bucket < 40 ? bucket : 39;
}
}  // namespace

std::string_view StageName(Stage stage) { return kNames[static_cast<size_t>(stage)]; }

void StageTotals::Add(const StageTotals& other) {
  busy_ns += other.busy_ns;
  wait_ns += other.wait_ns;
  bytes += other.bytes;
  count += other.count;
  for (size_t i = 0; i < histogram.size(); ++i) histogram[i] += other.histogram[i];
}

uint64_t StageTotals::Percentile(double q) const {
  uint64_t total = 0;
  for (uint64_t n : histogram) total += n;
  if (total == 0) return 0;
  uint64_t seen = 0;
  for (size_t i = 0; i < histogram.size(); ++i) {
    seen += histogram[i];
    if (histogram[i] > 0 && static_cast<double>(seen) >= q * static_cast<double>(total))
      return uint64_t{2} << i;
  }
  return uint64_t{2} << (histogram.size() - 1);
}

void StageRecorder::Busy(Stage stage, uint64_t ns, uint64_t bytes) {
  Cell& cell = cells_[static_cast<size_t>(stage)];
  Bump(cell.busy_ns, ns);
  Bump(cell.bytes, bytes);
  Bump(cell.count, 1);
  Bump(cell.histogram[Bucket(ns)], 1);
}

void StageRecorder::Wait(Stage stage, uint64_t ns) {
  Bump(cells_[static_cast<size_t>(stage)].wait_ns, ns);
}

void StageRecorder::AddTo(StageReport* report) const {
  for (size_t i = 0; i < kNumStages; ++i) {
    StageTotals& to = (*report)[i];
    const Cell& from = cells_[i];
    to.busy_ns += from.busy_ns.load(kRelaxed);
    to.wait_ns += from.wait_ns.load(kRelaxed);
    to.bytes += from.bytes.load(kRelaxed);
    to.count += from.count.load(kRelaxed);
    for (size_t b = 0; b < to.histogram.size(); ++b)
      to.histogram[b] += from.histogram[b].load(kRelaxed);
  }
}

}  // namespace headrace
