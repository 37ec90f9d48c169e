// Fancy upsampling and the conversion from YCbCr to RGB, in the fastest form for this
// processor. Every form gives the same bytes, which are those of libjpeg-turbo. Plain functions on
// buffers; used inside the codec only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::codec {

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
