// Decodes regions of JPEG files from seek points: only the MCUs that the region needs, several rows
// in lock step. The pixels are those of libjpeg-turbo's default decode. Safe on any bytes: what is
// not as it should be ends with a refusal. Keeps its memory from image to image; for one thread at
// a time. Used inside the codec only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/codec/entropy_lanes.h"
#include "headrace/codec/huffman.h"
#include "headrace/codec/image.h"
#include "headrace/codec/jpeg_frame.h"
#include "headrace/codec/sample_plane.h"
#include "headrace/codec/seek_record.h"

namespace headrace::codec {

class SeekDecoder {
 public:
  // Makes `file` ready for decoding from the record in `hints`; both must stay valid. Anything but
  // kNone says why it cannot be.
  SeekRefusal Open(Bytes file, const DecodeHints& hints);
  // Of the file opened last.
  const JpegFrame& frame() const { return frame_; }

  // Decodes `region` (inside the image, in pixels of the image reduced `reduction` times: 1, 2, 4
  // or 8). The view lies in `pixels` or in this object; 1 channel for grey files and when `luma` is
  // asked for, else 3.
  //   kRecordForeign  the record lies
  //   kNoRecord       memory is short
  //   kColorSpace, kSampling  luma of an image whose first component is not that, or is subsampled
  SeekRefusal Decode(const Rect& region, uint32_t reduction, bool luma, AlignedBuffer* pixels,
                     PixelView* view);
  // Decodes the samples that have a part in `region` (of the stored image) into planes, which live
  // until the next call.
  SeekRefusal DecodeSamples(const Rect& region, uint32_t reduction, YccPlanes* planes);

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

  // What libjpeg does to give a component the size of the image.
  enum class Upsampling : uint8_t { kNone, kHalfWidth, kHalfHeight, kHalf, kReplicate };
  // How the components come out of the transform at a reduction.
  struct Grid {
    uint32_t mcu_width = 0, mcu_height = 0;     // reduced pixels
    std::array<uint32_t, 3> side{};             // samples of a block
    std::array<uint32_t, 3> width{}, height{};  // samples of the components in the image
    std::array<uint32_t, 3> up_x{}, up_y{};     // pixels of a sample
    std::array<Upsampling, 3> upsampling{};
    bool Smooths(Upsampling way) const;
  };
  void SetGrid(uint32_t reduction);
  Upsampling UpsamplingOf(uint32_t component, uint32_t reduction) const;
  void Plan(const Rect& region, bool with_context);
  bool ReservePlanes(uint32_t num_planes);
  // Decodes the planes of the MCUs planned; what was decoded before a failure is wiped.
  SeekRefusal DecodePlanes(uint32_t num_planes);
  SeekRefusal DecodeGroups(uint32_t num_planes);
  SeekRefusal DecodeRows(uint32_t first_row, uint32_t end_row, uint32_t num_planes);
  // Where the scan ends, looked for from `start_bit` on.
  uint64_t ScanEnd(uint64_t start_bit) const;
  SeekRefusal LocateRow(uint32_t row, RowCode* code) const;
  bool UnstuffRow(uint32_t row, RowCode* code, uint8_t** out);
  SeekRefusal RunJobs(size_t num_bytes);
  void AddPredictors(uint32_t row, const RowCode& code, int16_t* blocks) const;
  void TransformRow(uint32_t row, int16_t* blocks, uint32_t num_planes) const;
  void MirrorBorders(uint32_t component) const;
  bool ConvertRows(const Rect& region, AlignedBuffer* pixels, PixelView* view);
  // The usual forms: luma whole, chroma of both kinds alike.
  bool IsUsual() const;
  void ConvertUsualRow(uint32_t first, uint32_t y, uint32_t count, uint8_t* rgb) const;
  void ConvertAnyRow(uint32_t first, uint32_t y, uint32_t count, uint8_t* rgb);
  // Row `y` of a component at the size of the image, from pixel `first` on.
  void UpsampleRow(uint32_t component, uint32_t first, uint32_t y, uint32_t count,
                   uint8_t* out) const;
  // The row next nearest to pixel row `y`, inside the component.
  uint32_t FarRow(uint32_t component, uint32_t y) const;

  size_t BlocksPerRow() const { return size_t{end_mcu_ - first_mcu_} * frame_.blocks_per_mcu; }
  int16_t* RowBlocks(size_t i) { return coefficients() + i * (BlocksPerRow() + 1) * 64; }
  int16_t* coefficients() { return reinterpret_cast<int16_t*>(coefficients_.data()); }

  HuffmanCache tables_;
  JpegFrame frame_;
  SeekRecord record_;
  const uint8_t* scan_ = nullptr;
  size_t scan_bytes_ = 0;
  std::array<const HuffmanTable*, 20> block_tables_{};  // DC and AC of each block of an MCU

  Grid grid_;
  // The MCUs that a region needs, and where decoding starts.
  uint32_t first_mcu_ = 0, wanted_mcu_ = 0, end_mcu_ = 0, first_row_ = 0, end_row_ = 0;
  YccPlanes planes_;

  AlignedBuffer samples_;       // of the planes
  AlignedBuffer coefficients_;  // all zero between uses
  size_t zeroed_bytes_ = 0;     // of coefficients_
  AlignedBuffer unstuffed_;
  AlignedBuffer rows_;        // of components at the size of the image
  AlignedBuffer row_tables_;  // HuffmanTable*[2 * blocks of a row]
  std::vector<RowCode> codes_;
  std::vector<EntropyJob> jobs_;
};

}  // namespace headrace::codec
