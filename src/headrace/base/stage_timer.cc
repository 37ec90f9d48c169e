#include "headrace/base/stage_timer.h"

#include <algorithm>

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

}  // namespace

std::string_view StageName(Stage stage) { return kNames[static_cast<size_t>(stage)]; }

void StageTotals::Add(const StageTotals& other) {
  busy_ns += other.busy_ns;
  wait_ns += other.wait_ns;
  bytes += other.bytes;
  count += other.count;
  histogram.Add(other.histogram);
  waits.Add(other.waits);
}

void StageRecorder::Busy(Stage stage, uint64_t ns, uint64_t bytes, uint64_t end_ns) {
  Cell& cell = cells_[static_cast<size_t>(stage)];
  Bump(cell.busy_ns, ns);
  Bump(cell.bytes, bytes);
  Bump(cell.count, 1);
  Bump(cell.histogram[LogHistogram::BucketOf(ns)], 1);
  if (TraceIsOn()) TraceEnd(TraceKind::kBusy, stage, ns, bytes, end_ns);
}

void StageRecorder::Wait(Stage stage, uint64_t ns, uint64_t end_ns) {
  Cell& cell = cells_[static_cast<size_t>(stage)];
  Bump(cell.wait_ns, ns);
  Bump(cell.waits[LogHistogram::BucketOf(ns)], 1);
  if (TraceIsOn()) TraceEnd(TraceKind::kWait, stage, ns, 0, end_ns);
}

// What is booked does not overlap, but where nobody said when it ended it may look so by the time
// from its end to here.
void StageRecorder::TraceEnd(TraceKind kind, Stage stage, uint64_t ns, uint64_t bytes,
                             uint64_t end_ns) {
  if (lane_ == 0) lane_ = NextTraceLane();
  const uint64_t end = std::max(end_ns != 0 ? end_ns : NowNanos(), traced_until_ns_);
  const uint64_t begin = std::max(end - std::min(end, ns), traced_until_ns_);
  traced_until_ns_ = end;
  TraceEvent event;
  event.kind = kind;
  event.detail = static_cast<uint8_t>(stage);
  event.pool = pool_;
  event.lane = lane_;
  event.id = item_;
  event.amount = bytes;
  event.times = {begin, 0, 0, end};
  Trace(event);
}

void StageRecorder::AddTo(StageReport* report) const {
  for (size_t i = 0; i < kNumStages; ++i) {
    StageTotals& to = (*report)[i];
    const Cell& from = cells_[i];
    to.busy_ns += from.busy_ns.load(kRelaxed);
    to.wait_ns += from.wait_ns.load(kRelaxed);
    to.bytes += from.bytes.load(kRelaxed);
    to.count += from.count.load(kRelaxed);
    for (size_t b = 0; b < LogHistogram::kBuckets; ++b) {
      to.histogram.counts[b] += from.histogram[b].load(kRelaxed);
      to.waits.counts[b] += from.waits[b].load(kRelaxed);
    }
  }
}

uint64_t StageRecorder::LifeNs(uint64_t now) const {
  const uint64_t ended = ended_ns_.load(std::memory_order_acquire);
  const uint64_t begun = begun_ns_.load(kRelaxed);
  const uint64_t until = ended != 0 ? ended : now;
  return begun != 0 && until > begun ? until - begun : 0;
}

bool StageRecorder::IsLive() const {
  return begun_ns_.load(kRelaxed) != 0 && ended_ns_.load(kRelaxed) == 0;
}

void SharedStageRecorder::Busy(Stage stage, uint64_t ns, uint64_t bytes) {
  Cell& cell = cells_[static_cast<size_t>(stage)];
  cell.busy_ns.fetch_add(ns, kRelaxed);
  cell.bytes.fetch_add(bytes, kRelaxed);
  cell.count.fetch_add(1, kRelaxed);
  cell.histogram[LogHistogram::BucketOf(ns)].fetch_add(1, kRelaxed);
}

void SharedStageRecorder::AddTo(StageReport* report) const {
  for (size_t i = 0; i < kNumStages; ++i) {
    StageTotals& to = (*report)[i];
    const Cell& from = cells_[i];
    to.busy_ns += from.busy_ns.load(kRelaxed);
    to.bytes += from.bytes.load(kRelaxed);
    to.count += from.count.load(kRelaxed);
    for (size_t b = 0; b < LogHistogram::kBuckets; ++b)
      to.histogram.counts[b] += from.histogram[b].load(kRelaxed);
  }
}

}  // namespace headrace
