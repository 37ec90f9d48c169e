// A shared library that is looked for while the program runs, since most programs do without it.
// Thread-safe. It stays loaded until the process ends.
#pragma once

#include <string>

#include "headrace/base/status.h"

namespace headrace {

class DynamicLibrary {
 public:
  // Loads a library by the name that programs are linked to ("libcurl.so.4"), from where the system
  // looks for such, or by a path. Its names stay out of the way of other libraries' names.
  // kNotFound, with the words of the system, when it is not there or cannot be loaded.
  static Result<DynamicLibrary> Open(const std::string& name);

  // The address of a function or variable; null when the library has none of this name.
  void* Find(const char* symbol) const;

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace headrace
