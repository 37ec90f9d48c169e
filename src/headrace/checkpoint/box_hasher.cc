#include "headrace/checkpoint/box_hasher.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/crc32c_joiner.h"

namespace headrace::checkpoint {

// A piece lies in one chunk, and is small enough to be in a cache still when it is looked at again.
void BoxHasher::AddPiece(Bytes piece, uint32_t* box_crc) {
  static const Crc32cJoiner chunk_joiner(kSumChunkBytes);
  const bool starts_chunk = (part_.offset + part_.bytes) % kSumChunkBytes == 0;
  part_.bytes += piece.size();
  if (piece.size() == kSumChunkBytes) {
    part_.sums.push_back(Crc32c(piece));
    *box_crc = chunk_joiner.Join(*box_crc, part_.sums.back());
    return;
  }
  if (starts_chunk || part_.sums.empty()) part_.sums.push_back(0);
  part_.sums.back() = Crc32c(piece, part_.sums.back());
  *box_crc = Crc32c(piece, *box_crc);
}

BoxSums BoxHasher::Add(Bytes box) {
  auto room = [this] { return kSumChunkBytes - (part_.offset + part_.bytes) % kSumChunkBytes; };
  BoxSums sums;
  if (box.size() <= room()) {
    sums.hash = HashOf(box);
    if (!box.empty()) AddPiece(box, &sums.crc32c);
    return sums;
  }
  stream_.Reset();
  while (!box.empty()) {
    const Bytes piece = box.first(std::min<uint64_t>(box.size(), room()));
    stream_.Update(piece);
    AddPiece(piece, &sums.crc32c);
    box = box.subspan(piece.size());
  }
  sums.hash = stream_.Get();
  return sums;
}

}  // namespace headrace::checkpoint
