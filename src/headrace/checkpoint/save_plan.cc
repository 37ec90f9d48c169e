#include "headrace/checkpoint/save_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "headrace/checkpoint/safetensors.h"
#include "headrace/checkpoint/tensor_path.h"

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kBoxAlignment = 64;  // of boxes as given

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// The number of the item's tensor, which it adds when it is new.
Result<uint32_t> TensorOf(const SavePlan::Item& item, DType dtype,
                          std::unordered_map<std::string, uint32_t>* known, TensorTable* tensors) {
  auto [at, is_new] = known->try_emplace(item.path, static_cast<uint32_t>(tensors->size()));
  if (is_new) return tensors->Add(item.path, dtype, item.shape);
  if (tensors->dtype(at->second) != dtype ||
      !std::ranges::equal(tensors->shape(at->second), item.shape))
    return Error(Code::kInvalidArgument, "{} is there twice, with different types or shapes",
                 item.path);
  return at->second;
}

}  // namespace

Result<std::shared_ptr<const SavePlan>> SavePlan::Create(std::span<const Item> items,
                                                         Layout layout) {
  std::shared_ptr<SavePlan> plan(new SavePlan());
  std::unordered_map<std::string, uint32_t> known;
  for (const Item& item : items) {
    auto dtype = DTypeNamed(item.dtype);
    if (!dtype)
      return Error(Code::kInvalidArgument, "{}: no elements of type {} can be stored", item.path,
                   item.dtype);
    if (item.path.size() > kMaxPathBytes || item.shape.size() > kMaxDimensions)
      return Error(Code::kInvalidArgument, "{}: more than {} dimensions or {} bytes of path",
                   item.path.substr(0, 200), kMaxDimensions, kMaxPathBytes);
    HR_ASSIGN_OR_RETURN(uint32_t tensor, TensorOf(item, *dtype, &known, &plan->tensors_));
    Box box = item.length.empty() ? Box::Whole(item.shape) : Box(item.offset, item.length);
    auto volume = Volume(box.length);
    auto bytes = volume ? BytesOf(*dtype, *volume) : std::nullopt;
    if (box.offset.size() != box.length.size() || !FitsInto(box, item.shape) || !bytes)
      return Error(Code::kInvalidArgument, "{}: the box {} does not fit {} {}", item.path,
                   BoxText(box), item.dtype, ShapeText(item.shape));
    plan->tensor_.push_back(tensor);
    plan->boxes_.push_back(std::move(box));
    plan->replica_.push_back(item.replica);
    plan->bytes_.push_back(*bytes);
  }
  plan->offsets_.resize(plan->size());
  if (layout == Layout::kAsFiles) {
    HR_RETURN_IF_ERROR(plan->LayOutAsFiles());
  } else {
    plan->LayOutAsGiven();
  }
  return std::shared_ptr<const SavePlan>(std::move(plan));
}

// Each top-level key of the state has files of its own (RankWriter).
Status SavePlan::LayOutAsFiles() {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < size(); ++i) {
    HR_ASSIGN_OR_RETURN(std::string key, GroupOf(tensors_.path(tensor_[i])));
    groups[key].push_back(i);
  }
  for (auto& [key, items] : groups) LayOutGroup(std::move(items));
  return OkStatus();
}

// Without holes, as in a file; the largest elements first, so that all of them are aligned. A
// file's data begin at a multiple of kDataAlignment, in the file and here.
void SavePlan::LayOutGroup(std::vector<size_t> items) {
  std::ranges::stable_sort(items, std::ranges::greater(),
                           [this](size_t i) { return BitsOf(tensors_.dtype(tensor_[i])); });
  uint64_t file_bytes = 0;
  total_ = RoundUp(total_, kDataAlignment);
  for (size_t i : items) {
    offsets_[i] = total_;
    total_ += bytes_[i];
    file_bytes += bytes_[i];
    if (file_bytes < kMaxFileBytes) continue;
    total_ = RoundUp(total_, kDataAlignment);
    file_bytes = 0;
  }
  order_.insert(order_.end(), items.begin(), items.end());
}

void SavePlan::LayOutAsGiven() {
  for (size_t i = 0; i < size(); ++i) {
    offsets_[i] = total_;
    total_ += RoundUp(bytes_[i], kBoxAlignment);
    order_.push_back(i);
  }
}

void SavePlan::CopyIn(std::span<const uint64_t> addresses, MutableBytes loan, int threads) const {
  std::vector<CopyPiece> pieces;
  pieces.reserve(size());
  for (size_t i : order_) {
    if (addresses[i] == 0 || bytes_[i] == 0) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): Python gives addresses as integers
    const auto* from = reinterpret_cast<const std::byte*>(addresses[i]);
    pieces.push_back({from, loan.data() + offsets_[i], bytes_[i]});
  }
  CopyPieces(pieces, threads);
}

RankSave SavePlan::Make(MutableBytes loan) const {
  RankSave save;
  save.tensors = tensors_;
  save.boxes.reserve(size());
  for (size_t i : order_)
    save.boxes.push_back(
        {tensor_[i], boxes_[i], Bytes(loan.data() + offsets_[i], bytes_[i]), replica_[i]});
  return save;
}

}  // namespace headrace::checkpoint
