// Seek points: places in a JPEG's Huffman-coded scan from which decoding can start, so that a crop
// decodes only its own blocks. The file itself is never changed; what is kept of it is one record,
// docs/formats/seek-points.md is its format. Pixels never depend on whether there is a record.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace::codec {

// Why an image is decoded by libjpeg-turbo instead of from seek points. The values are stored in
// records: never change one.
enum class SeekRefusal : uint8_t {
  kNone = 0,            // decoded from seek points
  kNotJpeg = 1,         // another format
  kNoRecord = 2,        // a JPEG for which no seek points are kept
  kDamaged = 3,         // the header or the scan is not whole and sound
  kProgressive = 4,     // made seekable by a lossless transcode (pack --jpeg=sequential)
  kCoding = 5,          // arithmetic, lossless, hierarchical, not 8-bit, or very coarsely quantized
  kColorSpace = 6,      // CMYK, YCCK
  kSampling = 7,        // factors that do not divide the largest one
  kNonInterleaved = 8,  // more than one scan
  kTooLarge = 9,        // a scan of more than 512 MiB
  kRecordUnknown = 10,  // a record of a newer version
  kRecordForeign = 11,  // a record that was made for other bytes, or lies
};
inline constexpr size_t kNumSeekRefusals = 12;
// "progressive", "no_record"...: names in statistics.
std::string_view SeekRefusalName(SeekRefusal refusal);

// Makes records. Keeps its memory and Huffman tables from image to image. For one thread at a time.
class SeekPointBuilder {
 public:
  SeekPointBuilder();
  ~SeekPointBuilder();
  SeekPointBuilder(SeekPointBuilder&&) noexcept;

  // Makes the record of `file` with a seek point every `spacing` MCUs (4 or 8; up to 32 where the
  // record would be more than 16 / `spacing` % of the file) into `record`. Reads
  // the whole scan. `crc32c` is that of `file`; the record is only used for bytes that have it.
  // A JPEG that cannot be decoded from seek points gets a record of two bytes that says why; other
  // files and empty ones get an empty record. Returns that reason, kNone for a record with points.
  // Never fails: memory that cannot be had gives an empty record and kNoRecord.
  SeekRefusal Build(Bytes file, uint32_t crc32c, uint32_t spacing, std::string* record);

  // Bytes held between images: about what the largest one had.
  uint64_t memory_bytes() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// What the seek points of one image are, for listings and checks.
struct SeekRecordInfo {
  SeekRefusal refusal = SeekRefusal::kNone;
  uint32_t width = 0, height = 0;
  uint32_t spacing = 0;     // MCUs
  uint64_t num_points = 0;  // of the whole image
};
// kDataLoss: no record; kFailedPrecondition: of a newer version.
Result<SeekRecordInfo> ReadSeekRecordInfo(Bytes record);

}  // namespace headrace::codec
