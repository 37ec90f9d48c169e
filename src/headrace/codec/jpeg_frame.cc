#include "headrace/codec/jpeg_frame.h"

#include <algorithm>
#include <optional>
#include <span>

namespace headrace::codec {
namespace {

enum Marker : uint8_t {
  kSof0 = 0xc0,
  kSof1 = 0xc1,
  kSof2 = 0xc2,
  kDht = 0xc4,
  kJpg = 0xc8,
  kDac = 0xcc,
  kSof15 = 0xcf,
  kRst0 = 0xd0,
  kEoi = 0xd9,
  kSos = 0xda,
  kDqt = 0xdb,
  kDri = 0xdd,
  kApp0 = 0xe0,
  kApp14 = 0xee,
  kTem = 0x01,
};

constexpr std::array<uint8_t, 5> kJfif = {'J', 'F', 'I', 'F', 0};

// The body of one marker segment. Reads past its end give 0 and make it not ok.
class Segment {
 public:
  Segment(const uint8_t* begin, const uint8_t* end) : p_(begin), end_(end) {}
  bool ok() const { return ok_; }
  size_t left() const { return static_cast<size_t>(end_ - p_); }
  uint8_t Byte() {
    if (p_ == end_) return ok_ = false, uint8_t{0};
    return *p_++;
  }
  uint16_t Word() {
    uint8_t high = Byte();
    return static_cast<uint16_t>(high << 8 | Byte());
  }
  const uint8_t* Take(size_t bytes) {
    if (left() < bytes) return ok_ = false, nullptr;
    p_ += bytes;
    return p_ - bytes;
  }

 private:
  const uint8_t* p_;
  const uint8_t* end_;
  bool ok_ = true;
};

class FrameReader {
 public:
  explicit FrameReader(JpegFrame* frame) : frame_(frame) { *frame = JpegFrame(); }

  SeekRefusal Read(Bytes file) {
    auto* begin = reinterpret_cast<const uint8_t*>(file.data());
    if (file.size() < 4 || begin[0] != 0xff || begin[1] != 0xd8) return SeekRefusal::kNotJpeg;
    size_t at = 2;
    for (;;) {
      while (at + 4 <= file.size() && begin[at] == 0xff && begin[at + 1] == 0xff) ++at;
      if (at + 4 > file.size() || begin[at] != 0xff) return SeekRefusal::kDamaged;
      uint8_t marker = begin[at + 1];
      bool bare = marker == kTem || marker == 0 || (marker >= kRst0 && marker <= kEoi);
      size_t length = static_cast<size_t>(begin[at + 2] << 8 | begin[at + 3]);
      if (bare || length < 2 || length > file.size() - at - 2) return SeekRefusal::kDamaged;
      Segment segment(begin + at + 4, begin + at + 2 + length);
      at += 2 + length;
      SeekRefusal refusal = ReadSegment(marker, &segment);
      if (refusal != SeekRefusal::kNone) return refusal;
      if (!segment.ok()) return SeekRefusal::kDamaged;
      if (marker != kSos) continue;
      frame_->scan_offset = at;
      return Finish();
    }
  }

 private:
  SeekRefusal ReadSegment(uint8_t marker, Segment* segment) {
    switch (marker) {
      case kSof0:
      case kSof1:
        return ReadFrameHeader(segment);
      case kSof2:
        return SeekRefusal::kProgressive;
      case kDht:
        return ReadHuffman(segment);
      case kDqt:
        return ReadQuantization(segment);
      case kDri:
        frame_->restart_interval = segment->Word();
        return SeekRefusal::kNone;
      case kApp0:
        jfif_ |= segment->left() >= 14 && std::equal(kJfif.begin(), kJfif.end(), segment->Take(5));
        return SeekRefusal::kNone;
      case kApp14:
        ReadAdobe(segment);
        return SeekRefusal::kNone;
      case kSos:
        return ReadScanHeader(segment);
      case kDac:
      case kJpg:
        return SeekRefusal::kCoding;
      default:
        return marker > kSof2 && marker <= kSof15 ? SeekRefusal::kCoding : SeekRefusal::kNone;
    }
  }

  SeekRefusal ReadFrameHeader(Segment* s) {
    if (frame_->num_components) return SeekRefusal::kDamaged;
    uint8_t precision = s->Byte();
    frame_->height = s->Word();
    frame_->width = s->Word();
    uint8_t count = s->Byte();
    if (!s->ok() || !frame_->height || !frame_->width) return SeekRefusal::kDamaged;
    if (precision != 8) return SeekRefusal::kCoding;
    if (count != 1 && count != 3) return SeekRefusal::kColorSpace;
    frame_->num_components = count;
    for (uint32_t c = 0; c < count; ++c) {
      JpegComponent& component = frame_->components[c];
      component.id = s->Byte();
      uint8_t factors = s->Byte();
      component.h = factors >> 4;
      component.v = factors & 15;
      quantization_of_[c] = s->Byte();
      if (quantization_of_[c] > 3) return SeekRefusal::kDamaged;
    }
    return s->left() == 0 ? SeekRefusal::kNone : SeekRefusal::kDamaged;
  }

