// The label transform on any bytes, in every format: no crash, no undefined behavior.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "headrace/codec/transform.h"

namespace {

using namespace headrace::codec;

std::shared_ptr<const Transform> Make(const char* json) {
  auto transform = CreateTransform(json);
  if (!transform.ok()) std::abort();
  return *transform;
}

const std::vector<std::shared_ptr<const Transform>>& Transforms() {
  static const std::vector<std::shared_ptr<const Transform>> transforms = {
      Make(R"({"type": "label"})"),
      Make(R"({"type": "label", "dtype": "float32", "shape": [3]})"),
      Make(R"({"type": "label", "dtype": "uint8", "shape": [2, 2], "format": "json"})"),
      Make(R"({"type": "label", "dtype": "float16", "path": "/a/0/b~1"})"),
      Make(R"({"type": "label", "dtype": "int16", "shape": [2, 3], "format": "npy"})"),
      Make(R"({"type": "label", "dtype": "bfloat16", "shape": [2], "format": "text"})")};
  return transforms;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scratch scratch;
  headrace::Bytes input(reinterpret_cast<const std::byte*>(data), size);
  std::vector<std::byte> out;
  for (const auto& transform : Transforms()) {
    out.assign(transform->output().bytes(), std::byte{0});
    headrace::Status status = transform->Apply(input, {}, {}, &scratch, out);
    if (!status.ok() && status.message().empty()) std::abort();
  }
  return 0;
}
