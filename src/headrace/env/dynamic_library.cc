#include "headrace/env/dynamic_library.h"

#include <dlfcn.h>

namespace headrace {

Result<DynamicLibrary> DynamicLibrary::Open(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = ::dlerror();
    return Error(Code::kNotFound, "cannot load a library: {}", reason ? reason : name);
  }
  return DynamicLibrary(handle);
}

void* DynamicLibrary::Find(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace headrace
