// Uploads that were begun and never ended, since their writer was killed: their parts are in no
// listing, and are paid for until somebody gives them up. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// Gives up those below `prefix` that `is_left` says nobody will end. Returns how many. Those that
// are gone by themselves meanwhile are no failure. kUnimplemented where there are no uploads; else
// the store's first failure, after all were tried.
Result<uint64_t> SweepUploads(ObjectStore* store, const std::string& prefix,
                              const std::function<bool(const PendingUpload&)>& is_left,
                              const Context& ctx);

}  // namespace headrace::object
