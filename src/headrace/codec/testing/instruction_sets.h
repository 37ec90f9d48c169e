// Runs a test on every form of the kernels. Test code only; from one thread at a time.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace headrace::codec {

// Calls `test` with each instruction set that this machine has, the plain form among them.
template <typename Test>
void ForEachTarget(const Test& test) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    test(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace headrace::codec
