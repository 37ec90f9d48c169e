#include "headrace/object/upload_sweep.h"

#include <utility>
#include <vector>

namespace headrace::object {

Result<uint64_t> SweepUploads(ObjectStore* store, const std::string& prefix,
                              const std::function<bool(const PendingUpload&)>& is_left,
                              const Context& ctx) {
  HR_ASSIGN_OR_RETURN(std::vector<PendingUpload> uploads, store->ListUploads(prefix, ctx));
  uint64_t num_swept = 0;
  Status first;
  for (const PendingUpload& upload : uploads) {
    if (!is_left(upload)) continue;
    Status given_up = store->AbortUpload(upload, ctx);
    if (given_up.ok())
      ++num_swept;
    else if (given_up.code() != Code::kNotFound && first.ok())
      first = std::move(given_up);
  }
  HR_RETURN_IF_ERROR(std::move(first));
  return num_swept;
}

}  // namespace headrace::object
