// How many images of an index have seek points (codec/seek_points.h), and why the others have none.
// Pure functions on an open index; any thread.
#pragma once

#include <cstdint>

#include "headrace/base/json.h"
#include "headrace/base/status.h"
#include "headrace/codec/transform.h"
#include "headrace/dataset/index.h"

namespace headrace::dataset {

// A larger file gets no seek points: who makes them holds all of it in memory.
inline constexpr uint64_t kMaxSeekableBytes = uint64_t{512} << 20;

// Counts images of which an index has a record: JPEGs, when it was made with seek points.
struct SeekTally {
  codec::DecodeCounts images{};  // by codec::SeekRefusal
  uint64_t image_bytes = 0;      // of these images
  uint64_t record_bytes = 0;     // of their records

  uint64_t num_images() const;
  uint64_t num_with_points() const;
  void Add(const SeekTally& other);
  // {"images": n, "with_points": n, "without": {"progressive": n...}, "image_bytes": n,
  // "record_bytes": n}
  Json ToJson() const;
};

// The counts of all but kNone that are not 0, by name.
Json RefusalsJson(const codec::DecodeCounts& images);

// Reads every record of the index. kDataLoss as IndexReader.
Result<SeekTally> TallySeekPoints(const IndexReader& index);

}  // namespace headrace::dataset
