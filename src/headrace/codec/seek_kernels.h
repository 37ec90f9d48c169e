// The inner loops of decoding a JPEG from seek points, in the fastest form for this processor:
// entropy decoding of several runs of MCUs in lock step, the inverse DCT, and fancy upsampling with
// the conversion to RGB. Every form gives the same bytes, which are those of libjpeg-turbo. Plain
// functions on buffers; used inside the codec only.
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
  // For each block of the longest job its DC and its AC table; 16-byte aligned.
  const HuffmanTable* const* tables;
  EntropyJob* jobs;
  size_t num_jobs;
};
inline constexpr size_t kEntropyPadding = 64;
// False when a job ran past num_bytes; the coefficients are then unspecified. Damaged codes only
// give other coefficients.
bool DecodeEntropy(const EntropyTask& task);

// A row of blocks of one component.
struct DctTask {
  // Block i is at blocks + i / per_mcu * mcu_step + i % per_mcu * 64. Read and set to zero.
  int16_t* blocks;
  uint32_t num_blocks;
  uint32_t per_mcu;  // 1 or 2
  size_t mcu_step;
  const int16_t* quantization;  // [64], 16-byte aligned
  // Samples a side that a block becomes: 8, or 4, 2, 1 for an image reduced in the transform.
  uint32_t side;
  uint8_t* out;  // `side` rows of side * num_blocks samples
  size_t stride;
};
void InverseDct(const DctTask& task);

// One row of pixels. The planes have a sample before the first one used and kRowPadding after the
// last one that may be read; outside the image they hold the border's sample again.
struct ColorTask {
  const uint8_t* y;        // at an even pixel when `halved`
  const uint8_t *cb, *cr;  // the row of chroma nearest
  // The next nearest row, with a weight of 1 to 3; null when chroma has all rows.
  const uint8_t *cb_far, *cr_far;
  bool halved;      // chroma has every second column
  uint32_t pixels;  // kRowPadding * 3 more bytes of `rgb` may be written
  uint8_t* rgb;
};
inline constexpr size_t kRowPadding = 64;
void ConvertColorRow(const ColorTask& task);

// YCbCr to RGB in place, plane by plane; kRowPadding bytes behind each may be read and written.
void ConvertColorPlanes(uint8_t* y, uint8_t* cb, uint8_t* cr, size_t pixels);

}  // namespace headrace::codec
