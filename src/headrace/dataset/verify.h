// Reads a data set again, whole, and holds every byte against every checksum there is: manifest,
// indexes, fields, and the shards' files between the fields. Any thread; works with threads of its
// own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/codec/transform.h"
#include "headrace/dataset/dataset.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

struct VerifyProgress {
  std::atomic<uint64_t> samples{0}, bytes{0};  // done
  std::atomic<uint64_t> total_samples{0};      // 0 until known
};

struct VerifyOptions {
  // Decodes each JPEG from its seek points, whole and in parts, and holds the pixels against
  // libjpeg-turbo's.
  bool pixels = false;
  bool learn = false;                  // compute and keep the checksums that are missing
  uint32_t threads = 0;                // 0 = one for each processor
  VerifyProgress* progress = nullptr;  // may be null; not owned
};

// What became of the JPEGs whose pixels were to be checked.
struct PixelTally {
  // By codec::SeekRefusal; kNone: decoded from seek points and compared.
  codec::DecodeCounts images{};
  uint64_t regions = 0;    // that were compared
  uint64_t different = 0;  // images
  void Add(const PixelTally& other);
};

// What was found of one shard. Fields are counted once each.
struct ShardVerdict {
  std::string name;
  uint64_t samples = 0;
  uint64_t bytes = 0;       // read
  uint64_t checked = 0;     // fields that match a checksum
  uint64_t learned = 0;     // fields whose checksum was missing and is kept now
  uint64_t unverified = 0;  // fields that were read and have no checksum to be held against
  uint64_t damaged = 0;     // fields that are wrong or cannot be read, and faults of the shard
  PixelTally pixels;
  void Add(const ShardVerdict& other);  // all but the name
};

struct VerifyReport {
  // Most faults listed; more are counted only.
  static constexpr size_t kMaxFaults = 10'000;

  std::vector<ShardVerdict> shards;
  std::vector<Status> faults;  // in the order of shards and offsets, with their places
  uint64_t num_faults = 0;
};

// Verifies `dataset`. Damage is in the report and no failure; a fault of the machine is one:
// kPermissionDenied, kResourceExhausted, kCancelled.
Result<VerifyReport> Verify(std::shared_ptr<const Dataset> dataset, const VerifyOptions& options,
                            const Context& ctx);

}  // namespace headrace::dataset
