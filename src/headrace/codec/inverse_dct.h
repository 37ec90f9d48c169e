// The inverse DCT of JPEG's blocks, whole and reduced, in the fastest form for this
// processor. Every form gives the same bytes, which are those of libjpeg-turbo. Plain functions on
// buffers; used inside the codec only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::codec {

// A row of blocks of one component.
struct DctTask {
  // Block i is at blocks + i / per_mcu * mcu_step + i % per_mcu * 64. Read and set to zero.
  int16_t* blocks;
  uint32_t num_blocks;
  uint32_t per_mcu;  // 1 to 4
  size_t mcu_step;
  const int16_t* quantization;  // [64], 16-byte aligned
  // Samples a side that a block becomes: 8, or 4, 2, 1 for an image reduced in the transform.
  uint32_t side;
  uint8_t* out;  // `side` rows of side * num_blocks samples
  size_t stride;
};
void InverseDct(const DctTask& task);

}  // namespace headrace::codec
