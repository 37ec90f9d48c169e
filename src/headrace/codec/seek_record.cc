#include "headrace/codec/seek_record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "headrace/base/crc32c.h"

namespace headrace::codec {
namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kRefusedBytes = 2;
// Places in a record.
constexpr size_t kAtVersion = 0, kAtRefusal = 1, kAtSpacing = 2, kAtSampling = 3, kAtWidth = 4,
                 kAtHeight = 6, kAtCrc = 8, kAtScan = 12, kAtPositionBits = 16, kAtDcBits = 17,
                 kAtDcLeast = 20, kAtRecordCrc = 28, kAtRows = 32;

// CRC32C of all bytes but those of the CRC itself.
uint32_t RecordCrc(Bytes record) {
  return Crc32c(record.subspan(kAtRows), Crc32c(record.first(kAtRecordCrc)));
}

// Blocks of an MCU on each axis less one, and whether there are three components.
uint32_t SamplingCode(const JpegFrame& frame) {
  return (frame.max_h - 1) | (frame.max_v - 1) << 2 | (frame.num_components == 3 ? 16u : 0u);
}

// Appends a field of at most 32 bits. `out` has 8 bytes more than the fields take.
void PutBits(uint64_t value, uint64_t width, uint64_t* at, char* out) {
  char* place = out + *at / 8;
  StoreLittle(place, LoadLittle<uint64_t>(place) | value << (*at % 8));
  *at += width;
}

}  // namespace

SeekRefusal SeekRecord::Open(Bytes record) {
  if (record.empty()) return SeekRefusal::kNoRecord;
  if (record.size() < kRefusedBytes) return SeekRefusal::kRecordForeign;
  auto byte = [&](size_t at) { return std::to_integer<uint8_t>(record[at]); };
  if (byte(kAtVersion) != kVersion) return SeekRefusal::kRecordUnknown;
  if (uint8_t refusal = byte(kAtRefusal)) {
    if (refusal >= kNumSeekRefusals) return SeekRefusal::kRecordUnknown;
    const auto stated = static_cast<SeekRefusal>(refusal);
    // These have no record to state them.
    const bool absurd = stated == SeekRefusal::kNotJpeg || stated == SeekRefusal::kNoRecord;
    return absurd ? SeekRefusal::kRecordForeign : stated;
  }
  if (record.size() < kAtRows || byte(kAtSpacing) > 7 || byte(kAtSampling) > 31)
    return SeekRefusal::kRecordForeign;
  bytes_ = record;
  spacing_ = 1u << byte(kAtSpacing);
  sampling_ = byte(kAtSampling);
  num_components_ = sampling_ & 16 ? 3 : 1;
  width_ = LoadLittle<uint16_t>(&record[kAtWidth]);
  height_ = LoadLittle<uint16_t>(&record[kAtHeight]);
  crc32c_ = LoadLittle<uint32_t>(&record[kAtCrc]);
  scan_offset_ = LoadLittle<uint32_t>(&record[kAtScan]);
  uint32_t mcu_width = 8 * ((sampling_ & 3) + 1), mcu_height = 8 * ((sampling_ >> 2 & 3) + 1);
  rows_ = (height_ + mcu_height - 1) / mcu_height;
  points_per_row_ = ((width_ + mcu_width - 1) / mcu_width + spacing_ - 1) / spacing_;
  if (rows_ == 0 || points_per_row_ == 0) return SeekRefusal::kRecordForeign;
  position_bits_ = byte(kAtPositionBits);
  dc_bits_ = 0;
  for (uint32_t c = 0; c < 3; ++c) {
    dc_width_[c] = byte(kAtDcBits + c);
    dc_least_[c] = LoadLittle<int16_t>(&record[kAtDcLeast + 2 * c]);
    if (dc_width_[c] > 16 || (c >= num_components_ && dc_width_[c] > 0))
      return SeekRefusal::kRecordForeign;
    dc_bits_ += dc_width_[c];
  }
  if (position_bits_ > 32) return SeekRefusal::kRecordForeign;
  row_bits_ = uint64_t{points_per_row_} * dc_bits_ + uint64_t{points_per_row_ - 1} * position_bits_;
  uint64_t bytes = kAtRows + uint64_t{rows_} * 4 + (rows_ * row_bits_ + 7) / 8;
  bool sound =
      bytes == record.size() && RecordCrc(record) == LoadLittle<uint32_t>(&record[kAtRecordCrc]);
  return sound ? SeekRefusal::kNone : SeekRefusal::kRecordForeign;
}

