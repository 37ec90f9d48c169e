// Reads boxes of a checkpoint straight to where they are wanted, each byte once, each checked
// against its CRC32C. Any topology: what is wanted need not be what was saved. Thread-safe: one
// Restorer for all threads, each call with its own destinations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

// A box that is wanted, row-major.
struct WantedBox {
  uint32_t tensor = 0;  // in the manifest
  Box box;
  MutableBytes out;  // exactly what type and box take
};

struct RestoreOptions {
  int threads = 4;                          // check and copy at once; >= 1
  uint64_t read_bytes = uint64_t{1} << 20;  // of one read; a multiple of 64 KiB
  size_t depth = 32;  // reads around the page cache that are under way at once; >= 1
  // What takes so many bytes is read around the page cache; less of them may be read again soon.
  uint64_t direct_from_bytes = uint64_t{32} << 20;
  // Other processes of this machine want the boxes that are whole tensors too: through the page
  // cache they come from the disk once.
  bool shared_whole = false;
};

struct RestoreReport {
  uint64_t wanted_bytes = 0;  // of all boxes
  uint64_t read_bytes = 0;    // from the stores, without checksums
  struct Place {
    const DataFiles* files = nullptr;
    uint64_t bytes = 0;    // read from there
    uint64_t refused = 0;  // files that were missing or damaged there and came from the next
  };
  std::vector<Place> places;  // as they were given
};

// Fills all boxes. Each file is read from the first of `places` that has it whole; what fails its
// check there comes from the next. Several files are read at once: they may lie on several disks.
// What the system holds in memory comes from there; of the rest most goes around the page cache
// where the place can do that.
//   kInvalidArgument  a box that does not fit its tensor, or whose bytes are not as many.
//   kDataLoss         no place has the right bytes: names file, offset and what was found where.
//   kNotFound         no place has the file.
//   others            those of the last place.
// On failure what is in the destinations is unspecified.
Status Restore(std::span<DataFiles* const> places, const Manifest& manifest,
               std::span<const WantedBox> wanted, const RestoreOptions& options, const Context& ctx,
               RestoreReport* report);

}  // namespace headrace::checkpoint
