// Holds the pixels that are decoded from seek points against libjpeg-turbo's own decode of the
// whole file: the whole image and some regions at places that a key chooses. Keeps its memory from
// image to image; for one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

// The first pixel that differs, in stored coordinates (not turned as Exif says).
struct PixelDifference {
  Rect region;  // that was decoded
  uint32_t x = 0, y = 0, channel = 0;
  uint8_t expected = 0, found = 0;
};

struct PixelVerdict {
  // kNone: decoded from seek points and compared. Else why seek points were not used; nothing was
  // compared then.
  SeekRefusal refusal = SeekRefusal::kNone;
  uint32_t num_regions = 0;  // that were compared
  std::optional<PixelDifference> difference;
};

class PixelChecker {
 public:
  static constexpr uint32_t kRegions = 4;  // an image, beside the whole of it

  explicit PixelChecker(uint64_t max_pixels = 178956970) : max_pixels_(max_pixels) {}

  // Checks a JPEG. Fails as DecodeRegion does when it cannot be decoded at all, but for one that
  // has more than `max_pixels`: that is kTooLarge in the verdict. kResourceExhausted: memory is
  // short, and nothing is known of the file.
  Result<PixelVerdict> Check(Bytes file, const DecodeHints& hints, uint64_t key);

 private:
  Result<PixelVerdict> CheckRegions(Bytes file, const DecodeHints& hints, uint64_t key);
  // kDataLoss, kResourceExhausted.
  Status DecodeReference(Bytes file);
  // Why seek points were not used, or kNone; `difference` of what was decoded from them.
  Result<SeekRefusal> CheckRegion(Bytes file, const DecodeHints& hints, const Rect& region,
                                  std::optional<PixelDifference>* difference);

  uint64_t max_pixels_;
  Scratch scratch_;
  AlignedBuffer reference_;  // RGB
  bool has_reference_ = false;
  uint32_t width_ = 0, height_ = 0;
};

}  // namespace headrace::codec
