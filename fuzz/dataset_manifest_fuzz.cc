// Any bytes as a manifest: what is accepted is written and read again as the same.
#include "dataset_bytes_file.h"
#include "headrace/dataset/manifest.h"

using namespace headrace;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto read = dataset::Manifest::FromJson(text, "input");
  if (!read.ok()) return 0;
  for (const auto& shard : read->shards) FuzzCheck(dataset::CheckRelativeName(shard.name).ok());
  std::string written = read->ToJson();
  auto again = dataset::Manifest::FromJson(written, "written");
  FuzzCheck(again.ok() && again->ToJson() == written);
  FuzzCheck(again->ComputeVersion() == read->ComputeVersion());
  return 0;
}
