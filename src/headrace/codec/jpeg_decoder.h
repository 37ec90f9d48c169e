// Decodes JPEG files and regions of them with libjpeg-turbo, keeping one decompressor and its
// memory from image to image. Not thread-safe: one owner at a time. Used inside the codec only.
#pragma once

#include <cstdint>
#include <memory>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();

  // Reads the header. Allocates no more than some tables, whatever the header claims.
  //   kDataLoss           damaged or truncated, with the byte where it was seen
  //   kResourceExhausted  more than max_pixels
  //   kUnimplemented      12-bit, lossless, arithmetic coding, or an odd number of components
  Result<ImageInfo> ReadInfo(Bytes file, uint64_t max_pixels);

  // Reads the header like ReadInfo and leaves the decompressor ready for DecodeOpened. `file` must
  // stay valid until then.
  Result<ImageInfo> Open(Bytes file, uint64_t max_pixels);
  // Decodes `region` (inside the image) of the opened file into `pixels`; `row` is for rows that
  // need conversion. The view has 1 channel for grey files and when `luma` is asked for, else 3.
  // Fails as ReadInfo does, and with kResourceExhausted when memory is short.
  Result<PixelView> DecodeOpened(const Rect& region, bool luma, AlignedBuffer* pixels,
                                 AlignedBuffer* row);

  // Bytes that the decompressor holds between images.
  uint64_t memory_bytes() const;

  struct State;  // jpeg_state.h

 private:
  std::unique_ptr<State> state_;
};

}  // namespace headrace::codec
