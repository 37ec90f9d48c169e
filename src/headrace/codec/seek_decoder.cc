#include "headrace/codec/seek_decoder.h"

#include <algorithm>
#include <cstring>

#include "headrace/base/crc32c.h"
#include "headrace/codec/color_rows.h"
#include "headrace/codec/destuff.h"
#include "headrace/codec/inverse_dct.h"

namespace headrace::codec {
namespace {

// Rows are decoded in groups whose coefficients stay in the second-level cache; a multiple of the
// number of lanes.
constexpr size_t kGroupBytes = 256 << 10;
constexpr uint32_t kGroupRows = 4;

// Room around the samples of a plane: one before the first, and what wide loads read past the last.
constexpr size_t kMargin = 64;

// Rows of pixels begin this far from a multiple of 64.
constexpr size_t kRowOffset = 16;

constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

uint8_t* Data(AlignedBuffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.data()); }

// The MCUs [first, end) of one axis that the pixels [begin, begin + size) need. Fancy upsampling
// (`halved`) looks one chroma sample, two pixels, to each side of a pair.
void McuRange(uint32_t begin, uint32_t size, uint32_t mcu, bool halved, uint32_t* first,
              uint32_t* end) {
  uint32_t context = halved ? 2 : 0, last = begin + size - 1;
  if (halved) {
    begin &= ~1u;
    last |= 1u;
  }
  *first = (begin > context ? begin - context : 0) / mcu;
  *end = std::min(*end, (last + context) / mcu + 1);
}

}  // namespace

SeekRefusal SeekDecoder::Open(Bytes file, const DecodeHints& hints) {
  SeekRefusal refusal = record_.Open(hints.seek_points);
  if (refusal != SeekRefusal::kNone) return refusal;
  uint32_t crc32c = hints.crc32c ? *hints.crc32c : Crc32c(file);
  if (crc32c != record_.crc32c()) return SeekRefusal::kRecordForeign;
  refusal = ReadJpegFrame(file, &frame_);
  if (refusal != SeekRefusal::kNone || !record_.Matches(frame_)) return SeekRefusal::kRecordForeign;
  scan_ = reinterpret_cast<const uint8_t*>(file.data()) + frame_.scan_offset;
  scan_bytes_ = file.size() - frame_.scan_offset;
  if (scan_bytes_ > UINT32_MAX / 8) return SeekRefusal::kRecordForeign;
  for (uint32_t b = 0; b < frame_.blocks_per_mcu; ++b) {
    const JpegComponent& component = frame_.components[frame_.block_component[b]];
    block_tables_[2 * b] = tables_.Get(component.dc, /*dc=*/true);
    block_tables_[2 * b + 1] = tables_.Get(component.ac, /*dc=*/false);
    if (!block_tables_[2 * b] || !block_tables_[2 * b + 1]) return SeekRefusal::kRecordForeign;
  }
  return SeekRefusal::kNone;
}

uint64_t SeekDecoder::memory_bytes() const {
  return tables_.memory_bytes() + samples_.capacity() + coefficients_.capacity() +
         unstuffed_.capacity() + rows_.capacity() + row_tables_.capacity() +
         codes_.capacity() * sizeof(RowCode) + jobs_.capacity() * sizeof(EntropyJob);
}

SeekRefusal SeekDecoder::Decode(const Rect& region, uint32_t reduction, bool luma,
                                AlignedBuffer* pixels, PixelView* view) {
  uint32_t num_planes = luma ? 1 : frame_.num_components;
  SetGrid(reduction);
  if (luma && frame_.rgb) return SeekRefusal::kColorSpace;
  if (luma && grid_.upsampling[0] != Upsampling::kNone) return SeekRefusal::kSampling;
  Plan(region, /*with_context=*/num_planes > 1);
  SeekRefusal refusal = DecodePlanes(num_planes);
  if (refusal != SeekRefusal::kNone) return refusal;
  if (num_planes == 1) {
    *view = {planes_[0].At(region.x, region.y), planes_[0].stride, region.width, region.height, 1};
    return SeekRefusal::kNone;
  }
  return ConvertRows(region, pixels, view) ? SeekRefusal::kNone : SeekRefusal::kNoRecord;
}

