#include "headrace/codec/transform.h"

#include <fmt/format.h>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/codec/boxes_transform.h"
#include "headrace/codec/image_transform.h"
#include "headrace/codec/label_transform.h"
#include "headrace/codec/scratch.h"

namespace headrace::codec {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t bytes;
};
constexpr DTypeRow kDTypes[] = {{DType::kUint8, "uint8", 1},       {DType::kInt8, "int8", 1},
                                {DType::kInt16, "int16", 2},       {DType::kInt32, "int32", 4},
                                {DType::kInt64, "int64", 8},       {DType::kFloat16, "float16", 2},
                                {DType::kBfloat16, "bfloat16", 2}, {DType::kFloat32, "float32", 4},
                                {DType::kFloat64, "float64", 8}};

}  // namespace

size_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }
std::string_view DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

Result<DType> ParseDType(std::string_view name) {
  std::string known;
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return Error(Code::kInvalidArgument, "dtype \"{}\" is not known; known are {}", EscapeText(name),
               known);
}

uint64_t TensorSpec::bytes() const {
  uint64_t total = DTypeBytes(dtype);
  for (int64_t dim : shape) total *= static_cast<uint64_t>(dim);
  return total;
}

Scratch::Scratch(StageRecorder* recorder) : rep_(std::make_unique<Rep>(recorder)) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;

uint64_t Scratch::memory_bytes() const {
  return sizeof(Rep) + rep_->jpeg.memory_bytes() + rep_->pixels.capacity() + rep_->row.capacity() +
         rep_->upright.capacity() + rep_->widened.capacity() + rep_->planes.capacity() +
         rep_->op_memory.capacity() + rep_->resizer.memory_bytes() +
         rep_->plane_resizer.memory_bytes() + rep_->views.memory_bytes();
}

const DecodeCounts& Scratch::decode_counts() const { return rep_->decode_counts; }

Result<std::shared_ptr<const Transform>> CreateTransform(std::string_view json) {
  auto description = Json::Parse(json);
  if (!description.ok()) return std::move(description).status().Prefix("transform description");
  const Json* type = description->Find("type");
  std::string_view name = type ? type->AsString() : "";
  if (name == "image") return CreateImageTransform(*description);
  if (name == "boxes") return CreateBoxesTransform(*description);
  if (name == "label") return CreateLabelTransform(*description);
  return Error(Code::kInvalidArgument,
               "transform description: member \"type\": expected \"image\", \"label\" or "
               "\"boxes\", found {}",
               type ? type->Dump() : "nothing");
}

}  // namespace headrace::codec
