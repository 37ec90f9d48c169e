#include "headrace/checkpoint/policy/drain_rate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace::checkpoint {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kSecond = 1e9;       // ns
constexpr double kRise = 1.25;        // of the rate, when all is calm
constexpr double kReserve = 1.1;      // a deadline is aimed at with so much to spare
constexpr double kFarAbove = 4;       // times what goes at all: no limit any more
constexpr double kIdleMemory = 0.25;  // weight of the newest report

}  // namespace

DrainRate::DrainRate(const Options& options, uint64_t now_ns)
    : options_(options),
      rate_(Ceiling()),
      tokens_(static_cast<double>(options.burst)),
      filled_ns_(now_ns),
      changed_ns_(now_ns) {}

double DrainRate::Ceiling() const {
  return options_.limit > 0 ? static_cast<double>(options_.limit) : kInfinite;
}

double DrainRate::rate() const { return std::min(std::max(rate_, floor_), Ceiling()); }

void DrainRate::Fill(uint64_t now_ns) {
  if (now_ns <= filled_ns_) return;  // a clock that goes back gives nothing
  const double burst = static_cast<double>(options_.burst);
  const double seconds = static_cast<double>(now_ns - filled_ns_) / kSecond;
  tokens_ = std::isinf(rate()) ? burst : std::min(burst, tokens_ + seconds * rate());
  filled_ns_ = now_ns;
}

uint64_t DrainRate::WaitNs(uint64_t now_ns, uint64_t bytes) {
  Fill(now_ns);
  if (std::isinf(rate())) return 0;
  const double needed = static_cast<double>(std::min(bytes, options_.burst));
  if (tokens_ >= needed) return 0;
  return static_cast<uint64_t>(std::ceil((needed - tokens_) / rate() * kSecond)) + 1;
}

void DrainRate::Take(uint64_t now_ns, uint64_t bytes) {
  Fill(now_ns);
  tokens_ -= static_cast<double>(bytes);
  went_ += static_cast<double>(bytes);
}

void DrainRate::ReportStall(uint64_t now_ns, double share) {
  if (now_ns < changed_ns_ + options_.hold_ns) return;
  Fill(now_ns);  // at the old rate
  const double seconds = static_cast<double>(now_ns - changed_ns_) / kSecond;
  const double went = seconds > 0 ? went_ / seconds : 0;
  const double least = std::min(static_cast<double>(options_.least), Ceiling());
  if (share > idle_stall_ + options_.stall_margin) {
    // A rate that is above what goes at all is no brake: half of what went is.
    rate_ = std::max(least, std::min(rate_, went) / 2);
  } else if (rate_ < Ceiling()) {
    rate_ = std::min(rate_ * kRise, Ceiling());
    if (options_.limit == 0 && rate_ > kFarAbove * went && went > 0) rate_ = kInfinite;
  }
  changed_ns_ = now_ns;
  went_ = 0;
}

void DrainRate::ReportIdleStall(double share) {
  idle_stall_ = has_idle_ ? idle_stall_ + kIdleMemory * (share - idle_stall_) : share;
  has_idle_ = true;
}

void DrainRate::SetDeadline(uint64_t now_ns, uint64_t bytes_left, uint64_t deadline_ns) {
  Fill(now_ns);  // at the old rate
  floor_ = 0;
  late_ = false;
  if (bytes_left == 0 || deadline_ns == 0) return;
  const double seconds =
      deadline_ns > now_ns ? static_cast<double>(deadline_ns - now_ns) / kSecond : 0;
  const double needed = seconds > 0 ? static_cast<double>(bytes_left) / seconds : kInfinite;
  floor_ = std::min(needed * kReserve, Ceiling());
  late_ = needed > Ceiling() || seconds == 0;
}

}  // namespace headrace::checkpoint
