#include "jpeg_region.h"

#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>

namespace headrace::floor {

struct RegionDecoder::Codec {
  jpeg_decompress_struct stream;
  jpeg_error_mgr errors;
  std::jmp_buf on_error;
};

namespace {

constexpr int kRowsAtOnce = 8;

void JumpOut(j_common_ptr info) { std::longjmp(*static_cast<std::jmp_buf*>(info->client_data), 1); }

void StaySilent(j_common_ptr, int) {}

}  // namespace

RegionDecoder::RegionDecoder() : codec_(std::make_unique<Codec>()) {
  codec_->stream.err = jpeg_std_error(&codec_->errors);
  codec_->errors.error_exit = JumpOut;
  codec_->errors.emit_message = StaySilent;
  jpeg_create_decompress(&codec_->stream);
  codec_->stream.client_data = &codec_->on_error;
}

RegionDecoder::~RegionDecoder() { jpeg_destroy_decompress(&codec_->stream); }

std::optional<Rect> RegionDecoder::Open(std::span<const uint8_t> bytes) {
  jpeg_decompress_struct& stream = codec_->stream;
  if (setjmp(codec_->on_error) != 0) {
    jpeg_abort_decompress(&stream);
    return std::nullopt;
  }
  jpeg_mem_src(&stream, bytes.data(), bytes.size());
  jpeg_read_header(&stream, TRUE);
  stream.out_color_space = JCS_RGB;
  return Rect{0, 0, static_cast<int>(stream.image_width), static_cast<int>(stream.image_height)};
}

std::optional<Pixels> RegionDecoder::DecodeRegion(const Rect& region) {
  jpeg_decompress_struct& stream = codec_->stream;
  if (setjmp(codec_->on_error) != 0) {
    jpeg_abort_decompress(&stream);
    return std::nullopt;
  }
  jpeg_start_decompress(&stream);
  JDIMENSION left = region.left;
  JDIMENSION width = region.width;
  jpeg_crop_scanline(&stream, &left, &width);
  if (region.top > 0) jpeg_skip_scanlines(&stream, region.top);
  ReadRows(region.height);
  jpeg_abort_decompress(&stream);
  return Pixels{rows_.data(), static_cast<int>(width), region.height,
                region.left - static_cast<int>(left), 0};
}

std::optional<Pixels> RegionDecoder::DecodeAll() {
  jpeg_decompress_struct& stream = codec_->stream;
  if (setjmp(codec_->on_error) != 0) {
    jpeg_abort_decompress(&stream);
    return std::nullopt;
  }
  jpeg_start_decompress(&stream);
  const int width = static_cast<int>(stream.output_width);
  const int height = static_cast<int>(stream.output_height);
  ReadRows(height);
  jpeg_finish_decompress(&stream);
  return Pixels{rows_.data(), width, height, 0, 0};
}

void RegionDecoder::ReadRows(int num_rows) {
  jpeg_decompress_struct& stream = codec_->stream;
  const size_t row_bytes = static_cast<size_t>(stream.output_width) * 3;
  if (rows_.size() < row_bytes * num_rows) rows_.resize(row_bytes * num_rows);
  for (int done = 0; done < num_rows;) {
    JSAMPROW pointers[kRowsAtOnce];
    const int wanted = std::min(kRowsAtOnce, num_rows - done);
    for (int i = 0; i < wanted; ++i) pointers[i] = rows_.data() + (done + i) * row_bytes;
    done += static_cast<int>(jpeg_read_scanlines(&stream, pointers, wanted));
  }
}

}  // namespace headrace::floor
