// Writes decoded pixels as an image file, for thumbnails. Not for the hot path. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

// kPpm writes PGM for one channel.
enum class EncodedFormat : uint8_t { kPng, kJpeg, kPpm };

// The file's bytes. JPEG: baseline, 4:4:4, `quality` 1 to 100. kResourceExhausted: no memory;
// kInvalidArgument: sides that the format cannot hold.
Result<std::string> EncodeImage(const PixelView& pixels, EncodedFormat format, int quality = 90);

}  // namespace headrace::codec
