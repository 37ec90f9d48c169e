// The frames of a TFRecord file: u64 length, u32 masked CRC32C of it, data, u32 masked CRC32C of
// the data, all little-endian. docs/formats/tfrecord.md. The scanner is for one owner at a time;
// the functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/file_window.h"
#include "headrace/dataset/tar.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// How TFRecord stores a CRC32C, and back.
uint32_t MaskCrc32c(uint32_t crc32c);
uint32_t UnmaskCrc32c(uint32_t masked);

inline constexpr uint64_t kTfHeaderBytes = 12;
inline constexpr uint64_t kTfFooterBytes = 4;

// True for names that say so: x.tfrecord, x.tfrecords, x.tfrec, each also with -00000-of-00010 (any
// number of digits) behind it, and with .gz behind that, so that it is refused with a reason.
bool IsTfRecordName(std::string_view name);
// True for names that may be those of TFRecords: they end in -00000-of-00010, as many writers name
// their files. LooksLikeTfRecord tells.
bool IsShardOfManyName(std::string_view name);
// True when the file begins with the header of a record. False also when it cannot be read.
bool LooksLikeTfRecord(const RandomAccessFile& file, const Context& ctx);

struct TfRecord {
  uint64_t number = 0;  // in the file, from 0; damaged stretches are not counted
  uint64_t offset = 0;  // of its data
  uint64_t length = 0;  // bytes of data
  uint32_t crc32c = 0;  // of the data, as the file states it, unmasked
};

class TfRecordScanner {
 public:
  // `window` must outlive this.
  TfRecordScanner(FileWindow* window, const Context& ctx) : window_(*window), ctx_(ctx) {}

  // Refuses a file that is compressed as a whole (kUnimplemented: says what to do) or whose first
  // bytes are no record (kDataLoss). An empty file has no records and is fine.
  Status CheckStart();

  // Steps to the next record; false at the end of the file, or when there is damage ahead: then
  // `damage` is set, and the next call stops there again until Resync was called. Only the header
  // is read: `crc32c` is left to ReadChecksum, so that one who looks into the data goes through the
  // file once. Also the file's I/O faults.
  Result<bool> Next(TfRecord* record, std::optional<TarDamage>* damage);

  // Reads what stands behind the record's data. kDataLoss: the file became shorter.
  Status ReadChecksum(TfRecord* record);

  // Looks behind the damage for the next record whose length and data both match their checksums.
  // Sets damage->resumed_at; reads at most a few times what is left of the file.
  Status Resync(TarDamage* damage);

  // Reads the data of a record and holds it against its checksum: kDataLoss with the record's
  // offset.
  Status CheckData(const TfRecord& record);

 private:
  Result<uint32_t> ChecksumOf(uint64_t offset, uint64_t length);

  FileWindow& window_;
  const Context& ctx_;
  uint64_t at_ = 0;
  uint64_t number_ = 0;
};

}  // namespace headrace::dataset
