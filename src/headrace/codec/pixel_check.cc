#include "headrace/codec/pixel_check.h"

#include <algorithm>
#include <new>

#include "headrace/base/keyed_random.h"
#include "headrace/codec/jpeg_escape.h"
#include "headrace/codec/scratch.h"

namespace headrace::codec {
namespace {

struct Reference {
  jpeg_decompress_struct cinfo{};
  JpegEscape escape{};
  ~Reference() { jpeg_destroy_decompress(&cinfo); }
};

bool ReadHeader(Bytes file, Reference* r) {
  r->cinfo.err = r->escape.Install();
  if (setjmp(r->escape.jump) != 0) return false;
  jpeg_create_decompress(&r->cinfo);
  jpeg_mem_src(&r->cinfo, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&r->cinfo, TRUE);
  r->cinfo.out_color_space = JCS_RGB;
  return true;
}

bool ReadPixels(Reference* r, uint8_t* out) {
  if (setjmp(r->escape.jump) != 0) return false;
  jpeg_start_decompress(&r->cinfo);
  const size_t row_bytes = size_t{r->cinfo.output_width} * 3;
  while (r->cinfo.output_scanline < r->cinfo.output_height) {
    JSAMPROW row = out + r->cinfo.output_scanline * row_bytes;
    jpeg_read_scanlines(&r->cinfo, &row, 1);
  }
  jpeg_finish_decompress(&r->cinfo);
  return true;
}

Status NoMemory() {
  return Status(Code::kResourceExhausted,
                "no memory to check pixels: free some, or use fewer threads");
}

Rect RandomRegion(uint32_t width, uint32_t height, KeyedRandom* random) {
  Rect region;
  region.x = static_cast<uint32_t>(random->NextBelow(width));
  region.y = static_cast<uint32_t>(random->NextBelow(height));
  region.width = 1 + static_cast<uint32_t>(random->NextBelow(width - region.x));
  region.height = 1 + static_cast<uint32_t>(random->NextBelow(height - region.y));
  return region;
}

}  // namespace

Status PixelChecker::DecodeReference(Bytes file) {
  Reference reference;
  bool done = ReadHeader(file, &reference);
  if (done) {
    width_ = reference.cinfo.image_width;
    height_ = reference.cinfo.image_height;
    if (!reference_.Reserve(size_t{width_} * height_ * 3)) return NoMemory();
    done = ReadPixels(&reference, reinterpret_cast<uint8_t*>(reference_.data()));
  }
  if (!done && reference.escape.memory_is_short()) return NoMemory();
  if (!done)
    return Status(Code::kDataLoss, "libjpeg-turbo cannot decode what was decoded from seek points");
  has_reference_ = true;
  return OkStatus();
}

Result<SeekRefusal> PixelChecker::CheckRegion(Bytes file, const DecodeHints& hints,
                                              const Rect& region,
                                              std::optional<PixelDifference>* difference) {
  const DecodeCounts before = scratch_.decode_counts();
  HR_ASSIGN_OR_RETURN(PixelView view, DecodeRegion(file, region, 3, max_pixels_, hints, &scratch_,
                                                   ExifOrientation::kIgnore));
  const DecodeCounts& after = scratch_.decode_counts();
  size_t path = 0;
  while (path + 1 < after.size() && after[path] == before[path]) ++path;
  const auto refusal = static_cast<SeekRefusal>(path);
  // There is a record: what was missing is memory.
  if (refusal == SeekRefusal::kNoRecord && !hints.seek_points.empty()) return NoMemory();
  if (refusal != SeekRefusal::kNone) return refusal;
  if (!has_reference_) HR_RETURN_IF_ERROR(DecodeReference(file));
  const auto* reference = reinterpret_cast<const uint8_t*>(reference_.data());
  for (uint32_t y = 0; y < region.height; ++y) {
    const uint8_t* expected = reference + (size_t{region.y + y} * width_ + region.x) * 3;
    const uint8_t* found = view.data + y * view.stride;
    auto [at, other] = std::mismatch(expected, expected + size_t{region.width} * 3, found);
    auto place = static_cast<uint32_t>(at - expected);
    if (place == region.width * 3) continue;
    *difference =
        PixelDifference{region, region.x + place / 3, region.y + y, place % 3, *at, *other};
    break;
  }
  return SeekRefusal::kNone;
}

Result<PixelVerdict> PixelChecker::Check(Bytes file, const DecodeHints& hints, uint64_t key) {
  try {
    return CheckRegions(file, hints, key);
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

Result<PixelVerdict> PixelChecker::CheckRegions(Bytes file, const DecodeHints& hints,
                                                uint64_t key) {
  has_reference_ = false;
  PixelVerdict verdict;
  auto info = ReadImageInfo(file, max_pixels_, &scratch_, ExifOrientation::kIgnore);
  if (info.status().code() == Code::kResourceExhausted && !scratch_.rep()->jpeg.memory_is_short()) {
    verdict.refusal = SeekRefusal::kTooLarge;
    return verdict;
  }
  if (!info.ok()) return std::move(info).status();
  KeyedRandom random(HashKey(key, info->width, info->height));
  Rect region{0, 0, info->width, info->height};
  for (uint32_t i = 0; i <= kRegions && !verdict.difference; ++i) {
    HR_ASSIGN_OR_RETURN(SeekRefusal refusal, CheckRegion(file, hints, region, &verdict.difference));
    if (refusal == SeekRefusal::kNone)
      ++verdict.num_regions;
    else
      verdict.refusal = refusal;
    if (refusal != SeekRefusal::kNone && i > 0) break;
    region = RandomRegion(info->width, info->height, &random);
  }
  if (verdict.num_regions > 0) verdict.refusal = SeekRefusal::kNone;
  return verdict;
}

}  // namespace headrace::codec
