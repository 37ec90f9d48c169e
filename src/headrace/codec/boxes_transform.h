// The Transform that turns detection boxes along with the image of the same sample. Used inside the
// codec only; CreateTransform is the way in.
#pragma once

#include <memory>

#include "headrace/base/json.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {

// `description` is the whole object with "type": "boxes".
Result<std::shared_ptr<const Transform>> CreateBoxesTransform(const Json& description);

}  // namespace headrace::codec
