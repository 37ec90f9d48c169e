// Any text as a loader state: it is refused, or it is a state that survives being written and fits
// itself.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headrace/loader/plan/batch_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headrace::loader::LoaderState;
  const auto state = LoaderState::FromJson({reinterpret_cast<const char*>(data), size});
  if (!state.ok()) {
    if (state.status().message().empty()) std::abort();
    return 0;
  }
  const auto again = LoaderState::FromJson(state->ToJson());
  if (!again.ok() || again->ToJson() != state->ToJson()) std::abort();
  if (!state->CheckFits(*again).ok()) std::abort();
  return 0;
}
