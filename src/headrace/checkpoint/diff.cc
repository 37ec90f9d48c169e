#include "headrace/checkpoint/diff.h"

#include <algorithm>
#include <utility>

#include "headrace/checkpoint/pieces.h"

namespace headrace::checkpoint {
namespace {

std::string TypeText(const Manifest& manifest, uint32_t tensor) {
  return std::string(DTypeName(manifest.tensors.dtype(tensor))) + " " +
         ShapeText(manifest.tensors.shape(tensor));
}

bool SameType(const Manifest& a, uint32_t in_a, const Manifest& b, uint32_t in_b) {
  return a.tensors.dtype(in_a) == b.tensors.dtype(in_b) &&
         std::ranges::equal(a.tensors.shape(in_a), b.tensors.shape(in_b));
}

// The same cut, and in each box the same bytes.
bool SameBoxes(const Manifest& a, uint32_t in_a, const Manifest& b, uint32_t in_b) {
  const uint64_t first_a = a.first_box[in_a], first_b = b.first_box[in_b];
  const uint64_t count = a.first_box[in_a + 1] - first_a;
  if (b.first_box[in_b + 1] - first_b != count) return false;
  for (uint64_t i = 0; i < count; ++i)
    if (a.boxes.entry(first_a + i).hash != b.boxes.entry(first_b + i).hash ||
        !SameBox(a.boxes.box(first_a + i), b.boxes.box(first_b + i)))
      return false;
  return true;
}

// A pair of tensors that must be read.
struct Pair {
  size_t row = 0;
  uint32_t in_a = 0, in_b = 0;
};

class Diff {
 public:
  Diff(const DiffSide& a, const DiffSide& b, const DiffOptions& options, const Context& ctx,
       DiffProgress* progress)
      : a_(a), b_(b), options_(options), ctx_(ctx), progress_(progress) {}

  Result<DiffReport> All();

 private:
  void Match();
  void AddOneSided(const Manifest& manifest, uint32_t tensor, bool in_a);
  void AddBoth(uint32_t in_a, uint32_t in_b);
  Status Compare(const Pair& pair);

  const DiffSide& a_;
  const DiffSide& b_;
  const DiffOptions& options_;
  const Context& ctx_;
  DiffProgress* const progress_;
  std::vector<Pair> pairs_;
  std::vector<std::byte> bytes_a_, bytes_b_;
  DiffReport report_;
};

// Paths ascend on both sides.
void Diff::Match() {
  const Manifest& a = *a_.manifest;
  const Manifest& b = *b_.manifest;
  uint32_t i = 0, j = 0;
  while (i < a.tensors.size() || j < b.tensors.size()) {
    if (j == b.tensors.size() || (i < a.tensors.size() && a.tensors.path(i) < b.tensors.path(j))) {
      AddOneSided(a, i++, true);
    } else if (i == a.tensors.size() || b.tensors.path(j) < a.tensors.path(i)) {
      AddOneSided(b, j++, false);
    } else {
      AddBoth(i++, j++);
    }
  }
}

void Diff::AddOneSided(const Manifest& manifest, uint32_t tensor, bool in_a) {
  TensorDiff row;
  row.path = manifest.tensors.path(tensor);
  row.kind = in_a ? TensorDiff::Kind::kOnlyInA : TensorDiff::Kind::kOnlyInB;
  (in_a ? row.a : row.b) = TypeText(manifest, tensor);
  report_.rows.push_back(std::move(row));
}

void Diff::AddBoth(uint32_t in_a, uint32_t in_b) {
  const bool same_type = SameType(*a_.manifest, in_a, *b_.manifest, in_b);
  if (same_type && SameBoxes(*a_.manifest, in_a, *b_.manifest, in_b)) {
    ++report_.same;
    return;
  }
  TensorDiff row;
  row.path = a_.manifest->tensors.path(in_a);
  row.kind = same_type ? TensorDiff::Kind::kChanged : TensorDiff::Kind::kOtherType;
  row.a = TypeText(*a_.manifest, in_a);
  row.b = TypeText(*b_.manifest, in_b);
  row.dtype = a_.manifest->tensors.dtype(in_a);
  if (same_type) {
    pairs_.push_back({report_.rows.size(), in_a, in_b});
    progress_->total_bytes +=
        BytesOf(row.dtype, Volume(a_.manifest->tensors.shape(in_a)).value_or(0)).value_or(0);
  }
  report_.rows.push_back(std::move(row));
}

Status Diff::Compare(const Pair& pair) {
  const Manifest& a = *a_.manifest;
  const DType dtype = a.tensors.dtype(pair.in_a);
  ElementDifference* sum = &report_.rows[pair.row].difference;
  auto piece = [&](const Box& box) -> Status {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_RETURN_IF_ERROR(ReadBox(a_.files, a, pair.in_a, box, options_.threads, ctx_, &bytes_a_));
    HR_RETURN_IF_ERROR(
        ReadBox(b_.files, *b_.manifest, pair.in_b, box, options_.threads, ctx_, &bytes_b_));
    AddDifference(dtype, bytes_a_, bytes_b_, sum);
    report_.read_bytes += bytes_a_.size() + bytes_b_.size();
    progress_->bytes += bytes_a_.size();
    return OkStatus();
  };
  return ForEachPiece(a.tensors.shape(pair.in_a), dtype, options_.memory_bytes / 2, piece);
}

Result<DiffReport> Diff::All() {
  Match();
  for (const Pair& pair : pairs_) HR_RETURN_IF_ERROR(Compare(pair));
  // Cut otherwise, and yet the same.
  const size_t before = report_.rows.size();
  std::erase_if(report_.rows, [](const TensorDiff& row) {
    return row.kind == TensorDiff::Kind::kChanged && row.difference.changed == 0;
  });
  report_.same += before - report_.rows.size();
  return std::move(report_);
}

}  // namespace

Result<DiffReport> DiffCheckpoints(const DiffSide& a, const DiffSide& b, const DiffOptions& options,
                                   const Context& ctx, DiffProgress* progress) {
  return Diff(a, b, options, ctx, progress).All();
}

}  // namespace headrace::checkpoint
