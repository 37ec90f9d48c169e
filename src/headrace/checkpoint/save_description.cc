#include "headrace/checkpoint/save_description.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

// It is a rank manifest of one file: the loan. So one format serves both, with its checks.
Result<std::string> DescribeSave(const RankSave& save, Bytes loan) {
  RankManifest manifest;
  manifest.info = save.info;
  manifest.rank = save.rank;
  manifest.tree = save.tree;
  manifest.loader_state = save.loader_state;
  manifest.files.push_back({.name = {}, .bytes = loan.size(), .crc32c = 0, .rank = save.rank});
  // In a manifest paths ascend.
  std::vector<uint32_t> order(save.tensors.size()), numbers(save.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return save.tensors.path(a) < save.tensors.path(b); });
  for (uint32_t tensor : order)
    numbers[tensor] = manifest.tensors.Add(save.tensors.path(tensor), save.tensors.dtype(tensor),
                                           save.tensors.shape(tensor));
  const std::less_equal<const std::byte*> not_behind;
  for (const SavedBox& box : save.boxes) {
    if (box.tensor >= numbers.size())
      return Error(Code::kInvalidArgument, "a box names tensor {} of {}", box.tensor,
                   numbers.size());
    const bool inside = not_behind(loan.data(), box.data.data()) &&
                        not_behind(box.data.data() + box.data.size(), loan.data() + loan.size());
    if (!inside && !box.data.empty())
      return Error(Code::kInvalidArgument, "the bytes of {} do not lie in the arena",
                   save.tensors.path(box.tensor));
    BoxEntry entry;
    entry.tensor = numbers[box.tensor];
    entry.offset = inside ? static_cast<uint64_t>(box.data.data() - loan.data()) : 0;
    entry.bytes = box.data.size();
    entry.replica = box.replica;
    manifest.boxes.Add(entry, box.box);
  }
  return EncodeRankManifest(manifest);
}

Result<RankSave> ReadSaveDescription(Bytes description, Bytes loan) {
  HR_ASSIGN_OR_RETURN(RankManifest manifest, DecodeRankManifest(description, "a save"));
  if (manifest.files.size() != 1 || manifest.files[0].bytes != loan.size())
    return Error(Code::kDataLoss, "a save was described for other memory than its {} bytes",
                 loan.size());
  RankSave save;
  save.info = manifest.info;
  save.rank = manifest.rank;
  save.tensors = std::move(manifest.tensors);
  save.tree = std::move(manifest.tree);
  save.loader_state = std::move(manifest.loader_state);
  save.boxes.reserve(manifest.boxes.size());
  for (size_t i = 0; i < manifest.boxes.size(); ++i) {
    const BoxEntry& entry = manifest.boxes.entry(i);  // it lies in the file: that was checked
    save.boxes.push_back({entry.tensor, Box(manifest.boxes.box(i)),
                          loan.subspan(entry.offset, entry.bytes), entry.replica});
  }
  return save;
}

}  // namespace headrace::checkpoint
