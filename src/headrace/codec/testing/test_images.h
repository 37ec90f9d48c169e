// Images for tests: made-up pixels, files written with libjpeg, and the reference decode. Test code
// only; from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headrace/base/keyed_random.h"

namespace headrace::codec {

struct TestPixels {
  uint32_t width = 0, height = 0, channels = 0;
  std::vector<uint8_t> data;  // interleaved, no padding
};

// Waves, edges and some noise: enough that every coefficient and border matters.
TestPixels MakePixels(uint32_t width, uint32_t height, uint32_t channels, uint64_t seed);

struct JpegOptions {
  int quality = 90;
  int h = 2, v = 2;  // sampling factors of the first component; the others have 1 x 1
  bool progressive = false;
  int restart_mcus = 0;  // restart interval, 0 = none
  bool optimize = false;
  bool arithmetic = false;  // arithmetic instead of Huffman coding
  bool rgb = false;         // store RGB with Adobe's transform 0
  bool ycck = false;        // 4 channels: YCCK instead of CMYK
  int max_scans = 0;  // > 0: stop a progressive file after so many scans (incomplete precision)
  bool multi_scan = false;  // baseline, one scan a component
};
// Encodes 1, 3 or 4 channels. Aborts on an error of libjpeg.
std::string EncodeJpeg(const TestPixels& pixels, const JpegOptions& options);

// A grey file with the coefficients that `value` gives for their places in natural order (0 to 63),
// block by block, all quantizers being `quantizer`.
std::string EncodeCoefficients(uint32_t width, uint32_t height, uint16_t quantizer,
                               const std::function<int(size_t)>& value);

// libjpeg-turbo's own decode of the whole file with its default settings, in a fresh decompressor.
// `gray` asks libjpeg for luma.
TestPixels ReferenceDecode(const std::string& file, bool gray);

}  // namespace headrace::codec
