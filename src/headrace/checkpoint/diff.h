// What differs between two checkpoints, of one store or of two: which tensors, and by how much.
// Equal boxes are known by their hashes; only the others are read, piece by piece. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/elements.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

struct DiffSide {
  DataFiles* files = nullptr;
  const Manifest* manifest = nullptr;
};

struct DiffOptions {
  uint64_t memory_bytes = uint64_t{64} << 20;  // for the bytes of both sides together
  int threads = 4;                             // that read
};

// A tensor that is not the same on both sides.
struct TensorDiff {
  enum class Kind : uint8_t { kChanged, kOnlyInA, kOnlyInB, kOtherType };
  std::string path;
  Kind kind = Kind::kChanged;
  std::string a, b;              // "BF16 [4, 32]"; empty where it is not
  DType dtype = DType::kU8;      // kChanged
  ElementDifference difference;  // kChanged
};

struct DiffReport {
  uint64_t same = 0;             // tensors without any difference
  std::vector<TensorDiff> rows;  // by path
  uint64_t read_bytes = 0;       // of both sides
};

// May be read by other threads meanwhile.
struct DiffProgress {
  std::atomic<uint64_t> bytes{0}, total_bytes{0};  // of tensors whose boxes are not known as equal
};

// Failures are those of Restore.
Result<DiffReport> DiffCheckpoints(const DiffSide& a, const DiffSide& b, const DiffOptions& options,
                                   const Context& ctx, DiffProgress* progress);

}  // namespace headrace::checkpoint
