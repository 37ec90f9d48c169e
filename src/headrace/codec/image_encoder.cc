#include "headrace/codec/image_encoder.h"

#include <spng.h>

#include <cstdlib>
#include <memory>

#include "headrace/codec/jpeg_escape.h"

namespace headrace::codec {
namespace {

std::string RowsOf(const PixelView& pixels) {
  std::string rows;
  const size_t row_bytes = size_t{pixels.width} * pixels.channels;
  rows.reserve(row_bytes * pixels.height);
  for (uint32_t y = 0; y < pixels.height; ++y)
    rows.append(reinterpret_cast<const char*>(pixels.data + y * pixels.stride), row_bytes);
  return rows;
}

Result<std::string> EncodePng(const PixelView& pixels) {
  std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)> context(spng_ctx_new(SPNG_CTX_ENCODER),
                                                              &spng_ctx_free);
  if (!context) return Status(Code::kResourceExhausted, "no memory for a PNG");
  spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = pixels.width;
  header.height = pixels.height;
  header.bit_depth = 8;
  header.color_type = pixels.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  std::string rows = RowsOf(pixels);
  int error = spng_set_ihdr(context.get(), &header);
  if (error == 0)
    error = spng_encode_image(context.get(), rows.data(), rows.size(), SPNG_FMT_PNG,
                              SPNG_ENCODE_FINALIZE);
  size_t size = 0;
  std::unique_ptr<void, decltype(&std::free)> file(
      error == 0 ? spng_get_png_buffer(context.get(), &size, &error) : nullptr, &std::free);
  if (error != 0 || !file)
    return Error(Code::kInvalidArgument, "cannot write {} x {} pixels as PNG: {}", pixels.width,
                 pixels.height, spng_strerror(error));
  return std::string(static_cast<const char*>(file.get()), size);
}

// libjpeg's objects, outside of the function that an error leaves.
struct JpegWriter {
  jpeg_compress_struct cinfo{};
  JpegEscape escape{};
  JpegSink file;
  ~JpegWriter() { jpeg_destroy_compress(&cinfo); }
};

bool WriteJpeg(const PixelView& pixels, int quality, JpegWriter* w) {
  w->cinfo.err = w->escape.Install();
  if (setjmp(w->escape.jump) != 0) return false;
  jpeg_create_compress(&w->cinfo);
  w->file.Attach(&w->cinfo);
  w->cinfo.image_width = pixels.width;
  w->cinfo.image_height = pixels.height;
  w->cinfo.input_components = static_cast<int>(pixels.channels);
  w->cinfo.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&w->cinfo);
  jpeg_set_quality(&w->cinfo, quality, TRUE);
  for (int i = 0; i < w->cinfo.num_components; ++i)
    w->cinfo.comp_info[i].h_samp_factor = w->cinfo.comp_info[i].v_samp_factor = 1;
  jpeg_start_compress(&w->cinfo, TRUE);
  for (uint32_t y = 0; y < pixels.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data + y * pixels.stride);
    jpeg_write_scanlines(&w->cinfo, &row, 1);
  }
  jpeg_finish_compress(&w->cinfo);
  return true;
}

}  // namespace

Result<std::string> EncodeImage(const PixelView& pixels, EncodedFormat format, int quality) {
  switch (format) {
    case EncodedFormat::kPng:
      return EncodePng(pixels);
    case EncodedFormat::kPpm:
      return fmt::format("P{}\n{} {}\n255\n", pixels.channels == 1 ? 5 : 6, pixels.width,
                         pixels.height) +
             RowsOf(pixels);
    case EncodedFormat::kJpeg:
      break;
  }
  JpegWriter writer;
  if (WriteJpeg(pixels, quality, &writer))
    return std::string(reinterpret_cast<const char*>(writer.file.data()), writer.file.size());
  return Error(Code::kInvalidArgument, "cannot write {} x {} pixels as JPEG", pixels.width,
               pixels.height);
}

}  // namespace headrace::codec
