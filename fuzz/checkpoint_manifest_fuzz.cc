// Any bytes as a manifest or a rank manifest. The checksums would stop nearly every input at the
// door, so they are made right first (unless the last byte is 0xff): what is behind the door is
// tested.
#include "checkpoint_sections.h"
#include "dataset_bytes_file.h"
#include "headrace/checkpoint/assemble.h"
#include "headrace/checkpoint/manifest.h"

using namespace headrace;              // NOLINT
using namespace headrace::checkpoint;  // NOLINT

static void CheckWhole(const Manifest& manifest) {
  auto bytes = EncodeManifest(manifest);
  FuzzCheck(bytes.ok());
  auto again = DecodeManifest(AsBytes(*bytes), "written");
  FuzzCheck(again.ok() && EncodeManifest(*again).value() == *bytes);
  FuzzCheck(again->first_box == manifest.first_box);
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i)
    FuzzCheck(manifest.FindTensor(manifest.tensors.path(i)) == i);
}

static void CheckRank(const RankManifest& rank) {
  auto bytes = EncodeRankManifest(rank);
  FuzzCheck(bytes.ok());
  auto again = DecodeRankManifest(AsBytes(*bytes), "written");
  FuzzCheck(again.ok() && EncodeRankManifest(*again).value() == *bytes);
  if (rank.info.world_size > 16) return;
  Assembler assembler(rank.info.id, rank.info.world_size);
  FuzzCheck(assembler.Add(rank).ok());
  auto manifest = assembler.Finish();
  if (manifest.ok()) CheckWhole(*manifest);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[size - 1] != 0xff) MakeChecksumsRight(&file);
  if (auto manifest = DecodeManifest(AsBytes(file), "input"); manifest.ok()) CheckWhole(*manifest);
  if (auto rank = DecodeRankManifest(AsBytes(file), "input"); rank.ok()) CheckRank(*rank);
  return 0;
}
