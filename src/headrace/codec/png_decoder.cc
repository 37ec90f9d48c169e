#include "headrace/codec/png_decoder.h"

#include <spng.h>

#include <cstring>
#include <memory>

#include "headrace/base/text.h"
#include "headrace/codec/chunks.h"
#include "headrace/codec/pixel_conversion.h"

namespace headrace::codec {
namespace {

// Side chunks (profiles, texts) larger than these are refused, also after inflating.
constexpr size_t kMaxChunkBytes = size_t{16} << 20, kMaxCachedBytes = size_t{64} << 20;

// Follows the chunk lengths up to IEND.
Status WalkChunks(Bytes file) {
  PngChunks chunks(file);
  while (chunks.Next()) {
  }
  switch (chunks.fault()) {
    case PngChunks::Fault::kNone:
      return OkStatus();
    case PngChunks::Fault::kNoHeader:
      return Error(Code::kDataLoss,
                   "PNG: the file is truncated: it ends at byte {}, expected a chunk at byte {}",
                   file.size(), chunks.at());
    case PngChunks::Fault::kTooLong:
      break;
  }
  return Error(Code::kDataLoss,
               "PNG: the file is truncated: chunk {} at byte {} needs {} bytes, the file ends at "
               "byte {}",
               EscapeText(chunks.type()), chunks.at(), chunks.length(), file.size());
}

struct FreeContext {
  void operator()(spng_ctx* ctx) const { spng_ctx_free(ctx); }
};
using Context = std::unique_ptr<spng_ctx, FreeContext>;

Status PngError(int error, size_t row) {
  if (error == SPNG_EMEM) return Error(Code::kResourceExhausted, "PNG: no memory for decoding");
  Code code = error == SPNG_ECHUNK_LIMITS ? Code::kResourceExhausted : Code::kDataLoss;
  return Error(code, "PNG: {} (at row {})", spng_strerror(error), row);
}

struct PngLayout {
  uint32_t width = 0, height = 0, channels = 0;
  spng_format format = SPNG_FMT_RGB8;
  bool interlaced = false;
};

Result<PngLayout> OpenPng(spng_ctx* ctx, Bytes file) {
  spng_set_crc_action(ctx, SPNG_CRC_ERROR, SPNG_CRC_ERROR);
  spng_set_chunk_limits(ctx, kMaxChunkBytes, kMaxCachedBytes);
  int error = spng_set_png_buffer(ctx, file.data(), file.size());
  spng_ihdr header;
  if (!error) error = spng_get_ihdr(ctx, &header);
  if (error) return PngError(error, 0);
  PngLayout layout{header.width, header.height, 3, SPNG_FMT_RGB8, header.interlace_method != 0};
  if (header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth <= 8) {
    layout.format = SPNG_FMT_G8;
    layout.channels = 1;
  }
  return layout;
}

// Decodes the rows down to the region's last one, keeps the region's columns of its rows.
Status DecodeRows(spng_ctx* ctx, const PngLayout& layout, const Rect& region, size_t stride,
                  uint8_t* pixels, AlignedBuffer* row) {
  size_t row_bytes = size_t{layout.width} * layout.channels;
  if (!row->Reserve(row_bytes)) return PngError(SPNG_EMEM, 0);
  int error = spng_decode_image(ctx, nullptr, 0, layout.format, SPNG_DECODE_PROGRESSIVE);
  if (error) return PngError(error, 0);
  for (size_t y = 0; y < size_t{region.y} + region.height; ++y) {
    error = spng_decode_row(ctx, row->data(), row_bytes);
    if (error && !(error == SPNG_EOI && y + 1 == layout.height)) return PngError(error, y);
    if (y >= region.y)
      std::memcpy(pixels + (y - region.y) * stride,
                  row->data() + size_t{region.x} * layout.channels,
                  size_t{region.width} * layout.channels);
  }
  return OkStatus();
}

void ReduceToLuma(PixelView* view, uint8_t* pixels) {
  for (size_t y = 0; y < view->height; ++y) {
    uint8_t* line = pixels + (view->data - pixels) + y * view->stride;
    RgbToLuma(line, view->width, line);
  }
  view->channels = 1;
}

}  // namespace

Result<ImageInfo> ReadPngInfo(Bytes file, uint64_t max_pixels) {
  if (file.size() < 33 || AsText(file.subspan(12, 4)) != "IHDR")
    return Error(Code::kDataLoss, "PNG: the file ({} bytes) has no image header at byte 8",
                 file.size());
  uint32_t width = LoadBig32(&file[16]), height = LoadBig32(&file[20]);
  unsigned color = std::to_integer<unsigned>(file[25]);
  if (width == 0 || height == 0 || width > 0x7fffffff || height > 0x7fffffff)
    return Error(Code::kDataLoss, "PNG: the header at byte 16 claims {} x {} pixels", width,
                 height);
  if (uint64_t{width} * height > max_pixels)
    return Error(Code::kResourceExhausted, "PNG: {} x {} pixels are more than the limit of {}",
                 width, height, max_pixels);
  HR_RETURN_IF_ERROR(WalkChunks(file));
  uint32_t channels = color == 0 ? 1 : color == 6 ? 4 : color == 4 ? 2 : 3;
  return ImageInfo{ImageFormat::kPng, width, height, channels};
}

Result<PixelView> DecodePng(Bytes file, const Rect& region, bool luma, AlignedBuffer* pixels,
                            AlignedBuffer* row) {
  Context ctx(spng_ctx_new(0));
  if (!ctx) return PngError(SPNG_EMEM, 0);
  HR_ASSIGN_OR_RETURN(PngLayout layout, OpenPng(ctx.get(), file));
  PixelView view{nullptr, 0, region.width, region.height, layout.channels};
  if (layout.interlaced) {
    view.stride = size_t{layout.width} * layout.channels;
    size_t bytes = view.stride * layout.height;
    if (!pixels->Reserve(bytes)) return PngError(SPNG_EMEM, 0);
    if (int error = spng_decode_image(ctx.get(), pixels->data(), bytes, layout.format, 0))
      return PngError(error, 0);
    view.data = reinterpret_cast<uint8_t*>(pixels->data()) + region.y * view.stride +
                size_t{region.x} * layout.channels;
  } else {
    view.stride = (size_t{region.width} * layout.channels + 63) / 64 * 64;
    if (!pixels->Reserve(view.stride * region.height)) return PngError(SPNG_EMEM, 0);
    auto* dst = reinterpret_cast<uint8_t*>(pixels->data());
    HR_RETURN_IF_ERROR(DecodeRows(ctx.get(), layout, region, view.stride, dst, row));
    view.data = dst;
  }
  if (luma && view.channels == 3) ReduceToLuma(&view, reinterpret_cast<uint8_t*>(pixels->data()));
  return view;
}

}  // namespace headrace::codec
