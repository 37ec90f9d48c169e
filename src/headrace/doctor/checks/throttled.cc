// The object store asks for fewer requests, and the job waits before it asks again.
#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kRefused{
    "requests refused as too many", 0.01, "%",
    "single refusals happen on a healthy store; one in a hundred means that a limit is reached"};
constexpr Threshold kCount{"refused requests", 10, "", "fewer may be chance"};
constexpr Threshold kThresholds[] = {kInputStall, kRefused, kCount};

std::optional<Finding> CheckThrottled(const Case& c) {
  const RankView& view = c.typical();
  const Window& total = view.total;
  if (total.requests == 0 || view.stall() < kInputStall.value) return std::nullopt;
  const auto refused = static_cast<double>(total.refused_requests);
  const double share = refused / static_cast<double>(total.requests);
  if (share < kRefused.value || refused < kCount.value) return std::nullopt;
  Finding finding;
  finding.symptom = "the GPU waits while the object store refuses requests (429 or 503)";
  finding.cause = "the store limits requests a second, by account, bucket or prefix of names";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kRefused, share),
                      Measured(kCount, refused)};
  finding.evidence.push_back({"workers' time in back-off",
                              total.back_off_s / (total.seconds * std::max(1u, total.threads)), "%",
                              std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure =
      "ask less often for more: larger shards and blocks, fewer requests at once, names "
      "spread over several prefixes; or keep the data on the nodes' disks";
  const uint32_t now = view.run->job.request_limit;
  AdviseSetting("prefetch_requests", now > 1 ? now / 2 : 16, &finding);
  // A refused request takes its time too, and then the pause.
  const double pause_s = view.model.part_s(Part::kBackOff);
  const double refusals_s = share * std::max(0.0, view.model.part_s(Part::kNetwork) - pause_s);
  if (total.back_off_s > 0)
    finding.gain = GainOver(view, view.model.WithoutSeconds(pause_s + refusals_s, false));
  finding.gain_at_most = true;
  finding.disproof =
      "fewer requests at once and as many refusals: then another job of the same "
      "account uses the limit up";
  return finding;
}

}  // namespace

const CheckEntry kThrottledCheck{"throttled", "The object store throttles", kThresholds,
                                 CheckThrottled};

}  // namespace headrace::doctor
