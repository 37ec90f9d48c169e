// Seek points that an index lacks: built from a JPEG's bytes when a reader first meets it, kept in
// a side file of the node's cache (docs/formats/side-files.md), and found there by all readers of
// the node from then on. Nothing here ever fails a read, and no pixel depends on it. For one thread
// at a time, as the SampleReader that owns it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/cache/side_file.h"
#include "headrace/codec/seek_points.h"
#include "headrace/dataset/dataset.h"

namespace headrace::dataset {

// A larger JPEG is left to `headrace index`: who builds holds about twice its bytes.
inline constexpr uint64_t kMaxLearnedJpegBytes = uint64_t{64} << 20;
// MCUs from seek point to seek point.
inline constexpr uint32_t kLearnedSpacing = 8;

class LearnedSeekPoints {
 public:
  // `dataset` outlives this.
  LearnedSeekPoints(cache::SidePlace place, const Dataset* dataset,
                    std::shared_ptr<SeekPointCounters> counters);

  // The record for `data`, all bytes of a field of a sample; empty when it is no JPEG or nothing is
  // kept. `crc32c` is that of `data`; computed here when it is needed and empty. Valid until the
  // next call for the same field.
  Bytes Get(FieldId field, uint64_t sample, Bytes data, std::optional<uint32_t>* crc32c);

  // Nanoseconds that the last Get took.
  uint64_t last_ns() const { return last_ns_; }
  uint64_t memory_bytes() const;

 private:
  struct Kept {
    std::unique_ptr<cache::SideFile> file;
    std::string record;        // the one that was built last, as it is kept
    uint32_t until_open = 0;   // JPEGs that pass before the file is opened again
    uint32_t until_build = 0;  // and before another one is built
  };
  bool Open(FieldId field, Kept* kept);
  Bytes Build(uint64_t sample, Bytes data, uint32_t crc32c, Kept* kept);

  const cache::SidePlace place_;
  const Dataset* const dataset_;
  const std::shared_ptr<SeekPointCounters> counters_;
  std::vector<Kept> kept_;  // by field
  codec::SeekPointBuilder builder_;
  std::string built_;
  uint64_t last_ns_ = 0;
};

}  // namespace headrace::dataset
