// Any bytes as the description of a save that a trainer hands its helper: what is accepted lies in
// the memory that was lent for it, and is described and read again as the same. The checksums are
// made right first, unless the last byte is 0xff.
#include <functional>
#include <vector>

#include "checkpoint_sections.h"
#include "dataset_bytes_file.h"
#include "headrace/checkpoint/manifest.h"
#include "headrace/checkpoint/save_description.h"

using namespace headrace;              // NOLINT
using namespace headrace::checkpoint;  // NOLINT

static constexpr uint64_t kMostLent = 1 << 20;

// As much memory as the description speaks of, so that inputs come farther than that check.
static uint64_t LentBytes(const std::string& file) {
  auto manifest = DecodeRankManifest(AsBytes(file), "input");
  if (!manifest.ok() || manifest->files.empty()) return 0;
  return manifest->files[0].bytes <= kMostLent ? manifest->files[0].bytes : 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[size - 1] != 0xff) MakeChecksumsRight(&file);
  const std::vector<std::byte> memory(LentBytes(file));
  const Bytes loan = memory;
  auto save = ReadSaveDescription(AsBytes(file), loan);
  if (!save.ok()) return 0;
  const std::less_equal<const std::byte*> not_behind;
  for (const SavedBox& box : save->boxes) {
    FuzzCheck(box.tensor < save->tensors.size());
    FuzzCheck(not_behind(loan.data(), box.data.data()));
    FuzzCheck(not_behind(box.data.data() + box.data.size(), loan.data() + loan.size()));
  }
  auto described = DescribeSave(*save, loan);
  FuzzCheck(described.ok());
  auto again = ReadSaveDescription(AsBytes(*described), loan);
  FuzzCheck(again.ok() && again->boxes.size() == save->boxes.size());
  FuzzCheck(DescribeSave(*again, loan).value() == *described);
  return 0;
}
