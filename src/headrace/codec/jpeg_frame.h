// What the header of a JPEG file says, read without libjpeg: where the scan is, its components and
// their tables. Reads the file's bytes only, never past their end, and allocates nothing. Pure
// functions; used inside the codec only.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/codec/seek_points.h"

namespace headrace::codec {

// A Huffman table as the file holds it: 16 counts of codes by length, then the symbols.
struct HuffmanSpec {
  const uint8_t* counts = nullptr;  // [16], in the file's bytes; null = not defined
  const uint8_t* symbols = nullptr;
  uint32_t num_symbols = 0;
};

struct JpegComponent {
  uint8_t id = 0;
  // Sampling factors, which divide the largest ones; 1 x 1 for a file of one component.
  uint32_t h = 1, v = 1;
  alignas(16) std::array<int16_t, 64> quantization{};  // natural order
  HuffmanSpec dc, ac;
};

// A baseline or extended sequential file with one interleaved scan of 1 or 3 components.
struct JpegFrame {
  uint32_t width = 0, height = 0;
  uint32_t num_components = 0;
  bool rgb = false;  // the components are R, G and B
  std::array<JpegComponent, 3> components;
  uint32_t max_h = 1, max_v = 1;
  uint32_t mcus_x = 0, mcus_y = 0;
  uint32_t blocks_per_mcu = 0;
  std::array<uint8_t, 10> block_component{};  // of each block of an MCU
  uint32_t restart_interval = 0;              // MCUs; 0 = none
  size_t scan_offset = 0;                     // of the first byte of entropy-coded data
};

// Reads the header up to the first scan. Anything but kNone says why the file cannot be decoded
// from seek points; `frame` is then unspecified.
SeekRefusal ReadJpegFrame(Bytes file, JpegFrame* frame);

// The natural place of each coefficient in zig-zag order.
inline constexpr std::array<uint8_t, 64> kZigZag = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

}  // namespace headrace::codec