SeekRefusal SeekDecoder::DecodeSamples(const Rect& region, uint32_t reduction, YccPlanes* planes) {
  SetGrid(reduction);
  uint32_t right = (region.x + region.width + reduction - 1) / reduction;
  uint32_t bottom = (region.y + region.height + reduction - 1) / reduction;
  Rect reduced{region.x / reduction, region.y / reduction, 0, 0};
  reduced.width = right - reduced.x;
  reduced.height = bottom - reduced.y;
  Plan(reduced, /*with_context=*/false);
  SeekRefusal refusal = DecodePlanes(frame_.num_components);
  *planes = planes_;
  return refusal;
}

void SeekDecoder::SetGrid(uint32_t reduction) {
  uint32_t pixels = 8 / reduction;  // of a block's side, where nothing is subsampled
  grid_ = {};
  grid_.mcu_width = frame_.max_h * pixels;
  grid_.mcu_height = frame_.max_v * pixels;
  for (uint32_t c = 0; c < frame_.num_components; ++c) {
    const JpegComponent& component = frame_.components[c];
    // As libjpeg does: a subsampled component is reduced less, as long as both axes allow it.
    uint32_t side = pixels;
    while (side < 8 && grid_.mcu_width % (component.h * side * 2) == 0 &&
           grid_.mcu_height % (component.v * side * 2) == 0)
      side *= 2;
    grid_.side[c] = side;
    auto samples = [&](uint32_t size, uint32_t factor, uint32_t most) {
      return static_cast<uint32_t>((uint64_t{size} * factor * side + most * 8 - 1) / (most * 8));
    };
    grid_.width[c] = samples(frame_.width, component.h, frame_.max_h);
    grid_.height[c] = samples(frame_.height, component.v, frame_.max_v);
    planes_[c].step_x = frame_.max_h * 8 / (component.h * side);
    planes_[c].step_y = frame_.max_v * 8 / (component.v * side);
    grid_.up_x[c] = grid_.mcu_width / (component.h * side);
    grid_.up_y[c] = grid_.mcu_height / (component.v * side);
    grid_.upsampling[c] = UpsamplingOf(c, reduction);
  }
}

SeekDecoder::Upsampling SeekDecoder::UpsamplingOf(uint32_t component, uint32_t reduction) const {
  uint32_t x = grid_.up_x[component], y = grid_.up_y[component];
  bool smooth = reduction < 8, wide = grid_.width[component] > 2;
  if (x == 1 && y == 1) return Upsampling::kNone;
  if (smooth && x == 1 && y == 2) return Upsampling::kHalfHeight;
  if (smooth && wide && x == 2 && y == 1) return Upsampling::kHalfWidth;
  if (smooth && wide && x == 2 && y == 2) return Upsampling::kHalf;
  return Upsampling::kReplicate;
}

bool SeekDecoder::Grid::Smooths(Upsampling way) const {
  return std::find(upsampling.begin(), upsampling.end(), way) != upsampling.end();
}

void SeekDecoder::Plan(const Rect& region, bool with_context) {
  end_mcu_ = frame_.mcus_x;
  end_row_ = frame_.mcus_y;
  bool both = grid_.Smooths(Upsampling::kHalf);
  bool columns = with_context && (both || grid_.Smooths(Upsampling::kHalfWidth));
  bool rows = with_context && (both || grid_.Smooths(Upsampling::kHalfHeight));
  McuRange(region.x, region.width, grid_.mcu_width, columns, &wanted_mcu_, &end_mcu_);
  McuRange(region.y, region.height, grid_.mcu_height, rows, &first_row_, &end_row_);
  first_mcu_ = wanted_mcu_ / record_.spacing() * record_.spacing();
}

