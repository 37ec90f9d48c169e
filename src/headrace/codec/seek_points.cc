#include "headrace/codec/seek_points.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "headrace/codec/destuff.h"
#include "headrace/codec/huffman.h"
#include "headrace/codec/jpeg_decoder.h"
#include "headrace/codec/jpeg_frame.h"
#include "headrace/codec/seek_record.h"

namespace headrace::codec {
namespace {

// Zero bytes after each piece of the scan. After the last one more than the longest block takes,
// since a position past the end is noticed after a block.
constexpr size_t kPadding = 32, kLastPadding = 512;

// Entropy-coded data between two restart markers, without stuffing.
struct Piece {
  size_t begin = 0, end = 0;  // in the unstuffed bytes
  size_t scan_begin = 0;      // in the scan
  size_t first_stuffing = 0;  // place in the list of stuffings
};

// Largest magnitude of a dequantized coefficient that every form of libjpeg's inverse DCT takes
// without overflow. No encoder comes near: 8-bit samples give about 1024.
constexpr int32_t kMaxCoefficient = 8191;
// The sizes of values that need no look, for fine quantizers and for all that are taken.
constexpr uint32_t kFineSize = 7, kCoarseSize = 5;
constexpr int32_t LargestQuantizer(uint32_t size) { return kMaxCoefficient / ((1 << size) - 1); }

constexpr uint32_t kMaxSpacing = 32;

// Pieces between restart markers, each of which takes memory of its own: some tens of MB in all.
constexpr uint64_t kMaxPieces = 1 << 20;

}  // namespace

struct SeekPointBuilder::Rep {
  HuffmanCache tables;
  JpegDecoder reference;
  JpegFrame frame;
  AlignedBuffer raw;
  std::vector<size_t> stuffings;  // places in `raw` before which a zero byte was left out
  std::vector<Piece> pieces;
  std::vector<SeekPoint> points;
  std::array<const HuffmanTable*, 10> dc{}, ac{};  // of each block of an MCU
  std::array<int32_t, 3> max_dc{};                 // largest magnitude of a DC value, quantized

  SeekRefusal Build(Bytes file, uint32_t crc32c, uint32_t spacing, std::string* record);

