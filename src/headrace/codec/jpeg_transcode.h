// Lossless rewriting of JPEG files: the same coefficients, and so the same pixels, in another
// entropy coding. Markers (Exif, ICC, Adobe, comments) are kept. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"

namespace headrace::codec {

enum class JpegTranscode : uint8_t {
  kKeep,        // nothing is rewritten
  kOptimize,    // every file: one interleaved sequential scan with Huffman tables of its own
  kSequential,  // only files with several scans (progressive ones), in the same way
};

enum class TranscodeResult : uint8_t {
  kNotJpeg,       // another format
  kUnchanged,     // nothing to do by this mode, or nothing to gain
  kRewritten,     // the new file is smaller or larger, its pixels are the same
  kCannot,        // damaged, too large, bytes behind its end, or a coding that libjpeg cannot write
  kNotIdentical,  // the check found other pixels
};
inline constexpr size_t kNumTranscodeResults = 5;
// "not_jpeg", "unchanged"...: names in reports.
std::string_view TranscodeResultName(TranscodeResult result);

// Rewrites `file` by `mode` into `out` and compares the pixels of both, row by row, as
// libjpeg-turbo decodes them. With every result but kRewritten `out` is empty and the file is to be
// kept as it is. Takes about 6 bytes of memory a pixel, of at most `max_pixels`, and frees it.
TranscodeResult TranscodeJpeg(Bytes file, JpegTranscode mode, uint64_t max_pixels,
                              std::string* out);

}  // namespace headrace::codec
