// Colour conversions of rows of 8-bit pixels, with Pillow's arithmetic. Pure, safe from any thread.
// Used inside the codec only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::codec {

// CMYK stored inverted (as every program writes it into JPEG) to RGB. `rgb` may be `cmyk` itself.
inline void InvertedCmykToRgb(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    uint32_t white = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      uint32_t product = (255u - cmyk[c]) * white + 128;
      uint32_t ink = (product + (product >> 8)) >> 8;  // product / 255, rounded
      rgb[c] = static_cast<uint8_t>(white > ink ? white - ink : 0);
    }
  }
}

// RGB to luma (ITU-R 601). `luma` may be `rgb` itself.
inline void RgbToLuma(const uint8_t* rgb, size_t pixels, uint8_t* luma) {
  for (size_t i = 0; i < pixels; ++i, rgb += 3)
    luma[i] =
        static_cast<uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

// One channel to three equal ones.
inline void ExpandLuma(const uint8_t* luma, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, rgb += 3) rgb[0] = rgb[1] = rgb[2] = luma[i];
}

}  // namespace headrace::codec
