// What a checkpoint holds: which tensors, and for each of its boxes in which file it lies and what
// its bytes are. A RankManifest is what one rank wrote; a Manifest is the whole checkpoint, made of
// one from each rank (assemble.h). Both are files that never change; docs/formats/checkpoint.md
// says how they are coded. Values: one owner at a time; reading from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/manifest_tables.h"

namespace headrace::checkpoint {

// A save: this step, by the run that opened the store as this epoch, for the attempt-th time (from
// 1 on).
struct SaveId {
  uint64_t step = 0, epoch = 0, attempt = 1;

  auto operator<=>(const SaveId&) const = default;
  // "step 100, epoch 3, attempt 1".
  std::string Text() const;
};

struct SaveInfo {
  SaveId id;
  uint32_t world_size = 1;
  int64_t started_ns = 0, finished_ns = 0;  // since 1970: of the copy's start, of the last write
  std::string kind = "full";                // or "light": see docs/formats/checkpoint.md
  std::string dataset_version;              // of the data set in use; may be empty
  std::string created_by;                   // "headrace 0.1.0"
  // Measured by who saves; 0: not known. Not in manifests: the publisher's go into the catalog.
  uint64_t stall_ns = 0;    // that the job was blocked
  uint64_t restore_ns = 0;  // that the restore took with which this run began
};

struct RankManifest {
  SaveInfo info;
  uint32_t rank = 0;
  TensorTable tensors;  // those of which it has boxes, or all; paths ascend
  std::vector<FileEntry> files;
  BoxTable boxes;            // in any order
  std::string tree;          // JSON: structure, scalars, aliases. Opaque here
  std::string loader_state;  // any bytes; may be empty
};

// A text that each rank has, and most have the same.
struct RankTexts {
  std::vector<std::string> texts;  // each once, in the order of the first rank that has it
  std::vector<uint32_t> of_rank;   // places in `texts`

  const std::string& Of(uint32_t rank) const { return texts[of_rank[rank]]; }
};

struct Manifest {
  SaveInfo info;                 // times: the earliest start, the latest end
  TensorTable tensors;           // paths ascend
  std::vector<FileEntry> files;  // by rank, then name; no name twice
  BoxTable boxes;                // by tensor, then by offset; they tile each tensor; none is empty
  std::vector<uint64_t> first_box;  // of each tensor, and the number of boxes
  RankTexts trees, loader_states;

  // The boxes of a tensor are [first_box[tensor], first_box[tensor + 1]).
  std::optional<uint32_t> FindTensor(std::string_view path) const {
    return tensors.Find(path, true);
  }
  uint64_t data_bytes() const;  // of all boxes
};

// The file's bytes. kInvalidArgument: numbers that are in no table, more than kMaxDimensions
// dimensions, a path of more than 65,535 bytes, or one that is there twice.
Result<std::string> EncodeRankManifest(const RankManifest& manifest);
// The same, and kInvalidArgument when boxes and tensors are not in the order that Manifest asks
// for.
Result<std::string> EncodeManifest(const Manifest& manifest);

// Reads one; `name` is for messages. All that the structs above promise is checked, but that the
// boxes tile the tensors (CheckTiling).
//   kDataLoss            damaged: says where and what.
//   kFailedPrecondition  written by a newer program.
Result<RankManifest> DecodeRankManifest(Bytes bytes, std::string_view name);
Result<Manifest> DecodeManifest(Bytes bytes, std::string_view name);

// Keys in a store. The epoch is in the attempt's name, so two runs share none.
std::string AttemptPrefix(const SaveId& id);  // "attempts/<step>-<epoch>-<attempt>/"
std::string RankManifestKey(const SaveId& id, uint32_t rank);    // AttemptPrefix + "<rank>.hrckr"
std::string ManifestKey(const SaveId& id, const Hash128& hash);  // "manifests/….hrckm"

}  // namespace headrace::checkpoint