bool SeekDecoder::ReservePlanes(uint32_t num_planes) {
  size_t total = 0;
  std::array<size_t, 3> offsets{};
  for (uint32_t c = 0; c < num_planes; ++c) {
    const JpegComponent& component = frame_.components[c];
    SamplePlane& plane = planes_[c];
    uint32_t side = grid_.side[c];
    plane.x = wanted_mcu_ * component.h * side;
    plane.y = first_row_ * component.v * side;
    plane.width = (end_mcu_ - wanted_mcu_) * component.h * side;
    plane.height = (end_row_ - first_row_) * component.v * side;
    plane.stride = RoundUp(plane.width + kMargin, 64);
    offsets[c] = total + kMargin;
    total += plane.stride * plane.height + 2 * kMargin;
  }
  if (!samples_.Reserve(total)) return false;
  for (uint32_t c = 0; c < num_planes; ++c) planes_[c].first = Data(samples_) + offsets[c];
  return true;
}

SeekRefusal SeekDecoder::DecodePlanes(uint32_t num_planes) {
  SeekRefusal refusal = DecodeGroups(num_planes);
  if (refusal != SeekRefusal::kNone && coefficients_.data())
    std::memset(coefficients_.data(), 0, zeroed_bytes_);
  return refusal;
}

SeekRefusal SeekDecoder::DecodeGroups(uint32_t num_planes) {
  size_t blocks = BlocksPerRow(), row_bytes = (blocks + 1) * 64 * sizeof(int16_t);
  uint32_t group = static_cast<uint32_t>(kGroupBytes / row_bytes) / kGroupRows * kGroupRows;
  group = std::min(std::max(group, kGroupRows), end_row_ - first_row_);
  size_t coefficient_bytes = group * row_bytes;
  if (coefficient_bytes > zeroed_bytes_) {
    zeroed_bytes_ = 0;
    if (!coefficients_.Reserve(coefficient_bytes)) return SeekRefusal::kNoRecord;
    zeroed_bytes_ = coefficients_.capacity();
    std::memset(coefficients_.data(), 0, zeroed_bytes_);
  }
  if (!row_tables_.Reserve((2 * blocks + 1) * sizeof(void*)) || !ReservePlanes(num_planes))
    return SeekRefusal::kNoRecord;
  auto* tables = reinterpret_cast<const HuffmanTable**>(row_tables_.data());
  for (size_t i = 0; i < 2 * blocks; ++i)
    tables[i] = block_tables_[i % (2 * frame_.blocks_per_mcu)];
  tables[2 * blocks] = &HuffmanTable::End();
  for (uint32_t row = first_row_; row < end_row_; row += group) {
    SeekRefusal refusal = DecodeRows(row, std::min(row + group, end_row_), num_planes);
    if (refusal != SeekRefusal::kNone) return refusal;
  }
  return SeekRefusal::kNone;
}

SeekRefusal SeekDecoder::DecodeRows(uint32_t first_row, uint32_t end_row, uint32_t num_planes) {
  codes_.clear();
  jobs_.clear();
  size_t room = kEntropyPadding;
  for (uint32_t row = first_row; row < end_row; ++row) {
    RowCode code;
    SeekRefusal refusal = LocateRow(row, &code);
    if (refusal != SeekRefusal::kNone) return refusal;
    room += (code.end_bit - code.start.bit) / 8 + 4 + 8;
    if (frame_.restart_interval)
      room += ((end_mcu_ - first_mcu_) / frame_.restart_interval + 2) * 8;
    codes_.push_back(code);
  }
  if (!unstuffed_.Reserve(room)) return SeekRefusal::kNoRecord;
  uint8_t* out = Data(unstuffed_);
  for (uint32_t row = first_row; row < end_row; ++row)
    if (!UnstuffRow(row, &codes_[row - first_row], &out)) return SeekRefusal::kRecordForeign;
  SeekRefusal refusal = RunJobs(static_cast<size_t>(out - Data(unstuffed_)));
  if (refusal != SeekRefusal::kNone) return refusal;
  for (uint32_t row = first_row; row < end_row; ++row) {
    int16_t* blocks = RowBlocks(row - first_row);
    AddPredictors(row, codes_[row - first_row], blocks);
    TransformRow(row, blocks, num_planes);
  }
  return SeekRefusal::kNone;
}