bool SeekRecord::Matches(const JpegFrame& frame) const {
  return frame.width == width_ && frame.height == height_ && frame.scan_offset == scan_offset_ &&
         SamplingCode(frame) == sampling_;
}

uint32_t SeekRecord::Field(uint64_t bit, uint32_t width) const {
  if (width == 0) return 0;
  size_t at = kAtRows + size_t{rows_} * 4 + bit / 8;
  uint64_t window = 0;
  std::memcpy(&window, &bytes_[at], std::min<size_t>(8, bytes_.size() - at));
  return static_cast<uint32_t>(window >> (bit % 8) & ((uint64_t{1} << width) - 1));
}

uint64_t SeekRecord::RowStart(uint32_t row) const {
  return LoadLittle<uint32_t>(&bytes_[kAtRows + size_t{row} * 4]);
}

SeekPoint SeekRecord::At(uint32_t row, uint32_t index) const {
  uint64_t bit = row * row_bits_ + index * uint64_t{dc_bits_ + position_bits_};
  if (index > 0) bit -= position_bits_;
  SeekPoint point;
  point.bit = RowStart(row);
  if (index > 0) {
    point.bit += Field(bit, position_bits_);
    bit += position_bits_;
  }
  for (uint32_t c = 0; c < num_components_; ++c) {
    point.dc[c] =
        static_cast<int16_t>(dc_least_[c] + static_cast<int32_t>(Field(bit, dc_width_[c])));
    bit += dc_width_[c];
  }
  return point;
}

bool WriteSeekRecord(const JpegFrame& frame, uint32_t crc32c, uint32_t spacing,
                     std::span<const SeekPoint> points, std::string* record) {
  uint32_t per_row = (frame.mcus_x + spacing - 1) / spacing;
  uint64_t longest = 0;
  std::array<int16_t, 3> least{}, most{};
  for (size_t i = 0; i < points.size(); ++i) {
    longest = std::max(longest, points[i].bit - points[i / per_row * per_row].bit);
    for (uint32_t c = 0; c < frame.num_components; ++c) {
      least[c] = i ? std::min(least[c], points[i].dc[c]) : points[i].dc[c];
      most[c] = i ? std::max(most[c], points[i].dc[c]) : points[i].dc[c];
    }
  }
  if (points.back().bit > UINT32_MAX || frame.scan_offset > UINT32_MAX) return false;
  uint32_t position_bits = static_cast<uint32_t>(std::bit_width(longest)), dc_bits = 0;
  record->assign(kAtRows, '\0');
  char* head = record->data();
  head[kAtVersion] = kVersion;
  head[kAtSpacing] = static_cast<char>(std::bit_width(spacing) - 1);
  head[kAtSampling] = static_cast<char>(SamplingCode(frame));
  StoreLittle(head + kAtWidth, static_cast<uint16_t>(frame.width));
  StoreLittle(head + kAtHeight, static_cast<uint16_t>(frame.height));
  StoreLittle(head + kAtCrc, crc32c);
  StoreLittle(head + kAtScan, static_cast<uint32_t>(frame.scan_offset));
  head[kAtPositionBits] = static_cast<char>(position_bits);
  std::array<uint32_t, 3> widths{};
  for (uint32_t c = 0; c < frame.num_components; ++c) {
    widths[c] = static_cast<uint32_t>(std::bit_width(static_cast<uint32_t>(most[c] - least[c])));
    head[kAtDcBits + c] = static_cast<char>(widths[c]);
    StoreLittle(head + kAtDcLeast + 2 * c, least[c]);
    dc_bits += widths[c];
  }
  size_t rows = points.size() / per_row;
  uint64_t bits = points.size() * uint64_t{dc_bits} + (points.size() - rows) * position_bits;
  size_t fields = kAtRows + 4 * rows;
  record->resize(fields + (bits + 7) / 8 + 8, '\0');
  uint64_t at = fields * 8;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i % per_row == 0)
      StoreLittle(record->data() + kAtRows + 4 * (i / per_row),
                  static_cast<uint32_t>(points[i].bit));
    else
      PutBits(points[i].bit - points[i / per_row * per_row].bit, position_bits, &at,
              record->data());
    for (uint32_t c = 0; c < frame.num_components; ++c)
      PutBits(static_cast<uint32_t>(points[i].dc[c] - least[c]), widths[c], &at, record->data());
  }
  record->resize(record->size() - 8);
  StoreLittle(record->data() + kAtRecordCrc, RecordCrc(AsBytes(*record)));
  return true;
}

void WriteRefusal(SeekRefusal refusal, std::string* record) {
  record->assign({static_cast<char>(kVersion), static_cast<char>(refusal)});
}

}  // namespace headrace::codec