 private:
  SeekRefusal ReadHeader(Bytes file);
  SeekRefusal SplitScan(Bytes file);
  SeekRefusal WalkScan(uint32_t spacing);
  // Reads one MCU at `bit` of `raw`; false when it is damaged.
  bool WalkMcu(uint64_t end_bit, uint64_t* bit, std::array<int16_t, 3>* predictors) const;
  // Drops every second point of each row.
  void ThinOut(uint32_t* spacing);
  bool SkipAc(const HuffmanTable& table, const JpegComponent& component, uint64_t* bit) const;
  // `bit` of `raw`, counted in the scan's bytes as they are stored.
  uint64_t StoredBit(const Piece& piece, uint64_t bit, size_t* next_stuffing) const;
  uint64_t Window(uint64_t bit) const {
    uint64_t bytes = __builtin_bswap64(LoadLittle<uint64_t>(raw.data() + bit / 8));
    return bytes << (bit % 8);
  }
};

SeekRefusal SeekPointBuilder::Rep::ReadHeader(Bytes file) {
  SeekRefusal refusal = ReadJpegFrame(file, &frame);
  if (refusal != SeekRefusal::kNone) return refusal;
  refusal = reference.CompareFrame(file, frame);
  if (refusal != SeekRefusal::kNone) return refusal;
  for (uint32_t b = 0; b < frame.blocks_per_mcu; ++b) {
    const JpegComponent& component = frame.components[frame.block_component[b]];
    const auto& quantization = component.quantization;
    int32_t largest = 1;
    for (int16_t q : quantization) largest = std::max<int32_t>(largest, static_cast<uint16_t>(q));
    if (largest > LargestQuantizer(kCoarseSize)) return SeekRefusal::kCoding;
    uint32_t size = largest <= LargestQuantizer(kFineSize) ? kFineSize : kCoarseSize;
    const HuffmanUse use{.decode = false, .skip_size = size};
    dc[b] = tables.Get(component.dc, /*dc=*/true, use);
    ac[b] = tables.Get(component.ac, /*dc=*/false, use);
    if (!dc[b] || !ac[b]) return SeekRefusal::kDamaged;
    max_dc[frame.block_component[b]] = kMaxCoefficient / std::max<int32_t>(1, quantization[0]);
  }
  return SeekRefusal::kNone;
}

SeekRefusal SeekPointBuilder::Rep::SplitScan(Bytes file) {
  pieces.clear();
  stuffings.clear();
  auto* scan = reinterpret_cast<const uint8_t*>(file.data()) + frame.scan_offset;
  auto* end = reinterpret_cast<const uint8_t*>(file.data()) + file.size();
  uint64_t mcus = uint64_t{frame.mcus_x} * frame.mcus_y;
  uint64_t count = frame.restart_interval ? (mcus - 1) / frame.restart_interval + 1 : 1;
  if (static_cast<size_t>(end - scan) > size_t{UINT32_MAX} / 8) return SeekRefusal::kTooLarge;
  // Each piece takes a byte and two of marker, at least.
  if (count > static_cast<size_t>(end - scan) / 3 + 1) return SeekRefusal::kDamaged;
  if (count > kMaxPieces) return SeekRefusal::kTooLarge;
  if (!raw.Reserve(static_cast<size_t>(end - scan) + count * kPadding + kLastPadding))
    return SeekRefusal::kNoRecord;
  auto* base = reinterpret_cast<uint8_t*>(raw.data());
  uint8_t* out = base;
  const uint8_t* in = scan;
  for (uint64_t i = 0; i < count; ++i) {
    if (i > 0) {
      bool restart = end - in >= 2 && in[0] == 0xff && in[1] == 0xd0 + (i - 1) % 8;
      if (!restart) return SeekRefusal::kDamaged;
      in += 2;
    }
    Piece piece;
    piece.begin = static_cast<size_t>(out - base);
    piece.scan_begin = static_cast<size_t>(in - scan);
    piece.first_stuffing = stuffings.size();
    Destuffed done = Destuff(in, end, out, [&](const uint8_t* at) {
      stuffings.push_back(static_cast<size_t>(at - base));
    });
    in = done.read_end;
    piece.end = static_cast<size_t>(done.write_end - base);
    pieces.push_back(piece);
    std::memset(done.write_end, 0, kPadding);
    out = done.write_end + kPadding;
  }
  std::memset(out, 0, kLastPadding - kPadding);
  return SeekRefusal::kNone;
}

bool SeekPointBuilder::Rep::SkipAc(const HuffmanTable& table, const JpegComponent& component,
                                   uint64_t* bit) const {
  for (uint32_t k = 1; k < 64;) {
    uint64_t window = Window(*bit);
    uint32_t skip = table.skips[window >> (64 - HuffmanTable::kLookupBits)];
    uint32_t advance = skip >> 8 & 0xff;
    // Symbols beyond the end of the block are another table's: then one at a time.
    bool ends = skip & HuffmanTable::kSkipEnds;
    if ((skip & 0xff) && (k + advance < 64 || (k + advance == 64 && !ends))) {
      *bit += skip & 0xff;
      k += advance;
      if (ends) return true;
      continue;
    }
    HuffmanValue symbol = table.DecodeOne(window);
    if (symbol.bits == 0) return false;
    *bit += symbol.bits;
    if (symbol.run == HuffmanTable::kEndOfBlock) return true;
    k += symbol.run + 1;
    if (k > 64) return false;
    int32_t quantizer = component.quantization[kZigZag[k - 1]];
    if (std::abs(symbol.value) * quantizer > kMaxCoefficient) return false;
  }
  return true;
}

bool SeekPointBuilder::Rep::WalkMcu(uint64_t end_bit, uint64_t* bit,
                                    std::array<int16_t, 3>* predictors) const {
  for (uint32_t b = 0; b < frame.blocks_per_mcu; ++b) {
    HuffmanValue symbol = dc[b]->DecodeOne(Window(*bit));
    if (symbol.bits == 0) return false;
    *bit += symbol.bits;
    uint32_t c = frame.block_component[b];
    int32_t value = (*predictors)[c] + symbol.value;
    if (std::abs(value) > max_dc[c]) return false;
    (*predictors)[c] = static_cast<int16_t>(value);
    if (!SkipAc(*ac[b], frame.components[c], bit) || *bit > end_bit) return false;
  }
  return true;
}

uint64_t SeekPointBuilder::Rep::StoredBit(const Piece& piece, uint64_t bit,
                                          size_t* next_stuffing) const {
  while (*next_stuffing < stuffings.size() && stuffings[*next_stuffing] <= bit / 8)
    ++*next_stuffing;
  uint64_t left_out = *next_stuffing - piece.first_stuffing;
  return bit + 8 * (piece.scan_begin - piece.begin + left_out);
}

SeekRefusal SeekPointBuilder::Rep::WalkScan(uint32_t spacing) {
  points.clear();
  std::array<int16_t, 3> predictors{};
  size_t next_piece = 0, next_stuffing = 0;
  uint64_t bit = 0, left = 0;
  Piece piece;
  for (uint32_t row = 0; row < frame.mcus_y; ++row) {
    for (uint32_t x = 0; x < frame.mcus_x; ++x, --left) {
      if (left == 0) {
        // Whole bytes before a restart marker would be damage to libjpeg.
        if (next_piece > 0 && (bit + 7) / 8 != piece.end) return SeekRefusal::kDamaged;
        piece = pieces[next_piece++];
        next_stuffing = piece.first_stuffing;
        bit = piece.begin * 8;
        predictors = {};
        left = frame.restart_interval ? frame.restart_interval : UINT64_MAX;
      }
      if (x % spacing == 0) points.push_back({StoredBit(piece, bit, &next_stuffing), predictors});
      if (!WalkMcu(piece.end * 8, &bit, &predictors)) return SeekRefusal::kDamaged;
    }
  }
  return SeekRefusal::kNone;
}

void SeekPointBuilder::Rep::ThinOut(uint32_t* spacing) {
  size_t per_row = (frame.mcus_x + *spacing - 1) / *spacing, kept = 0;
  for (size_t i = 0; i < points.size(); ++i)
    if (i % per_row % 2 == 0) points[kept++] = points[i];
  points.resize(kept);
  *spacing *= 2;
}

SeekRefusal SeekPointBuilder::Rep::Build(Bytes file, uint32_t crc32c, uint32_t spacing,
                                         std::string* record) {
  SeekRefusal refusal = ReadHeader(file);
  if (refusal == SeekRefusal::kNone) refusal = SplitScan(file);
  if (refusal == SeekRefusal::kNone) refusal = WalkScan(spacing);
  if (refusal != SeekRefusal::kNone) return refusal;
  // At most 2 % of the file for a point every 8 MCUs, 4 % for every 4: fewer points in large,
  // smooth pictures.
  const size_t limit = file.size() / 100 * 16 / spacing;
  for (;; ThinOut(&spacing)) {
    if (!WriteSeekRecord(frame, crc32c, spacing, points, record)) return SeekRefusal::kTooLarge;
    if (record->size() <= limit || spacing == kMaxSpacing) return SeekRefusal::kNone;
  }
}

uint64_t SeekPointBuilder::memory_bytes() const {
  return sizeof(Rep) + rep_->tables.memory_bytes() + rep_->reference.memory_bytes() +
         rep_->raw.capacity() + rep_->stuffings.capacity() * sizeof(size_t) +
         rep_->pieces.capacity() * sizeof(Piece) + rep_->points.capacity() * sizeof(SeekPoint);
}

SeekPointBuilder::SeekPointBuilder() : rep_(std::make_unique<Rep>()) {}
SeekPointBuilder::~SeekPointBuilder() = default;
SeekPointBuilder::SeekPointBuilder(SeekPointBuilder&&) noexcept = default;

SeekRefusal SeekPointBuilder::Build(Bytes file, uint32_t crc32c, uint32_t spacing,
                                    std::string* record) {
  record->clear();
  SeekRefusal refusal = SeekRefusal::kNotJpeg;
  try {
    if (DetectImageFormat(file) == ImageFormat::kJpeg)
      refusal = rep_->Build(file, crc32c, spacing, record);
  } catch (const std::bad_alloc&) {
    refusal = SeekRefusal::kNoRecord;
  }
  if (refusal != SeekRefusal::kNone) record->clear();
  bool stated = refusal != SeekRefusal::kNone && refusal != SeekRefusal::kNotJpeg &&
                refusal != SeekRefusal::kNoRecord;
  if (stated) WriteRefusal(refusal, record);
  return refusal;
}

Result<SeekRecordInfo> ReadSeekRecordInfo(Bytes bytes) {
  SeekRecord record;
  SeekRefusal refusal = record.Open(bytes);
  if (refusal == SeekRefusal::kNoRecord || refusal == SeekRefusal::kRecordForeign)
    return Error(Code::kDataLoss, "{} bytes that are no record of seek points", bytes.size());
  if (refusal == SeekRefusal::kRecordUnknown)
    return Error(Code::kFailedPrecondition,
                 "seek points of a newer version: update headrace, or index the dataset anew");
  SeekRecordInfo info{refusal};
  if (refusal != SeekRefusal::kNone) return info;
  info.width = record.width();
  info.height = record.height();
  info.spacing = record.spacing();
  info.num_points = uint64_t{record.rows()} * record.points_per_row();
  return info;
}

std::string_view SeekRefusalName(SeekRefusal refusal) {
  static constexpr std::array<std::string_view, kNumSeekRefusals> kNames = {
      "seek_points",     "not_jpeg",  "no_record",      "damaged",
      "progressive",     "coding",    "color_space",    "sampling",
      "non_interleaved", "too_large", "record_unknown", "record_foreign"};
  return kNames[static_cast<size_t>(refusal)];
}

}  // namespace headrace::codec