uint64_t SeekDecoder::ScanEnd(uint64_t start_bit) const {
  // Behind the end marker other programs append what they like, films even: it must not count.
  std::string_view scan(reinterpret_cast<const char*>(scan_), scan_bytes_);
  size_t marker = scan.find("\xff\xd9", start_bit / 8);
  return uint64_t{marker == std::string_view::npos ? scan_bytes_ : marker} * 8;
}

SeekRefusal SeekDecoder::LocateRow(uint32_t row, RowCode* code) const {
  uint32_t spacing = record_.spacing();
  code->start = record_.At(row, first_mcu_ / spacing);
  uint32_t next = (end_mcu_ + spacing - 1) / spacing;
  bool last_row = row + 1 == record_.rows();
  uint64_t row_end = last_row ? ScanEnd(code->start.bit) : record_.RowStart(row + 1);
  code->end_bit = row_end;
  if (next < record_.points_per_row()) code->end_bit = record_.At(row, next).bit;
  bool whole_row = end_mcu_ == frame_.mcus_x;
  code->end_exact = whole_row ? !last_row : end_mcu_ % spacing == 0;
  // The next piece starts behind a marker, not where this one ends.
  uint64_t end_index = uint64_t{row} * frame_.mcus_x + end_mcu_;
  if (frame_.restart_interval && end_index % frame_.restart_interval == 0) code->end_exact = false;
  bool ordered = code->start.bit <= code->end_bit && code->end_bit <= row_end &&
                 row_end <= uint64_t{scan_bytes_} * 8;
  return ordered ? SeekRefusal::kNone : SeekRefusal::kRecordForeign;
}

bool SeekDecoder::UnstuffRow(uint32_t row, RowCode* code, uint8_t** out) {
  size_t at = code->start.bit / 8, end_byte = code->end_bit / 8;
  size_t stop = std::min<size_t>(end_byte + 2, scan_bytes_);
  uint32_t interval = frame_.restart_interval, mcu = first_mcu_;
  uint64_t index = uint64_t{row} * frame_.mcus_x + first_mcu_;
  int16_t* blocks = RowBlocks(static_cast<size_t>(code - codes_.data()));
  uint32_t first_bit = code->start.bit % 8;
  for (;;) {
    uint32_t count = end_mcu_ - mcu;
    if (interval)
      count = static_cast<uint32_t>(std::min<uint64_t>(count, interval - index % interval));
    uint8_t* begin = *out;
    EntropyJob job;
    job.bit = static_cast<uint64_t>(begin - Data(unstuffed_)) * 8 + first_bit;
    job.coefficients = blocks + size_t{mcu - first_mcu_} * frame_.blocks_per_mcu * 64;
    job.num_blocks = count * frame_.blocks_per_mcu;
    size_t left_out = 0, left_out_before_end = 0;
    Destuffed done = Destuff(scan_ + at, scan_ + stop, begin, [&](const uint8_t* place) {
      size_t zero = at + static_cast<size_t>(place - begin) + left_out++;
      if (zero < end_byte) left_out_before_end = left_out;
    });
    std::memset(done.write_end, 0, 8);
    *out = done.write_end + 8;
    code->expected = job.bit - first_bit + (code->end_bit - at * 8 - left_out_before_end * 8);
    mcu += count;
    index += count;
    job.continues = mcu < end_mcu_;
    jobs_.push_back(job);
    if (!job.continues) break;
    at = static_cast<size_t>(done.read_end - scan_);
    bool restart = stop - at >= 2 && scan_[at] == 0xff && (scan_[at + 1] & 0xf8) == 0xd0;
    if (!restart) return false;
    at += 2;
    first_bit = 0;
  }
  code->last_job = jobs_.size() - 1;
  return true;
}

