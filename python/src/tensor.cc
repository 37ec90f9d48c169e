#include "tensor.h"

#include <vector>

namespace nb = nanobind;

namespace headrace::python {

namespace {
nb::dlpack::dtype ToDLPack(codec::DType dtype) {
  using codec::DType;
  auto bits = static_cast<uint8_t>(codec::DTypeBytes(dtype) * 8);
  auto code = [&]() -> nb::dlpack::dtype_code {
    switch (dtype) {
      case DType::kUint8:
        return nb::dlpack::dtype_code::UInt;
      case DType::kBfloat16:
        return nb::dlpack::dtype_code::Bfloat;
      case DType::kFloat16:
      case DType::kFloat32:
      case DType::kFloat64:
        return nb::dlpack::dtype_code::Float;
      default:
        return nb::dlpack::dtype_code::Int;
    }
  }();
  return {static_cast<uint8_t>(code), bits, 1};
}
}  // namespace

Array MakeArray(std::byte* data, int64_t rows, const codec::TensorSpec& spec, nb::handle owner) {
  std::vector<size_t> shape;
  if (rows >= 0) shape.push_back(static_cast<size_t>(rows));
  for (int64_t n : spec.shape) shape.push_back(static_cast<size_t>(n));
  return Array(data, shape.size(), shape.data(), owner, nullptr, ToDLPack(spec.dtype),
               nb::device::cpu::value, 0, 'C');
}

}  // namespace headrace::python