  SeekRefusal ReadHuffman(Segment* s) {
    while (s->left() > 0) {
      uint8_t slot = s->Byte();
      HuffmanSpec spec;
      spec.counts = s->Take(16);
      if (!spec.counts || (slot & 0xe0) || (slot & 15) > 3) return SeekRefusal::kDamaged;
      for (size_t i = 0; i < 16; ++i) spec.num_symbols += spec.counts[i];
      spec.symbols = s->Take(spec.num_symbols);
      if (!spec.symbols || spec.num_symbols > 256) return SeekRefusal::kDamaged;
      huffman_[slot >> 4][slot & 15] = spec;
    }
    return SeekRefusal::kNone;
  }

  SeekRefusal ReadQuantization(Segment* s) {
    while (s->left() > 0) {
      uint8_t slot = s->Byte();
      if ((slot & 15) > 3 || slot >> 4 > 1) return SeekRefusal::kDamaged;
      auto& table = quantization_[slot & 15];
      for (size_t k = 0; k < 64; ++k) {
        uint16_t value = slot >> 4 ? s->Word() : s->Byte();
        table[kZigZag[k]] = static_cast<int16_t>(value);
      }
      has_quantization_[slot & 15] = true;
    }
    return SeekRefusal::kNone;
  }

  void ReadAdobe(Segment* s) {
    const uint8_t* body = s->left() >= 12 ? s->Take(12) : nullptr;
    if (body && std::equal(body, body + 5, "Adobe")) adobe_transform_ = body[11];
  }

  SeekRefusal ReadScanHeader(Segment* s) {
    uint32_t count = frame_->num_components;
    if (count == 0) return SeekRefusal::kDamaged;
    if (s->Byte() != count) return SeekRefusal::kNonInterleaved;
    for (uint32_t c = 0; c < count; ++c) {
      JpegComponent& component = frame_->components[c];
      if (s->Byte() != component.id) return SeekRefusal::kNonInterleaved;
      uint8_t tables = s->Byte();
      if (tables >> 4 > 3 || (tables & 15) > 3) return SeekRefusal::kDamaged;
      component.dc = huffman_[0][tables >> 4];
      component.ac = huffman_[1][tables & 15];
      if (!component.dc.counts || !component.ac.counts || !has_quantization_[quantization_of_[c]])
        return SeekRefusal::kDamaged;
      component.quantization = quantization_[quantization_of_[c]];
    }
    s->Take(3);  // the spectral range, which libjpeg ignores in sequential files
    return s->left() == 0 ? SeekRefusal::kNone : SeekRefusal::kDamaged;
  }

  // As libjpeg guesses it.
  bool IsRgb() const {
    const auto& c = frame_->components;
    if (frame_->num_components != 3 || jfif_) return false;
    if (adobe_transform_) return *adobe_transform_ == 0;
    return c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B';
  }

  SeekRefusal Finish() {
    JpegFrame& f = *frame_;
    if (f.num_components == 1) f.components[0].h = f.components[0].v = 1;
    f.rgb = IsRgb();
    for (const JpegComponent& component : std::span(f.components).first(f.num_components)) {
      if (component.h - 1 > 3 || component.v - 1 > 3) return SeekRefusal::kDamaged;
      f.max_h = std::max(f.max_h, component.h);
      f.max_v = std::max(f.max_v, component.v);
    }
    f.mcus_x = (f.width + 8 * f.max_h - 1) / (8 * f.max_h);
    f.mcus_y = (f.height + 8 * f.max_v - 1) / (8 * f.max_v);
    for (uint32_t c = 0; c < f.num_components; ++c) {
      const JpegComponent& component = f.components[c];
      if (f.max_h % component.h || f.max_v % component.v) return SeekRefusal::kSampling;
      for (uint32_t b = 0; b < component.h * component.v; ++b) {
        if (f.blocks_per_mcu == f.block_component.size()) return SeekRefusal::kDamaged;
        f.block_component[f.blocks_per_mcu++] = static_cast<uint8_t>(c);
      }
    }
    return SeekRefusal::kNone;
  }

  JpegFrame* frame_;
  std::array<std::array<int16_t, 64>, 4> quantization_{};
  std::array<bool, 4> has_quantization_{};
  std::array<std::array<HuffmanSpec, 4>, 2> huffman_{};  // DC, AC
  std::array<uint8_t, 3> quantization_of_{};
  std::optional<uint8_t> adobe_transform_;
  bool jfif_ = false;
};

}  // namespace

SeekRefusal ReadJpegFrame(Bytes file, JpegFrame* frame) { return FrameReader(frame).Read(file); }

}  // namespace headrace::codec
