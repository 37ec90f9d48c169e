// The part of a store below a prefix, as a store of its own: so that many tests can share one
// bucket. For tests only. Thread-safe, as the store is.
#pragma once

#include <memory>
#include <string>

#include "headrace/object/object_store.h"

namespace headrace::object {

// `prefix` may be any bytes, such as "test-1/".
std::shared_ptr<ObjectStore> MakePrefixStore(std::shared_ptr<ObjectStore> store,
                                             std::string prefix);

}  // namespace headrace::object
