#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <map>
#include <memory>

#include "bindings.h"
#include "errors.h"
#include "headrace/loader/sample_access.h"
#include "storage.h"
#include "tensor.h"

namespace nb = nanobind;
using headrace::loader::SampleAccess;

namespace headrace::python {

namespace {

nb::bytes ToBytes(Bytes data) {
  return nb::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

nb::tuple Read(const SampleAccess& access, uint64_t id, const std::vector<std::string>& wanted) {
  SampleAccess::Sample sample;
  Status status;
  {
    nb::gil_scoped_release released;
    status = access.Read(id, wanted, Context(), &sample);
  }
  Check(status);
  nb::dict fields;
  for (const auto& [name, data] : sample.fields) fields[KeyToStr(name)] = ToBytes(data);
  return nb::make_tuple(KeyToStr(sample.view.key), fields);
}

// The pixels of a region: an array [height, width, channels].
Array ReadRegion(const SampleAccess& access, uint64_t id, const std::string& field,
                 const std::array<uint32_t, 4>& region, uint32_t channels) {
  auto pixels = std::make_unique<SampleAccess::Pixels>();
  Status status;
  {
    nb::gil_scoped_release released;
    codec::Rect rect{region[0], region[1], region[2], region[3]};
    status = access.ReadRegion(id, field, rect, channels, Context(), pixels.get());
  }
  Check(status);
  codec::TensorSpec spec{codec::DType::kUint8, {pixels->height, pixels->width, pixels->channels}};
  std::byte* data = pixels->memory.data();
  nb::capsule owner(pixels.release(),
                    [](void* p) noexcept { delete static_cast<SampleAccess::Pixels*>(p); });
  return MakeArray(data, -1, spec, owner);
}

}  // namespace

void BindDataset(nb::module_& m) {
  nb::class_<SampleAccess>(m, "Dataset", "Random access to the samples of a dataset. Thread-safe.")
      .def_static(
          "open",
          [](const std::string& url, const std::map<std::string, std::string>& storage,
             uint32_t max_open_files, uint64_t max_unpacked_bytes, bool verify) {
            cache::StorageSettings settings = ReadStorage(storage);
            nb::gil_scoped_release released;
            dataset::OpenOptions options{max_open_files, max_unpacked_bytes, settings.side};
            auto access = SampleAccess::Open(url, settings.url, options, verify);
            nb::gil_scoped_acquire acquired;
            return Unwrap(std::move(access)).release();
          },
          nb::arg("url"), nb::arg("storage"), nb::arg("max_open_files"),
          nb::arg("max_unpacked_bytes"), nb::arg("verify_checksums"), nb::rv_policy::take_ownership)
      .def_prop_ro("path", [](const SampleAccess& a) { return a.dataset()->path(); })
      .def_prop_ro("version", [](const SampleAccess& a) { return a.dataset()->version(); })
      .def_prop_ro("kind", [](const SampleAccess& a) { return std::string(a.dataset()->kind()); })
      .def_prop_ro("num_samples", [](const SampleAccess& a) { return a.dataset()->num_samples(); })
      .def_prop_ro("fields",
                   [](const SampleAccess& a) {
                     auto fields = a.dataset()->fields();
                     return std::vector<std::string>(fields.begin(), fields.end());
                   })
      .def_prop_ro("shards",
                   [](const SampleAccess& a) {
                     nb::list shards;
                     for (const auto& shard : a.dataset()->shards())
                       shards.append(nb::make_tuple(KeyToStr(shard.name), shard.num_samples,
                                                    shard.size_bytes));
                     return shards;
                   })
      .def(
          "find_key",
          [](const SampleAccess& a, nb::bytes key) {
            std::string text(key.c_str(), key.size());
            nb::gil_scoped_release released;
            auto found = a.dataset()->FindKey(text);
            nb::gil_scoped_acquire acquired;
            return Unwrap(std::move(found));
          },
          nb::arg("key"))
      .def(
          "key",
          [](const SampleAccess& a, uint64_t id) {
            std::string key;
            Status status;
            {
              nb::gil_scoped_release released;
              status = a.Key(id, &key);
            }
            Check(status);
            return KeyToStr(key);
          },
          nb::arg("id"))
      .def("read", &Read, nb::arg("id"), nb::arg("fields"))
      .def("read_region", &ReadRegion, nb::arg("id"), nb::arg("field"), nb::arg("region"),
           nb::arg("channels"));
}

}  // namespace headrace::python
