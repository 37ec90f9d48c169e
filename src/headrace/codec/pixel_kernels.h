// The inner loops of pixel_ops.cc, in the fastest form for this processor. Pure, safe from any
// thread. Used by pixel_ops.cc only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::codec {

// ITU-R 601 luma of `count` pixels. `luma` may be `red`.
void LumaOfPlanes(const uint8_t* red, const uint8_t* green, const uint8_t* blue, size_t count,
                  uint8_t* luma);
// values[i] = base[i] + factor * (values[i] - base[i]), as AdjustSaturation says.
void BlendPlane(const uint8_t* base, float factor, size_t count, uint8_t* values);
// RGB to Pillow's HSV, hue + shift modulo 256, and back.
void ShiftHueOfPlanes(uint8_t* red, uint8_t* green, uint8_t* blue, size_t count, uint8_t shift);

// One row of Blur: sums[x] = round(sum of weights[k] * padded[x + k] / 128). `count` is a multiple
// of 64; that many values and `size` + 1 more can be read.
void BlurRow(const uint8_t* padded, const int16_t* weights, uint32_t size, size_t count,
             int16_t* sums);
// out[x] = round(sum of weights[k] * rows[k][x] / 2^21). `count` is a multiple of 64.
void BlurColumns(const int16_t* const* rows, const int16_t* weights, uint32_t size, size_t count,
                 uint8_t* out);

}  // namespace headrace::codec
