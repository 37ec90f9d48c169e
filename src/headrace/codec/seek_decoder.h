// Decodes regions of JPEG files from seek points: only the MCUs that the region needs, several rows
// in lock step. The pixels are those of libjpeg-turbo's default decode. Safe on any bytes: what is
// not as it should be ends with a refusal. Keeps its memory from image to image; for one thread at
// a time. Used inside the codec only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/codec/huffman.h"
#include "headrace/codec/image.h"
#include "headrace/codec/jpeg_frame.h"
#include "headrace/codec/seek_kernels.h"
#include "headrace/codec/seek_record.h"

namespace headrace::codec {

// Samples of one component: those of its blocks that were decoded.
struct SamplePlane {
  uint8_t* first = nullptr;  // sample (x, y)
  size_t stride = 0;
  uint32_t x = 0, y = 0;  // place in the component
  uint32_t width = 0, height = 0;
  uint8_t* At(uint32_t sample_x, uint32_t sample_y) const {
    return first + (sample_y - y) * stride + (sample_x - x);
  }
};

class SeekDecoder {
 public:
  // Makes `file` ready for decoding from the record in `hints`; both must stay valid. Anything but
  // kNone says why it cannot be.
  SeekRefusal Open(Bytes file, const DecodeHints& hints);
  // Of the file opened last.
  const JpegFrame& frame() const { return frame_; }

  // Decodes `region` (inside the image). The view lies in `pixels` or in this object; 1 channel for
  // grey files and when `luma` is asked for, else 3. kRecordForeign when the record lies, kNoRecord
  // when memory is short.
  SeekRefusal Decode(const Rect& region, bool luma, AlignedBuffer* pixels, PixelView* view);

  uint64_t memory_bytes() const;

 private:
  // The code of a row's MCUs [first_mcu_, end_mcu_).
  struct RowCode {
    SeekPoint start;
    uint64_t end_bit = 0;    // where the code of MCU `end_mcu_` or a later one starts
    bool end_exact = false;  // of end_mcu_ itself, and nothing lies between
    uint64_t expected = 0;   // end_bit in the unstuffed bytes
    size_t last_job = 0;
  };

  void Plan(const Rect& region);
  bool ReservePlanes(uint32_t num_planes);
  SeekRefusal DecodePlanes(const Rect& region, uint32_t num_planes);
  SeekRefusal DecodeRows(uint32_t first_row, uint32_t end_row, uint32_t num_planes);
  SeekRefusal LocateRow(uint32_t row, RowCode* code) const;
  bool UnstuffRow(uint32_t row, RowCode* code, uint8_t** out);
  SeekRefusal RunJobs(size_t num_bytes);
  void AddPredictors(uint32_t row, const RowCode& code, int16_t* blocks) const;
  void TransformRow(uint32_t row, int16_t* blocks, uint32_t num_planes) const;
  void MirrorBorders(const SamplePlane& plane, const JpegComponent& component) const;
  bool ConvertRows(const Rect& region, AlignedBuffer* pixels, PixelView* view) const;

  size_t BlocksPerRow() const { return size_t{end_mcu_ - first_mcu_} * frame_.blocks_per_mcu; }
  int16_t* RowBlocks(size_t i) { return coefficients() + i * (BlocksPerRow() + 1) * 64; }
  int16_t* coefficients() { return reinterpret_cast<int16_t*>(coefficients_.data()); }

  HuffmanCache tables_;
  JpegFrame frame_;
  SeekRecord record_;
  const uint8_t* scan_ = nullptr;
  size_t scan_bytes_ = 0;
  std::array<const HuffmanTable*, 12> block_tables_{};  // DC and AC of each block of an MCU

  // The MCUs that a region needs, and where decoding starts.
  uint32_t first_mcu_ = 0, wanted_mcu_ = 0, end_mcu_ = 0, first_row_ = 0, end_row_ = 0;
  std::array<SamplePlane, 3> planes_;

  AlignedBuffer samples_;       // of the planes
  AlignedBuffer coefficients_;  // all zero between uses
  size_t zeroed_bytes_ = 0;     // of coefficients_
  AlignedBuffer unstuffed_;
  AlignedBuffer row_tables_;  // HuffmanTable*[2 * blocks of a row]
  std::vector<RowCode> codes_;
  std::vector<EntropyJob> jobs_;
};

}  // namespace headrace::codec
