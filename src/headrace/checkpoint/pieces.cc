#include "headrace/checkpoint/pieces.h"

#include <algorithm>

#include "headrace/checkpoint/restore.h"

namespace headrace::checkpoint {
namespace {

// Where a tensor is cut: pieces are `step` long in dimension `dimension`, 1 in those before it, and
// whole in those behind.
struct Cut {
  size_t dimension = 0;
  uint64_t step = 1;
};

// The shape has at least one dimension and no length is 0.
Cut CutOf(Extents shape, uint64_t volume, DType dtype, uint64_t most_bytes) {
  const unsigned bits = BitsOf(dtype);
  const uint64_t most = std::max<uint64_t>(most_bytes / std::max(bits / 8, 1u), 1);  // elements
  Cut cut;
  uint64_t inner = volume / shape[0];
  if (bits % 8 != 0) {
    // Eight rows are whole bytes, however long a row is.
    cut.step = std::max<uint64_t>(most / inner / 8, 1) * 8;
    return cut;
  }
  while (inner > most) inner /= shape[++cut.dimension];
  cut.step = std::max<uint64_t>(most / inner, 1);
  return cut;
}

}  // namespace

Status ForEachPiece(Extents shape, DType dtype, uint64_t most_bytes,
                    const std::function<Status(const Box&)>& visit) {
  Box box = Box::Whole(shape);
  const uint64_t volume = Volume(shape).value_or(0);
  if (volume == 0) return OkStatus();
  if (shape.empty()) return visit(box);
  const Cut cut = CutOf(shape, volume, dtype, most_bytes);
  for (size_t d = 0; d < cut.dimension; ++d) box.length[d] = 1;
  for (;;) {
    for (uint64_t at = 0; at < shape[cut.dimension]; at += cut.step) {
      box.offset[cut.dimension] = at;
      box.length[cut.dimension] = std::min(cut.step, shape[cut.dimension] - at);
      HR_RETURN_IF_ERROR(visit(box));
    }
    // The next index of the dimensions before, the last one first.
    size_t d = cut.dimension;
    while (d > 0 && ++box.offset[d - 1] == shape[d - 1]) box.offset[--d] = 0;
    if (d == 0) return OkStatus();
  }
}

Status ReadBox(DataFiles* files, const Manifest& manifest, uint32_t tensor, const Box& box,
               int threads, const Context& ctx, std::vector<std::byte>* out) {
  const auto volume = Volume(box.length);
  const auto bytes = volume ? BytesOf(manifest.tensors.dtype(tensor), *volume) : std::nullopt;
  if (!bytes)
    return Error(Code::kInvalidArgument, "{}: the box {} is no whole number of bytes",
                 manifest.tensors.path(tensor), BoxText(box));
  out->resize(*bytes);
  const WantedBox wanted{tensor, box, *out};
  RestoreOptions options;
  options.threads = threads;
  RestoreReport report;
  return Restore({&files, 1}, manifest, {&wanted, 1}, options, ctx, &report);
}

}  // namespace headrace::checkpoint
