#include "headrace/codec/exif.h"

#include <string_view>

#include "headrace/codec/chunks.h"

namespace headrace::codec {
namespace {

constexpr std::string_view kExifPrefix("Exif\0\0", 6);
constexpr uint32_t kOrientationTag = 0x0112;
constexpr size_t kEntryBytes = 12;

// A TIFF structure's bytes with its byte order. Reads outside give 0.
class Tiff {
 public:
  explicit Tiff(Bytes bytes) : bytes_(bytes) {
    std::string_view text = AsText(bytes.first(std::min<size_t>(bytes.size(), 4)));
    big_ = text == std::string_view("MM\0*", 4) || text == std::string_view("MM*\0", 4);
    known_ = big_ || text == std::string_view("II*\0", 4) || text == std::string_view("II\0*", 4);
  }

  bool known() const { return known_; }
  bool Holds(uint64_t offset, size_t count) const { return offset + count <= bytes_.size(); }
  uint32_t Read16(uint64_t offset) const { return Read(offset, 2); }
  uint32_t Read32(uint64_t offset) const { return Read(offset, 4); }

 private:
  uint32_t Read(uint64_t offset, size_t count) const {
    if (!Holds(offset, count)) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i)
      value = value << 8 | std::to_integer<uint32_t>(bytes_[offset + (big_ ? i : count - 1 - i)]);
    return value;
  }

  Bytes bytes_;
  bool big_ = false, known_ = false;
};

// The value of an entry that holds one whole number, else 0.
uint32_t WholeNumber(const Tiff& tiff, uint64_t entry) {
  if (tiff.Read32(entry + 4) != 1) return 0;
  switch (tiff.Read16(entry + 2)) {
    case 3:  // SHORT
    case 8:  // SSHORT
      return tiff.Read16(entry + 8);
    case 4:  // LONG
    case 9:  // SLONG
      return tiff.Read32(entry + 8);
    default:
      return 0;
  }
}

Bytes FindJpegExif(Bytes file) {
  size_t at = 2;
  auto byte = [&](size_t i) { return std::to_integer<unsigned>(file[i]); };
  while (file.size() - at >= 4) {
    if (byte(at) != 0xff || byte(at + 1) == 0xff || byte(at + 1) == 0) {
      ++at;  // padding, or junk that libjpeg skips, too
      continue;
    }
    unsigned marker = byte(at + 1);
    if (marker == 0xda || marker == 0xd9) return {};  // the image data, or the end
    at += 2;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;  // no length
    size_t length = size_t{byte(at)} << 8 | byte(at + 1);
    if (length < 2 || length > file.size() - at) return {};
    Bytes segment = file.subspan(at + 2, length - 2);
    if (marker == 0xe1 && AsText(segment).starts_with(kExifPrefix)) return segment;
    at += length;
  }
  return {};
}

Bytes FindPngExif(Bytes file) {
  for (PngChunks chunks(file); chunks.Next();)
    if (chunks.type() == "eXIf") return chunks.data();
  return {};
}

Bytes FindWebpExif(Bytes file) {
  constexpr unsigned kExifFlag = 0x08;
  bool announced = false;
  for (RiffChunks chunks(file); chunks.Next();) {
    if (chunks.type() == "VP8X" && !chunks.data().empty())
      announced = (std::to_integer<unsigned>(chunks.data()[0]) & kExifFlag) != 0;
    if (chunks.type() == "EXIF") return announced ? chunks.data() : Bytes();
  }
  return {};
}

}  // namespace

uint8_t ReadExifOrientation(Bytes exif) {
  while (AsText(exif).starts_with(kExifPrefix)) exif = exif.subspan(kExifPrefix.size());
  Tiff tiff(exif);
  if (!tiff.known() || !tiff.Holds(0, 8)) return 1;
  uint64_t directory = tiff.Read32(4), entries = tiff.Read16(directory);
  uint32_t orientation = 1;
  for (uint64_t i = 0; i < entries; ++i) {
    uint64_t entry = directory + 2 + i * kEntryBytes;
    if (!tiff.Holds(entry, kEntryBytes)) break;
    if (tiff.Read16(entry) == kOrientationTag) orientation = WholeNumber(tiff, entry);
  }
  return orientation >= 1 && orientation <= 8 ? static_cast<uint8_t>(orientation) : 1;
}

Bytes FindExif(ImageFormat format, Bytes file) {
  switch (format) {
    case ImageFormat::kJpeg:
      return FindJpegExif(file);
    case ImageFormat::kPng:
      return FindPngExif(file);
    case ImageFormat::kWebp:
      return FindWebpExif(file);
    case ImageFormat::kUnknown:
      break;
  }
  return {};
}

}  // namespace headrace::codec
