#include "headrace/base/bytes.h"

#include <bit>

namespace headrace {

static_assert(std::endian::native == std::endian::little,
              "stored formats are little-endian and are read without byte swaps");

bool AlignedBuffer::Reserve(size_t bytes, bool exact) {
  constexpr size_t kMaxBytes = SIZE_MAX / 4;  // so that no sum below can overflow
  if (bytes <= capacity_) return true;
  data_.reset();
  capacity_ = 0;
  if (bytes > kMaxBytes) return false;
  // Grow ahead, so that slowly rising sizes do not reallocate.
  size_t want = exact ? bytes : bytes + bytes / 4;
  size_t total = (want + kSlack + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, total)));
  capacity_ = data_ ? want : 0;
  return data_ != nullptr;
}

}  // namespace headrace
