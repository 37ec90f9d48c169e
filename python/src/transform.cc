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

Bytes AsBytes(const nb::bytes& data) { return headrace::AsBytes({data.c_str(), data.size()}); }

// Applies a transform into memory of its own.
Status ApplyTo(const codec::Transform& transform, Bytes data, const codec::DrawKey& key,
               codec::Scratch* scratch, AlignedBuffer* memory) {
  uint64_t bytes = transform.output().bytes();
  if (!memory->Reserve(std::max<uint64_t>(bytes, 1), true))
    return Error(Code::kResourceExhausted, "no memory for {} bytes", bytes);
  return transform.Apply(data, {}, key, scratch, {memory->data(), bytes});
}

// Applies `first` to `image` before (when there is one): boxes need what it leaves in the Scratch.
Array ApplyBoth(const NativeTransform* first, Bytes image, const NativeTransform& self, Bytes data,
                const codec::DrawKey& key) {
  auto memory = std::make_unique<AlignedBuffer>();
  Status status;
  {
    nb::gil_scoped_release released;
    codec::Scratch scratch;
    AlignedBuffer unused;
    if (first) status = ApplyTo(*first->transform, image, key, &scratch, &unused);
    if (status.ok()) status = ApplyTo(*self.transform, data, key, &scratch, memory.get());
  }
  Check(status);
  std::byte* start = memory->data();
  nb::capsule owner(memory.release(),
                    [](void* p) noexcept { delete static_cast<AlignedBuffer*>(p); });
  return MakeArray(start, -1, self.transform->output(), owner);
}

Array Apply(const NativeTransform& self, const nb::bytes& data, uint64_t seed, uint64_t epoch,
            uint64_t id) {
  return ApplyBoth(nullptr, {}, self, AsBytes(data), {seed, epoch, id});
}

Array ApplyAfter(const NativeTransform& self, const NativeTransform& first, const nb::bytes& image,
                 const nb::bytes& data, uint64_t seed, uint64_t epoch, uint64_t id) {
  return ApplyBoth(&first, AsBytes(image), self, AsBytes(data), {seed, epoch, id});
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
           nb::arg("sample_id"))
      .def("apply_after", &ApplyAfter, nb::arg("first"), nb::arg("image"), nb::arg("data"),
           nb::arg("seed"), nb::arg("epoch"), nb::arg("sample_id"));
}

}  // namespace headrace::python
