// Hashes boxes that lie one behind the other in a data file, in one pass over their bytes: the hash
// and the CRC32C of each box, and the CRC32C of the file's chunks. One owner at a time.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/hash128.h"

namespace headrace::checkpoint {

struct BoxSums {
  Hash128 hash;
  uint32_t crc32c = 0;
};

class BoxHasher {
 public:
  // `offset`: where in the file the first box begins.
  explicit BoxHasher(uint64_t offset) { part_.offset = offset; }

  // The next box.
  BoxSums Add(Bytes box);
  // Of all boxes together.
  const PartSums& part() const { return part_; }

 private:
  void AddPiece(Bytes piece, uint32_t* box_crc);

  PartSums part_;
  HashStream stream_;
};

}  // namespace headrace::checkpoint
