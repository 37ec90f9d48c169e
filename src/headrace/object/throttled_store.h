// A store around another one that keeps reads and writes to a rate, which several stores may share.
// Requests begin in the order in which they are made, each when the bytes of those before have had
// their time; Head, List and the like do not wait. Thread-safe.
#pragma once

#include <memory>

#include "headrace/object/byte_rate.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// A request that waits for its turn ends with kCancelled or kDeadlineExceeded when its context
// does, noticed within 50 ms, and with kCancelled when this store is closed.
std::shared_ptr<ObjectStore> MakeThrottledStore(std::shared_ptr<ObjectStore> store,
                                                std::shared_ptr<ByteRate> rate);

}  // namespace headrace::object
