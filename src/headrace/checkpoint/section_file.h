// A small file of sections, each with its CRC32C, as manifests are; every bit of it is covered by a
// checksum or must be zero. docs/formats/checkpoint.md. Values: one owner at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace::checkpoint {

inline constexpr size_t kMagicBytes = 8;
inline constexpr uint32_t kMaxFileSections = 64;

// The first bytes, the newest version that is known, and what to call it in messages.
struct SectionFormat {
  std::string_view magic;  // kMagicBytes
  uint32_t version;
  std::string_view what;  // "manifest"
};

class SectionWriter {
 public:
  explicit SectionWriter(const SectionFormat& format) : format_(format) {}
  // Types ascend. `required`: a reader that does not know the type must refuse the file.
  void Add(uint32_t type, bool required, std::string body);
  std::string Finish() const;

 private:
  struct Section {
    uint32_t type, flags;
    std::string body;
  };
  SectionFormat format_;
  std::vector<Section> sections_;
};

class SectionReader {
 public:
  // Checks the whole file: kDataLoss, or kFailedPrecondition for a newer version or a required
  // section whose type is above `last_known`. Both name `name`. The bytes must outlive the reader.
  static Result<SectionReader> Open(Bytes file, const SectionFormat& format, uint32_t last_known,
                                    std::string_view name);
  // The body; empty when there is none of the type.
  Bytes Get(uint32_t type) const;
  // kDataLoss: the section `type` is wrong.
  Status Damaged(uint32_t type, std::string_view what) const;

 private:
  struct Section {
    uint32_t type, flags;
    uint64_t offset;
    Bytes body;
  };
  Status ReadTable(Bytes file, uint32_t last_known);
  Status Fault(uint64_t offset, std::string_view what) const;

  SectionFormat format_;
  std::string name_;
  std::vector<Section> sections_;
};

}  // namespace headrace::checkpoint
