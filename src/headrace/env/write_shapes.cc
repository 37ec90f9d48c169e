#include "headrace/env/write_shapes.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kLeastBlock = uint64_t{64} << 10, kMostBlock = 4 * kMiB;
constexpr uint32_t kMostDepth = 64;
constexpr char kVariable[] = "HEADRACE_DIRECT_WRITE";

}  // namespace

WriteShapes& WriteShapes::OfThisProcess() {
  static auto* shapes = new WriteShapes;  // never destroyed: threads may use it at exit
  return *shapes;
}

// One disk behind a controller is often fastest with little under way, several need more.
const std::vector<WriteShape>& WriteShapes::Candidates() {
  static const auto* candidates =
      new std::vector<WriteShape>{{kMiB, 4}, {kMiB, 2}, {2 * kMiB, 4}, {kMiB, 16}, {4 * kMiB, 8}};
  return *candidates;
}

WriteShapes::Choice WriteShapes::Next(uint64_t device, uint64_t left_bytes) {
  const std::vector<WriteShape>& candidates = Candidates();
  MutexLock lock(&mu_);
  Known& known = devices_[device];
  if (known.trials < candidates.size() * kRounds) {
    if (left_bytes < kTrialBytes) return {candidates.front(), {}};
    return {candidates[known.trials % candidates.size()], known.trials};
  }
  const auto best = std::min_element(known.best.begin(), known.best.end());
  return {candidates[static_cast<size_t>(best - known.best.begin())], {}};
}

void WriteShapes::Tell(uint64_t device, size_t trial, std::chrono::nanoseconds time) {
  MutexLock lock(&mu_);
  Known& known = devices_[device];
  if (trial != known.trials) return;
  known.best.resize(Candidates().size(), std::chrono::nanoseconds::max());
  auto& best = known.best[trial % known.best.size()];
  best = std::min(best, time);
  ++known.trials;
}

Result<WriteShape> ParseWriteShape(std::string_view text) {
  const size_t cross = text.rfind('x');
  auto block = ParseSize(text.substr(0, cross));
  uint32_t depth = 0;
  bool numbers = false;
  if (cross != std::string_view::npos) {
    const std::string_view digits = text.substr(cross + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), depth);
    numbers = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
  }
  if (!numbers || !block.ok() || !std::has_single_bit(*block) || *block < kLeastBlock ||
      *block > kMostBlock || depth < 1 || depth > kMostDepth)
    return Error(Code::kInvalidArgument,
                 "'{}' is not how a disk can be written: expected a power of two from 64KiB to "
                 "4MiB, 'x', and a number from 1 to {}, as in 1MiBx4",
                 EscapeText(text), kMostDepth);
  return WriteShape{*block, depth};
}

Result<std::optional<WriteShape>> ForcedWriteShape() {
  std::optional<std::string> text = EnvironmentVariable(kVariable);
  if (!text) return std::optional<WriteShape>();
  auto shape = ParseWriteShape(*text);
  if (!shape.ok()) return std::move(shape).status().Prefix(kVariable);
  return std::optional<WriteShape>(*shape);
}

}  // namespace headrace
