// The layout of an index file, shared by IndexBuilder and IndexReader only; docs/formats/index.md
// says it in words. All numbers are little-endian. Constants and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/varint.h"

namespace headrace::dataset::index_format {

inline constexpr std::string_view kMagic("HRIDX\r\n\x1a", 8);
inline constexpr uint32_t kVersion = 2;
// What an index is written as that uses nothing newer: no records, no arrays.
inline constexpr uint32_t kFirstVersion = 1;
inline constexpr size_t kHeaderBytes = 4096;
inline constexpr size_t kChunkBytes = 4096;

// Places in the header.
inline constexpr size_t kAtMagic = 0;
inline constexpr size_t kAtVersion = 8;         // u32
inline constexpr size_t kAtKind = 12;           // u32, ShardKind
inline constexpr size_t kAtFileBytes = 16;      // u64
inline constexpr size_t kAtNumSamples = 24;     // u64
inline constexpr size_t kAtNumFields = 32;      // u64
inline constexpr size_t kAtNumUnchecked = 40;   // u64, fields without a CRC32C
inline constexpr size_t kAtShardBytes = 48;     // u64
inline constexpr size_t kAtShardHead = 56;      // u32
inline constexpr size_t kAtShardTail = 60;      // u32
inline constexpr size_t kAtChunkTable = 64;     // u64, from the start of the file
inline constexpr size_t kAtChunkTableCrc = 72;  // u32
inline constexpr size_t kAtNumSections = 76;    // u32
inline constexpr size_t kAtSections = 80;
inline constexpr size_t kSectionBytes = 24;  // u32 type, u32 flags, u64 offset, u64 length
inline constexpr size_t kAtHeaderCrc = kHeaderBytes - 4;  // u32 over the bytes before it
inline constexpr size_t kMaxSections = (kAtHeaderCrc - kAtSections) / kSectionBytes;

enum SectionType : uint32_t {
  kFieldNames = 1,  // u32 count; for each: u16 length, bytes
  kOffsets = 2,     // u64[samples + 1]: where each record starts in kRecords, and its end
  kRecords = 3,
  kKeyHashes = 4,  // {u32 CRC32C of the key, u32 sample}[samples], sorted
  // Both or none, and never required: a reader that skips them decodes the same pixels.
  kSeekOffsets =
      5,  // u64[fields + 1]: where each field's record starts in kSeekRecords, and its end
  kSeekRecords = 6,
  kSamplesCrc = 7,  // u32: CRC32C of the header that the index would have without what was added
};
inline constexpr uint32_t kLastSection = kSamplesCrc;
// A reader that does not know the section must refuse the file.
inline constexpr uint32_t kSectionRequired = 1;

// Bits of the byte before each field of a record.
inline constexpr uint8_t kFieldHasCrc = 1;
inline constexpr uint8_t kFieldInIndex = 2;
inline constexpr uint8_t kFieldIsArray = 4;  // from version 2 on

inline constexpr size_t kMaxKeyBytes = 65535;
inline constexpr size_t kMaxFieldsOfSample = 4096;
inline constexpr size_t kMaxFieldNames = 65536;
inline constexpr size_t kMaxFieldNameBytes = 65535;
inline constexpr uint64_t kMaxSamples = UINT32_MAX;

// How the numbers in records are coded.
using headrace::PutVarint;
using headrace::RecordCursor;
using headrace::UnZigZag;
using headrace::ZigZag;

}  // namespace headrace::dataset::index_format
