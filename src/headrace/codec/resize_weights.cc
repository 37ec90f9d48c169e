// Compiled once for each instruction set and chosen at run time; see resize_weights.h.
#include "headrace/codec/resize_weights.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/codec/resize_weights.cc"
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The order of the double operations is part of the definition: it decides the last bits of the
// weights, and with them how halves round.
HWY_INLINE void ComputeLanes(WeightTask* task, uint32_t lane) {
  const hn::CappedTag<double, kWeightLanes> d;
  const hn::Rebind<int32_t, decltype(d)> d32;
  const AxisPlan& plan = *task->plan;
  const double step = plan.step;
  const double scale = static_cast<double>(plan.in) / step / static_cast<double>(plan.out);
  const auto reach = hn::Set(d, plan.reach());
  const auto inverse = hn::Set(d, 1.0 / plan.reach());
  const auto half = hn::Set(d, 0.5), one = hn::Set(d, 1.0), zero = hn::Zero(d);
  const auto index = hn::Iota(d, static_cast<double>(task->index + lane));
  const auto center =
      hn::Add(hn::Set(d, plan.phase / step), hn::Mul(hn::Add(index, half), hn::Set(d, scale)));
  const auto begin = hn::Max(hn::Trunc(hn::Add(hn::Sub(center, reach), half)), zero);
  const auto end = hn::Min(hn::Trunc(hn::Add(hn::Add(center, reach), half)),
                           hn::Set(d, static_cast<double>(plan.num_samples())));
  const auto weight_of = [&](double tap) HWY_ATTR {
    const auto k = hn::Add(begin, hn::Set(d, tap));
    const auto distance = hn::Abs(hn::Mul(hn::Add(hn::Sub(k, center), half), inverse));
    const auto inside = hn::And(hn::Lt(distance, one), hn::Lt(k, end));
    return hn::IfThenElseZero(inside, hn::Sub(one, distance));
  };
  auto sum = zero;
  for (uint32_t k = 0; k < task->num_taps; ++k) sum = hn::Add(sum, weight_of(k));
  sum = hn::IfThenElse(hn::Eq(sum, zero), one, sum);
  const auto full = hn::Set(d, 1 << AxisTaps::kPrecision);
  for (uint32_t k = 0; k < task->num_taps; ++k) {
    const auto weight = hn::Add(half, hn::Mul(hn::Div(weight_of(k), sum), full));
    hn::StoreU(hn::DemoteTo(d32, weight), d32,
               reinterpret_cast<int32_t*>(task->weights + size_t{k} * kWeightLanes + lane));
  }
  hn::StoreU(hn::DemoteTo(d32, begin), d32, reinterpret_cast<int32_t*>(task->first + lane));
}

void ComputeWeightsImpl(WeightTask* task) {
  const size_t lanes = hn::Lanes(hn::CappedTag<double, kWeightLanes>());
  for (size_t lane = 0; lane < kWeightLanes; lane += lanes)
    ComputeLanes(task, static_cast<uint32_t>(lane));
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::codec {

HWY_EXPORT(ComputeWeightsImpl);

void ComputeWeights(WeightTask* task) { HWY_DYNAMIC_DISPATCH(ComputeWeightsImpl)(task); }

}  // namespace headrace::codec
#endif  // HWY_ONCE