SeekRefusal SeekDecoder::RunJobs(size_t num_bytes) {
  for (const EntropyJob& job : jobs_)
    if (job.bit > uint64_t{num_bytes} * 8) return SeekRefusal::kRecordForeign;
  std::memset(Data(unstuffed_) + num_bytes, 0, kEntropyPadding);
  EntropyTask task{Data(unstuffed_),
                   num_bytes,
                   reinterpret_cast<const HuffmanTable* const*>(row_tables_.data()),
                   static_cast<uint32_t>(BlocksPerRow()),
                   jobs_.data(),
                   jobs_.size()};
  if (!DecodeEntropy(task)) return SeekRefusal::kRecordForeign;
  for (const RowCode& code : codes_) {
    uint64_t bit = jobs_[code.last_job].bit;
    if (code.end_exact ? bit != code.expected : bit > code.expected)
      return SeekRefusal::kRecordForeign;
  }
  return SeekRefusal::kNone;
}

void SeekDecoder::AddPredictors(uint32_t row, const RowCode& code, int16_t* blocks) const {
  std::array<int16_t, 3> dc = code.start.dc;
  uint32_t interval = frame_.restart_interval;
  uint64_t index = uint64_t{row} * frame_.mcus_x + first_mcu_;
  for (uint32_t mcu = first_mcu_; mcu < end_mcu_; ++mcu, ++index) {
    if (interval && mcu > first_mcu_ && index % interval == 0) dc = {};
    for (uint32_t b = 0; b < frame_.blocks_per_mcu; ++b, blocks += 64) {
      int16_t& predictor = dc[frame_.block_component[b]];
      blocks[0] = predictor = static_cast<int16_t>(predictor + blocks[0]);
    }
  }
}

void SeekDecoder::TransformRow(uint32_t row, int16_t* blocks, uint32_t num_planes) const {
  size_t mcu_step = size_t{frame_.blocks_per_mcu} * 64;
  size_t lead = size_t{wanted_mcu_ - first_mcu_} * mcu_step;
  std::memset(blocks, 0, lead * sizeof(int16_t));
  const int16_t* end = blocks + BlocksPerRow() * 64;
  int16_t* wanted = blocks + lead;
  size_t block = 0;
  for (uint32_t c = 0; c < num_planes; ++c) {
    const JpegComponent& component = frame_.components[c];
    const SamplePlane& plane = planes_[c];
    for (uint32_t v = 0; v < component.v; ++v, block += component.h) {
      uint32_t side = grid_.side[c], y = (row * component.v + v) * side;
      InverseDct({wanted + block * 64, plane.width / side, component.h, mcu_step,
                  component.quantization.data(), side, plane.At(plane.x, y), plane.stride});
    }
  }
  if (num_planes < frame_.num_components)
    std::memset(wanted, 0, static_cast<size_t>(end - wanted) * sizeof(int16_t));
  std::memset(blocks + BlocksPerRow() * 64, 0, 64 * sizeof(int16_t));
}

// Upsampling takes the image's outermost samples twice.
void SeekDecoder::MirrorBorders(uint32_t component) const {
  const SamplePlane& plane = planes_[component];
  uint32_t width = grid_.width[component];
  bool left = plane.x == 0, right = plane.x + plane.width >= width;
  for (uint32_t y = plane.y; y < plane.y + plane.height; ++y) {
    if (left) *(plane.At(0, y) - 1) = *plane.At(0, y);
    if (right) *plane.At(width, y) = *plane.At(width - 1, y);
  }
}

bool SeekDecoder::IsUsual() const {
  const auto& ways = grid_.upsampling;
  return !frame_.rgb && ways[0] == Upsampling::kNone && ways[1] == ways[2] &&
         ways[1] != Upsampling::kHalfHeight && ways[1] != Upsampling::kReplicate;
}

uint32_t SeekDecoder::FarRow(uint32_t component, uint32_t y) const {
  uint32_t near = y / 2;
  return y % 2 ? std::min(near + 1, grid_.height[component] - 1) : near - (near > 0);
}

