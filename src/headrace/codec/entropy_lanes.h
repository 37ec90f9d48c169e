// Entropy decoding of several runs of MCUs in lock step, in the fastest form for this
// processor. Every form gives the same bytes, which are those of libjpeg-turbo. Plain functions on
// buffers; used inside the codec only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/codec/huffman.h"

namespace headrace::codec {

// One run of MCUs in a row of the image.
struct EntropyJob {
  uint64_t bit = 0;  // where its code starts in the unstuffed bytes; then where it ends
  int16_t* coefficients =
      nullptr;              // [num_blocks + 1][64], zeros; then natural order, DC differences
  uint32_t num_blocks = 0;  // at least 1
  // The next job goes on where this one's coefficients end, and is started when this one is done: a
  // job may write a zero behind its last block.
  bool continues = false;
};
struct EntropyTask {
  const uint8_t* bytes;  // unstuffed; kEntropyPadding readable bytes after num_bytes
  size_t num_bytes;      // at most 2^32
  // For each block of the longest job its DC and its AC table, then &HuffmanTable::End(); 16-byte
  // aligned. A job of fewer blocks takes the last ones.
  const HuffmanTable* const* tables;
  uint32_t most_blocks;  // of a job
  EntropyJob* jobs;
  size_t num_jobs;
};
inline constexpr size_t kEntropyPadding = 64;
// False when a job ran past num_bytes; the coefficients are then unspecified. Damaged codes only
// give other coefficients.
bool DecodeEntropy(const EntropyTask& task);

}  // namespace headrace::codec
