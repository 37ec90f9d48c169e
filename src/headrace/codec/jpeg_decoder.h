// Decodes JPEG files and regions of them: from seek points where there are any, else with
// libjpeg-turbo; the pixels are the same. Keeps decoders and their memory from image to image. Not
// thread-safe: one owner at a time. Used inside the codec only.
#pragma once

#include <cstdint>
#include <memory>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"
#include "headrace/codec/jpeg_frame.h"
#include "headrace/codec/seek_decoder.h"

namespace headrace::codec {

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();

  // Reads the header. Allocates no more than some tables, whatever the header claims.
  //   kDataLoss           damaged or truncated, with the byte where it was seen
  //   kResourceExhausted  more than max_pixels
  //   kUnimplemented      12-bit, lossless, or an odd number of components
  Result<ImageInfo> ReadInfo(Bytes file, uint64_t max_pixels);

  // Reads the header like ReadInfo and leaves a decoder ready for DecodeOpened. `file` and `hints`
  // must stay valid until then.
  Result<ImageInfo> Open(Bytes file, const DecodeHints& hints, uint64_t max_pixels);
  // Decodes `region` of the opened file (inside the image, in pixels of the image reduced
  // `reduction` times in the inverse DCT: 1, 2, 4 or 8) into `pixels`; `row` is for rows that need
  // conversion. The view has 1 channel for grey files and when `luma` is asked for, else 3. Fails
  // as ReadInfo does, and with kResourceExhausted when memory is short.
  Result<PixelView> DecodeOpened(const Rect& region, uint32_t reduction, bool luma,
                                 AlignedBuffer* pixels, AlignedBuffer* row);

  // Whether the opened file is stored as Y, Cb and Cr that DecodeSamples can give.
  bool HasYccPlanes() const;
  // Decodes the samples of the opened file that have a part in `region` (of the unreduced image).
  // The planes live in `buffer` or in this object until its next call. Only after HasYccPlanes.
  Result<YccPlanes> DecodeSamples(const Rect& region, uint32_t reduction, AlignedBuffer* buffer);

  // How the last image was decoded: kNone = from seek points.
  SeekRefusal last_path() const { return path_; }
  // Of the last failure: whether it says nothing of the file, only that memory is short.
  bool memory_is_short() const;

  // kNone when libjpeg reads the same from the header as `frame` says, tables included, so that
  // both decode the same pixels; else why it does not.
  SeekRefusal CompareFrame(Bytes file, const JpegFrame& frame);

  // Bytes that the decoders hold between images.
  uint64_t memory_bytes() const;

  struct State;  // jpeg_state.h

 private:
  Result<ImageInfo> OpenReference(Bytes file, uint64_t max_pixels);
  // After a record that lied: makes libjpeg ready for the file.
  Status Fall(SeekRefusal refusal);

  std::unique_ptr<State> state_;
  SeekDecoder seek_;
  SeekRefusal path_ = SeekRefusal::kNoRecord;
  Bytes file_;  // opened with seek points
};

}  // namespace headrace::codec
