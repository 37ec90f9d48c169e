// Writes whole files around the page cache, with several blocks under way at once. Internal to env.
// Any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "headrace/env/file.h"
#include "headrace/env/write_shapes.h"

namespace headrace {

struct DurableWriteOptions {
  std::optional<WriteShape> shape = {};  // none: what is forced, or best for the device
  // For tests: what the system answered to a write (bytes, or a negative errno) becomes what this
  // returns. Called on several threads at once.
  std::function<int64_t(int64_t)> alter_answer = {};
};

// As WriteDurably (durable_write.h). Where the file system refuses direct I/O the same writes take
// the usual way.
Status WritePosixDurably(const std::string& path, std::span<const Bytes> parts,
                         const DurableWriteOptions& options, const Context& ctx);

}  // namespace headrace
