// The Transform that reads numbers: text, JSON and .npy. Allocates nothing unless it fails.
// Used inside the codec only; CreateTransform is the way in.
#pragma once

#include <memory>

#include "headrace/base/json.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {

// `description` is the whole object with "type": "label".
Result<std::shared_ptr<const Transform>> CreateLabelTransform(const Json& description);

}  // namespace headrace::codec
