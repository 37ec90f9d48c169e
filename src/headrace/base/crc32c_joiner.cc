#include "headrace/base/crc32c_joiner.h"

#include "headrace/base/crc32c.h"

namespace headrace {

// What a first part adds to the CRC of both is linear in the bits of its own.
Crc32cJoiner::Crc32cJoiner(uint64_t second_bytes) {
  for (size_t k = 0; k < tables_.size(); ++k) {
    tables_[k][0] = 0;
    for (uint32_t bit = 0; bit < 8; ++bit) {
      const uint32_t one = JoinCrc32c(uint32_t{1} << (8 * k + bit), 0, second_bytes);
      for (uint32_t lower = 0; lower < uint32_t{1} << bit; ++lower)
        tables_[k][(uint32_t{1} << bit) + lower] = one ^ tables_[k][lower];
    }
  }
}

}  // namespace headrace
