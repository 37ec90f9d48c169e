// A tensor in pieces that fit into a given memory, and reading one of them. For what goes through
// whole checkpoints without holding them: export, import, diff. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/dtype.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

// Calls `visit` for boxes that follow one another in row-major order and together are the whole
// tensor, each of at most `most_bytes`, but at least one element. Of elements of less than a byte a
// box holds whole rows. Of a tensor without elements there are none. Stops at the first failure and
// returns it.
Status ForEachPiece(Extents shape, DType dtype, uint64_t most_bytes,
                    const std::function<Status(const Box&)>& visit);

// Reads a box of a tensor into `out`, which takes its size. Failures are those of Restore.
Status ReadBox(DataFiles* files, const Manifest& manifest, uint32_t tensor, const Box& box,
               int threads, const Context& ctx, std::vector<std::byte>* out);

}  // namespace headrace::checkpoint
