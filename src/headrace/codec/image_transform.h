// The Transform that decodes an image, crops, resizes, mirrors and normalizes it in one go.
// Used inside the codec only; CreateTransform is the way in.
#pragma once

#include <memory>

#include "headrace/base/json.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {

// `description` is the whole object with "type": "image".
Result<std::shared_ptr<const Transform>> CreateImageTransform(const Json& description);

}  // namespace headrace::codec
