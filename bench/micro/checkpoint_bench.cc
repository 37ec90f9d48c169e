// Times the publisher's work on a large checkpoint, one thread, all in memory: rank manifests are
// decoded, put together, checked for coverage, and encoded as one (CPU time, the best of five
// rounds). Not part of the default build:
//   cmake --build BUILD --target checkpoint_bench && BUILD/.../checkpoint_bench
// "sharded": all ranks have a slice of each tensor; "grid": tensors are cut in two dimensions;
// "staged": each rank has tensors of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "headrace/checkpoint/assemble.h"
#include "headrace/checkpoint/testing/tiny_checkpoint.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {
namespace {

constexpr uint32_t kRanks = 4096;
constexpr uint32_t kBoxes = 300;  // of each rank
constexpr uint32_t kColumns = 8;  // of a grid
constexpr SaveId kId{1000, 1, 1};

enum class Cut { kSharded, kGrid, kStaged };

std::vector<TinyTensor> TensorsOf(Cut cut, uint32_t rank) {
  std::vector<TinyTensor> tensors;
  for (uint32_t i = 0; i < kBoxes; ++i) {
    const std::string stage = cut == Cut::kStaged ? fmt::format("stage{:04}.", rank) : "";
    tensors.push_back({fmt::format("/model/{}layers.{:03}.attention.weight", stage, i),
                       DType::kBF16,
                       {8192, 4096}});
  }
  return tensors;
}

Box BoxOf(Cut cut, Extents shape, uint32_t rank) {
  if (cut == Cut::kStaged) return Box::Whole(shape);
  if (cut == Cut::kSharded) return *ShardOf(shape, std::vector<MeshSplit>{{0, kRanks, rank}});
  return *ShardOf(shape, std::vector<MeshSplit>{{0, kRanks / kColumns, rank / kColumns},
                                                {1, kColumns, rank % kColumns}});
}

std::vector<std::string> MakeRanks(Cut cut) {
  std::vector<std::string> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::vector<TinyTensor> tensors = TensorsOf(cut, rank);
    RankManifest manifest = EmptyRankManifest(kId, kRanks, rank, tensors);
    for (uint32_t i = 0; i < kBoxes; ++i)
      AddTinyBox(i, BoxOf(cut, tensors[i].shape, rank), &manifest);
    ranks.push_back(EncodeRankManifest(manifest).value());
  }
  return ranks;
}

// Ends the program when something that must succeed did not.
template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

std::string AssembleAndEncode(const std::vector<std::string>& ranks) {
  Assembler assembler(kId, kRanks);
  for (const std::string& rank : ranks)
    if (!assembler.Add(Must(DecodeRankManifest(AsBytes(rank), "rank"))).ok()) std::exit(1);
  return Must(EncodeManifest(Must(assembler.Finish())));
}

void Measure(const char* name, Cut cut) {
  constexpr int kRounds = 5;
  const std::vector<std::string> ranks = MakeRanks(cut);
  double assemble = 1e9, decode = 1e9;
  std::string manifest;
  for (int round = 0; round < kRounds; ++round) {
    double begin = ProcessCpuSeconds();
    manifest = AssembleAndEncode(ranks);
    assemble = std::min(assemble, ProcessCpuSeconds() - begin);
    begin = ProcessCpuSeconds();
    if (Must(DecodeManifest(AsBytes(manifest), "whole")).boxes.size() != kRanks * kBoxes)
      std::exit(1);
    decode = std::min(decode, ProcessCpuSeconds() - begin);
  }
  std::printf(
      "%-8s %u ranks x %u boxes: assembled in %.3f CPU s, read in %.3f CPU s, %.1f bytes a box\n",
      name, kRanks, kBoxes, assemble, decode,
      static_cast<double>(manifest.size()) / (kRanks * kBoxes));
}

}  // namespace
}  // namespace headrace::checkpoint

int main() {
  using headrace::checkpoint::Cut;
  using headrace::checkpoint::Measure;
  Measure("sharded", Cut::kSharded);
  Measure("grid", Cut::kGrid);
  Measure("staged", Cut::kStaged);
  return 0;
}
