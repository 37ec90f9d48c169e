#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "headrace/base/bytes.h"
#include "headrace/codec/transform.h"
#include "tensor.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

struct NativeTransform {
  std::shared_ptr<const codec::Transform> transform;
};

Array Apply(const NativeTransform& self, nb::bytes data, uint64_t seed, uint64_t epoch,
            uint64_t id) {
  const codec::TensorSpec& spec = self.transform->output();
  auto memory = std::make_unique<AlignedBuffer>();
  Status status;
  {
    nb::gil_scoped_release released;
    codec::Scratch scratch;
    if (!memory->Reserve(std::max<uint64_t>(spec.bytes(), 1), true))
      status = Error(Code::kResourceExhausted, "no memory for {} bytes", spec.bytes());
    else
      status = self.transform->Apply(AsBytes({data.c_str(), data.size()}), {}, {seed, epoch, id},
                                     &scratch, {memory->data(), spec.bytes()});
  }
  Check(status);
  std::byte* start = memory->data();
  nb::capsule owner(memory.release(),
                    [](void* p) noexcept { delete static_cast<AlignedBuffer*>(p); });
  return MakeArray(start, -1, spec, owner);
}

}  // namespace

void BindTransform(nb::module_& m) {
  nb::class_<NativeTransform>(m, "Transform", "A compiled transform. Immutable, thread-safe.")
      .def_static(
          "create",
          [](const std::string& json) {
            return NativeTransform{Unwrap(codec::CreateTransform(json))};
          },
          nb::arg("json"))
      .def_prop_ro("shape", [](const NativeTransform& t) { return t.transform->output().shape; })
      .def_prop_ro("dtype",
                   [](const NativeTransform& t) {
                     return std::string(codec::DTypeName(t.transform->output().dtype));
                   })
      .def("apply", &Apply, nb::arg("data"), nb::arg("seed"), nb::arg("epoch"),
           nb::arg("sample_id"));
}

}  // namespace headrace::python
