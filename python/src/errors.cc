#include "errors.h"

#include "headrace/base/redaction.h"

namespace nb = nanobind;

namespace headrace::python {

void Raise(const Status& status) {
  const Location& at = status.location();
  nb::object offset = at.offset ? nb::cast(*at.offset) : nb::none();
  const std::string message = RedactSecrets(status.message());
  nb::object exception =
      nb::module_::import_("headrace.errors")
          .attr("from_status")(static_cast<int>(status.code()), KeyToStr(message),
                               KeyToStr(at.file), offset, KeyToStr(at.key), KeyToStr(at.field));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

nb::str KeyToStr(std::string_view key) {
  PyObject* text =
      PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogateescape");
  if (!text) throw nb::python_error();
  return nb::steal<nb::str>(text);
}

}  // namespace headrace::python