void SeekDecoder::ConvertUsualRow(uint32_t first, uint32_t y, uint32_t count, uint8_t* rgb) const {
  bool halved = grid_.up_x[1] == 2, halved_rows = grid_.up_y[1] == 2;
  uint32_t chroma_x = halved ? first / 2 : first, near = halved_rows ? y / 2 : y;
  ColorTask task{};
  task.y = planes_[0].At(first, y);
  task.cb = planes_[1].At(chroma_x, near);
  task.cr = planes_[2].At(chroma_x, near);
  if (halved_rows) {
    task.cb_far = planes_[1].At(chroma_x, FarRow(1, y));
    task.cr_far = planes_[2].At(chroma_x, FarRow(2, y));
  }
  task.halved = halved;
  task.pixels = count;
  task.rgb = rgb;
  ConvertColorRow(task);
}

void SeekDecoder::UpsampleRow(uint32_t component, uint32_t first, uint32_t y, uint32_t count,
                              uint8_t* out) const {
  const SamplePlane& plane = planes_[component];
  Upsampling way = grid_.upsampling[component];
  uint32_t up_x = grid_.up_x[component], last = grid_.width[component] - 1;
  uint32_t row = y / grid_.up_y[component];
  bool both = way == Upsampling::kHalf, down = both || way == Upsampling::kHalfHeight;
  auto near = [&](uint32_t x) -> uint32_t { return *plane.At(x, row); };
  uint32_t far_row = down ? FarRow(component, y) : row;
  auto far = [&](uint32_t x) -> uint32_t { return *plane.At(x, far_row); };
  for (uint32_t x = first; x < first + count; ++x) {
    uint32_t i = x / up_x, beside = x % 2 ? std::min(i + 1, last) : i - (i > 0);
    uint32_t value = near(i);
    if (both) {
      uint32_t here = 3 * near(i) + far(i), there = 3 * near(beside) + far(beside);
      value = (3 * here + there + (x % 2 ? 7 : 8)) >> 4;
    } else if (down) {
      value = (3 * near(i) + far(i) + (y % 2 ? 2 : 1)) >> 2;
    } else if (way == Upsampling::kHalfWidth) {
      value = (3 * near(i) + near(beside) + (x % 2 ? 2 : 1)) >> 2;
    }
    *out++ = static_cast<uint8_t>(value);
  }
}

void SeekDecoder::ConvertAnyRow(uint32_t first, uint32_t y, uint32_t count, uint8_t* rgb) {
  size_t stride = RoundUp(count + kRowPadding, 64);
  std::array<uint8_t*, 3> rows{};
  for (uint32_t c = 0; c < 3; ++c) {
    rows[c] = Data(rows_) + c * stride;
    UpsampleRow(c, first, y, count, rows[c]);
  }
  if (!frame_.rgb)
    return ConvertColorRow({rows[0], rows[1], rows[2], nullptr, nullptr, false, count, rgb});
  for (uint32_t x = 0; x < count; ++x)
    for (uint32_t c = 0; c < 3; ++c) rgb[3 * x + c] = rows[c][x];
}

bool SeekDecoder::ConvertRows(const Rect& region, AlignedBuffer* pixels, PixelView* view) {
  bool usual = IsUsual(), halved = usual && grid_.up_x[1] == 2;
  uint32_t first = halved ? region.x & ~1u : region.x;
  uint32_t count = region.x + region.width - first;
  size_t stride = RoundUp(size_t{count} * 3 + 3 * kRowPadding, 64);
  if (!pixels->Reserve(kRowOffset + stride * region.height)) return false;
  if (!usual && !rows_.Reserve(3 * RoundUp(count + kRowPadding, 64))) return false;
  uint8_t* rgb = Data(*pixels) + kRowOffset;
  if (halved)
    for (uint32_t c = 1; c < 3; ++c) MirrorBorders(c);
  for (uint32_t y = 0; y < region.height; ++y) {
    if (usual)
      ConvertUsualRow(first, region.y + y, count, rgb + y * stride);
    else
      ConvertAnyRow(first, region.y + y, count, rgb + y * stride);
  }
  *view = {rgb + (region.x - first) * 3, stride, region.width, region.height, 3};
  return true;
}

}  // namespace headrace::codec
