// Trouble with clock or frequency: a clock that jumps or is slow to read, or processors that run
// far below what they can.
#include <algorithm>
#include <array>
#include <cmath>

#include "headrace/base/text.h"
#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kJump{"jump of the system's clock", 0.5, "s",
                          "a clock under control is slewed by less than 0.05 % of the time"};
constexpr Threshold kFrequency{"frequency beside the highest", 0.7, "%",
                               "with all cores busy processors keep 75 to 95 % of the highest "
                               "frequency that one core reaches"};
constexpr Threshold kBusy{"processors in use", 0.5, "%",
                          "idle processors lower their frequency, as they should"};
constexpr Threshold kThresholds[] = {kJump, kFrequency, kBusy};

// The greatest difference between the two clocks from one window to the next.
double GreatestJump(const RankRun& rank) {
  double greatest = 0;
  const Window* before = nullptr;
  for (const Window& window : rank.windows) {
    if (before && window.wall_clock_ns != 0 && before->wall_clock_ns != 0) {
      const double wall = static_cast<double>(window.wall_clock_ns - before->wall_clock_ns) * 1e-9;
      const double steady = window.start_s + window.seconds - before->start_s - before->seconds;
      greatest = std::max(greatest, std::abs(wall - steady));
    }
    before = &window;
  }
  return greatest;
}

bool IsSlowClockSource(const std::string& name) {
  // Those that the kernel reads over a bus, at about a microsecond each.
  constexpr std::array<std::string_view, 4> kSlow{"hpet", "acpi_pm", "pit", "jiffies"};
  return std::find(kSlow.begin(), kSlow.end(), name) != kSlow.end();
}

std::optional<Finding> CheckClock(const Case& c) {
  Finding finding;
  for (const RankView& view : c.ranks()) {
    const MachineFacts& machine = view.run->machine;
    const double jump = GreatestJump(*view.run);
    const double frequency = machine.max_mhz > 0 ? machine.mhz / machine.max_mhz : 1;
    const bool slow =
        machine.mhz > 0 && frequency < kFrequency.value && view.model.cpu_use() >= kBusy.value;
    const std::string where = view.run->node.empty() ? "the node" : EscapeText(view.run->node);
    if (jump >= kJump.value) {
      finding.symptom = "the clock of " + where + " jumped";
      finding.evidence.push_back(Measured(kJump, jump));
      finding.cure = "let one service keep the clock (chrony), and step it only at the start";
      finding.command = "chronyc tracking";
    } else if (slow) {
      finding.symptom = "the processors of " + where + " run far below their frequency";
      finding.evidence.push_back(Measured(kFrequency, frequency));
      finding.evidence.push_back(Measured(kBusy, view.model.cpu_use()));
      finding.cure = "look for heat, a power limit or the powersave governor";
      finding.command = "cpupower frequency-set -g performance";
      // Only work of the processors grows with their frequency.
      finding.gain = GainOver(view, view.model.WithoutSeconds(
                                        view.model.part_s(Part::kDecode) * (1 - frequency), true));
      finding.gain_at_most = true;
    } else if (IsSlowClockSource(machine.clock_source)) {
      finding.symptom =
          "reading the clock is slow on " + where + " (" + EscapeText(machine.clock_source) + ")";
      finding.cure = "let the kernel use the processor's own counter where it is stable";
      finding.command =
          "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
    } else {
      continue;
    }
    finding.severity =
        slow && view.stall() >= kInputStall.value ? Severity::kProblem : Severity::kWarning;
    finding.cause = "the machine, not the job";
    finding.confidence = Confidence(finding.evidence, view.run->windows.size(), {kFrequency.what});
    finding.disproof = "another node with the same clock and frequency that is not slow";
    return finding;
  }
  return std::nullopt;
}

}  // namespace

const CheckEntry kClockCheck{"clock", "Trouble with clock or frequency", kThresholds, CheckClock};

}  // namespace headrace::doctor
