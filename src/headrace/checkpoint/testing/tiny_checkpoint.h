// Small checkpoints without any data: what ranks would hand in. For tests only. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/checkpoint/assemble.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

struct TinyTensor {
  std::string path;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
};

// Adds a box of `tensor` (a number in manifest->tensors) behind all others in the last file. Its
// hash is made of tensor and box, so equal boxes have equal ones.
inline void AddTinyBox(uint32_t tensor, BoxView box, RankManifest* manifest) {
  FileEntry& file = manifest->files.back();
  BoxEntry entry;
  entry.tensor = tensor;
  entry.file = static_cast<uint32_t>(manifest->files.size() - 1);
  entry.offset = file.bytes;
  entry.bytes = *BytesOf(manifest->tensors.dtype(tensor), *Volume(box.length));
  const std::string name = std::string(manifest->tensors.path(tensor)) + BoxText(box);
  entry.hash = HashOf(AsBytes(name));
  entry.crc32c = static_cast<uint32_t>(entry.hash.low);
  file.bytes += entry.bytes;
  manifest->boxes.Add(entry, box);
}

// The rank manifest of a rank without any box: one file that has only its header. Paths ascend.
inline RankManifest EmptyRankManifest(const SaveId& id, uint32_t world_size, uint32_t rank,
                                      const std::vector<TinyTensor>& tensors) {
  RankManifest manifest;
  manifest.info.id = id;
  manifest.info.world_size = world_size;
  manifest.info.started_ns = 1000 - rank;
  manifest.info.finished_ns = 2000 + rank;
  manifest.info.dataset_version = "v1";
  manifest.info.created_by = "test";
  manifest.rank = rank;
  manifest.tree = "{}";
  for (const TinyTensor& tensor : tensors)
    manifest.tensors.Add(tensor.path, tensor.dtype, tensor.shape);
  const std::string name = id.Text() + std::to_string(rank);
  FileEntry file;
  file.name = HashOf(AsBytes(name));
  file.bytes = 4096;
  file.rank = rank;
  manifest.files.push_back(file);
  return manifest;
}

// What each rank hands in when all tensors are cut evenly in their first dimension; those without
// one are with rank 0.
inline std::vector<RankManifest> TinyRanks(const SaveId& id, uint32_t world_size,
                                           const std::vector<TinyTensor>& tensors) {
  std::vector<RankManifest> ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    ranks.push_back(EmptyRankManifest(id, world_size, rank, tensors));
    for (uint32_t i = 0; i < tensors.size(); ++i) {
      Box box = Box::Whole(tensors[i].shape);
      if (box.length.empty() && rank > 0) continue;
      if (!box.length.empty()) {
        const Interval part = EvenSplit(box.length[0], world_size, rank);
        box.offset[0] = part.offset;
        box.length[0] = part.length;
      }
      AddTinyBox(i, box, &ranks.back());
    }
  }
  return ranks;
}

inline std::vector<TinyTensor> TinyTensors() {
  return {{"/model/a.weight", DType::kBF16, {7, 3}},
          {"/model/b", DType::kF32, {4}},
          {"/optimizer/state/0/step", DType::kI64, {}},
          {"/z/nothing", DType::kU8, {0, 5}}};
}

inline Result<Manifest> AssembleAll(const std::vector<RankManifest>& ranks) {
  Assembler assembler(ranks.at(0).info.id, ranks.at(0).info.world_size);
  for (const RankManifest& rank : ranks) HR_RETURN_IF_ERROR(assembler.Add(rank));
  return assembler.Finish();
}

}  // namespace headrace::checkpoint
