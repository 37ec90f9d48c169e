// The record of seek points of one JPEG, as docs/formats/seek-points.md defines it: writing it, and
// reading it without trusting it. Pure; any thread. Used inside the codec only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/codec/jpeg_frame.h"
#include "headrace/codec/seek_points.h"

namespace headrace::codec {

// Where the code of an MCU starts.
struct SeekPoint {
  // Bits from the start of the scan. A byte FF with the 00 stuffed behind it counts as two bytes,
  // and the bits of that code lie in the first.
  uint64_t bit = 0;
  std::array<int16_t, 3> dc{};  // predictors before this MCU
};

// Views a record. All numbers are checked against the record's end; whether they are true of the
// file only decoding can tell.
class SeekRecord {
 public:
  // The refusal that the record states, kRecordUnknown or kRecordForeign (not a record); else kNone
  // and the accessors may be used.
  SeekRefusal Open(Bytes record);

  uint32_t width() const { return width_; }
  uint32_t height() const { return height_; }
  uint32_t spacing() const { return spacing_; }
  uint32_t crc32c() const { return crc32c_; }
  uint32_t scan_offset() const { return scan_offset_; }
  uint32_t rows() const { return rows_; }
  uint32_t points_per_row() const { return points_per_row_; }
  // True when the record is of an image with this frame.
  bool Matches(const JpegFrame& frame) const;

  // The point before MCU `index` * spacing() of `row`; both inside.
  SeekPoint At(uint32_t row, uint32_t index) const;
  // The bit where `row` starts.
  uint64_t RowStart(uint32_t row) const;

 private:
  uint32_t Field(uint64_t bit, uint32_t width) const;

  Bytes bytes_;
  uint32_t width_ = 0, height_ = 0, spacing_ = 0, crc32c_ = 0, scan_offset_ = 0;
  uint32_t num_components_ = 0, sampling_ = 0;
  uint32_t rows_ = 0, points_per_row_ = 0;
  uint32_t position_bits_ = 0, dc_bits_ = 0;
  std::array<uint32_t, 3> dc_width_{};
  std::array<int16_t, 3> dc_least_{};
  uint64_t row_bits_ = 0;
};

// Makes a record of the points of an image, row by row. False when the scan is too long for it.
bool WriteSeekRecord(const JpegFrame& frame, uint32_t crc32c, uint32_t spacing,
                     std::span<const SeekPoint> points, std::string* record);
void WriteRefusal(SeekRefusal refusal, std::string* record);

}  // namespace headrace::codec
