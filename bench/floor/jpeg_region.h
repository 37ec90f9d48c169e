// Decodes a rectangle of a JPEG through libjpeg-turbo's public interface.
// One RegionDecoder belongs to one thread; several may work at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace headrace::floor {

// A rectangle in pixels.
struct Rect {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};

// Rows of interleaved 8-bit RGB. Valid until the decoder's next call.
struct Pixels {
  const uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  int left = 0;  // where the asked-for rectangle begins in these pixels
  int top = 0;

  size_t row_bytes() const { return static_cast<size_t>(width) * 3; }
};

class RegionDecoder {
 public:
  RegionDecoder();
  ~RegionDecoder();
  RegionDecoder(const RegionDecoder&) = delete;
  RegionDecoder& operator=(const RegionDecoder&) = delete;

  // Reads the header. Returns the image's size as a Rect at 0, 0, or nothing if it is no JPEG.
  // `bytes` must live until DecodeRegion or DecodeAll returned.
  std::optional<Rect> Open(std::span<const uint8_t> bytes);

  // Decodes what covers `region` of the opened image and no row below it: rows above are skipped,
  // columns beside are dropped to the next block. Nothing if the stream is damaged.
  std::optional<Pixels> DecodeRegion(const Rect& region);

  // Decodes the whole opened image. Nothing if the stream is damaged.
  std::optional<Pixels> DecodeAll();

 private:
  struct Codec;
  void ReadRows(int num_rows);

  std::unique_ptr<Codec> codec_;
  std::vector<uint8_t> rows_;
};

}  // namespace headrace::floor
