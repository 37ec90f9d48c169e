// Writes what one rank saves: finds what is unchanged since the checkpoint before, writes the rest
// to data files with their checksums, then the rank's manifest. Nothing of it can be seen before
// the checkpoint is published (publisher.h). One save at a time.
//
// One that is kept over several saves remembers a few bytes of each box. What differs in these is
// written at once, and hashed meanwhile; all else is hashed first, since it need not be written if
// it is as before.
//
// A data file's metadata name the save, so no two saves ever write the same file: what is removed
// with one checkpoint is never what another one has just written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

// A box to be saved. Its bytes must stay as they are until the save is written.
struct SavedBox {
  uint32_t tensor = 0;  // in RankSave::tensors
  Box box;
  Bytes data;            // row-major; exactly what type and box take
  bool replica = false;  // other ranks may save it too
};

// What one rank saves. Files hold the boxes in this order.
struct RankSave {
  SaveInfo info;
  uint32_t rank = 0;
  TensorTable tensors;
  std::vector<SavedBox> boxes;
  std::string tree, loader_state;
};

inline constexpr uint64_t kMaxFileBytes = uint64_t{2} << 30;

struct WriteOptions {
  uint64_t max_file_bytes = kMaxFileBytes;  // a file ends at the first box beyond; >= 1
  int threads = 2;                          // hash; >= 1
  bool reuse = true;  // names boxes that an earlier checkpoint holds instead of writing them
};

struct WriteReport {
  uint64_t boxes = 0, bytes = 0;                    // of the rank's state
  uint64_t reused_boxes = 0, reused_bytes = 0;      // of these: were in an earlier checkpoint
  uint64_t files = 0, written_bytes = 0;            // data files with their headers
  uint64_t hash_ns = 0, write_ns = 0, sync_ns = 0;  // some of the hashing is done while writing
};

class RankWriter {
 public:
  RankWriter(DataFiles* files, const WriteOptions& options) : files_(files), options_(options) {}

  // Returns the rank's manifest; data, sums and manifest are durable then. `before` is a published
  // checkpoint of the same store, or null.
  //   kInvalidArgument    a box that does not fit its tensor, or whose bytes are not as many.
  //   kResourceExhausted  no room: nothing was written, or what was is removed by the sweep.
  //   others              those of the store.
  Result<RankManifest> Write(const RankSave& save, const Manifest* before, const Context& ctx,
                             WriteReport* report);

 private:
  DataFiles* const files_;
  const WriteOptions options_;
  std::map<std::string, std::vector<Hash128>> samples_;  // of the last save's boxes, by its kind
};

}  // namespace headrace::checkpoint
