// The search for Exif data in each container and the reading of its orientation, on any bytes.
#include <cstdint>
#include <cstdlib>

#include "headrace/codec/exif.h"

namespace {

using headrace::Bytes;
using namespace headrace::codec;

void CheckOrientation(Bytes exif) {
  unsigned sum = 0;  // every byte can be read
  for (std::byte b : exif) sum += std::to_integer<unsigned>(b);
  uint8_t orientation = ReadExifOrientation(exif);
  if (orientation < 1 || orientation > 8 || sum > 255u * exif.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes input(reinterpret_cast<const std::byte*>(data), size);
  CheckOrientation(input);
  // What DetectImageFormat looked at is there; the rest is anything.
  if (size >= 3) CheckOrientation(FindExif(ImageFormat::kJpeg, input));
  if (size >= 8) CheckOrientation(FindExif(ImageFormat::kPng, input));
  if (size >= 12) CheckOrientation(FindExif(ImageFormat::kWebp, input));
  return 0;
}
