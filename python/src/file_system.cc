#include "headrace/env/file.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "bindings.h"
#include "errors.h"
#include "headrace/object/url_file_system.h"
#include "storage.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

struct NativeFile {
  std::unique_ptr<RandomAccessFile> file;
  ~NativeFile() {
    nb::gil_scoped_release released;
    file.reset();
  }
};

// A writable buffer of Python's for the time of a call.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  MutableBytes bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

// (is a directory, bytes, modified in ns since 1970, a number that another version has not).
nb::tuple ToTuple(const FileInfo& info) {
  return nb::make_tuple(info.kind == FileKind::kDirectory, info.size_bytes, info.mtime_ns,
                        info.inode);
}

// Calls `call` with the place of `url`, which may hold any bytes, without the GIL.
template <typename Call>
auto At(const cache::StorageSettings& storage, const nb::bytes& url_bytes, const Call& call) {
  const std::string url(url_bytes.c_str(), url_bytes.size());
  auto run = [&]() -> decltype(call(std::declval<object::Place>())) {
    nb::gil_scoped_release released;
    HR_ASSIGN_OR_RETURN(object::Place place, object::LocateUrl(url, storage.url));
    return call(place);
  };
  return Unwrap(run());
}

nb::list List(const cache::StorageSettings& storage, const nb::bytes& url) {
  auto entries =
      At(storage, url, [](const object::Place& place) { return place.fs->List(place.path); });
  nb::list list;
  for (const DirectoryEntry& entry : entries) {
    FileInfo info = entry.info.value_or(FileInfo());
    info.kind = entry.kind;
    list.append(nb::make_tuple(KeyToStr(entry.name), ToTuple(info)));
  }
  return list;
}

size_t ReadInto(const NativeFile& self, uint64_t offset, nb::handle out) {
  Buffer buffer(out);
  Result<size_t> read = [&] {
    nb::gil_scoped_release released;
    return self.file->ReadSome(offset, buffer.bytes(), Context());
  }();
  return Unwrap(std::move(read));
}

nb::bytes Read(const NativeFile& self, uint64_t offset, size_t length) {
  auto bytes =
      nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length)));
  if (!bytes.is_valid()) throw nb::python_error();
  MutableBytes out{reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr())), length};
  Status status;
  {
    nb::gil_scoped_release released;
    status = self.file->ReadAt(offset, out, Context());
  }
  Check(status);
  return bytes;
}

}  // namespace

void BindFileSystem(nb::module_& m) {
  nb::class_<NativeFile>(m, "File", "An open file or object, of one version. Thread-safe.")
      .def_prop_ro("info", [](const NativeFile& f) { return ToTuple(f.file->info()); })
      .def("read_into", &ReadInto, nb::arg("offset"), nb::arg("buffer"),
           "Fill a buffer; fewer bytes at the end of the file only. Returns how many.")
      .def("read", &Read, nb::arg("offset"), nb::arg("length"),
           "Return so many bytes, all of them inside the file.");
  nb::class_<cache::StorageSettings>(m, "FileSystem", "What URLs name, read-only. Thread-safe.")
      .def_static("create", &ReadStorage, nb::arg("storage"))
      .def(
          "open",
          [](const cache::StorageSettings& self, const nb::bytes& url) {
            auto file = At(self, url, [](const object::Place& place) {
              return place.fs->OpenForRead(place.path);
            });
            return new NativeFile{std::move(file)};
          },
          nb::arg("url"), nb::rv_policy::take_ownership)
      .def(
          "info",
          [](const cache::StorageSettings& self, const nb::bytes& url) {
            return ToTuple(At(
                self, url, [](const object::Place& place) { return place.fs->Stat(place.path); }));
          },
          nb::arg("url"))
      .def("list", &List, nb::arg("url"), "Return (name, info) of what is in a directory.")
      .def("cache_counters", [](const cache::StorageSettings& self) -> nb::object {
        if (!self.cache) return nb::none();
        return ToDict(self.cache->counters());
      });
  m.def(
      "wait_for_caches",
      [](double seconds) {
        nb::gil_scoped_release released;
        return cache::WaitForCaches(std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(seconds)));
      },
      nb::arg("seconds"),
      "Wait until what was fetched has come to the caches' disks; False when that took longer.");
}

}  // namespace headrace::python
