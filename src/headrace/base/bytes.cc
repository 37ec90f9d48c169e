#include "headrace/base/bytes.h"

#include <bit>

namespace headrace {

static_assert(std::endian::native == std::endian::little,
              "stored formats are little-endian and are read without byte swaps");

bool AlignedBuffer::Reserve(size_t bytes, bool exact) {
  if (bytes <= capacity_) return true;
  size_t want =
      exact ? bytes
            : bytes + bytes / 4;  // grow ahead, so that slowly rising sizes do not reallocate
  size_t total = (want + kSlack + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, total)));
  capacity_ = data_ ? want : 0;
  return data_ != nullptr;
}

}  // namespace headrace
