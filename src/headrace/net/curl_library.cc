#include "headrace/net/curl_library.h"

#include <utility>

#include "headrace/env/dynamic_library.h"

namespace headrace::net {

namespace {

constexpr char kAdvice[] =
    "reading over HTTP needs libcurl 7.68 or newer: install it (Debian and Ubuntu: apt-get install "
    "libcurl4; Fedora and RHEL: dnf install libcurl)";

template <typename Function>
bool Find(const DynamicLibrary& library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(library.Find(symbol));
  return *function != nullptr;
}

Result<CurlLibrary> LoadAndPrepare() {
  HR_ASSIGN_OR_RETURN(CurlLibrary curl, LoadCurlFrom("libcurl.so.4"));
  CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK)
    return Error(Code::kUnimplemented, "libcurl {} cannot start: {}", curl.version,
                 curl.easy_strerror(code));
  return curl;
}

}  // namespace

Result<CurlLibrary> LoadCurlFrom(const std::string& name) {
  auto library = DynamicLibrary::Open(name);
  if (!library.ok())
    return Error(Code::kUnimplemented, "{} ({})", kAdvice, library.status().message());
  CurlLibrary curl;
  const char* missing = nullptr;
#define HR_CURL_FIND(function) \
  if (!Find(*library, "curl_" #function, &curl.function)) missing = "curl_" #function;
  HR_CURL_FUNCTIONS(HR_CURL_FIND)
#undef HR_CURL_FIND
  if (curl.version_info) curl.version = curl.version_info(CURLVERSION_NOW)->version;
  if (missing)
    return Error(Code::kUnimplemented, "{} ({} {} has no {})", kAdvice, name, curl.version,
                 missing);
  return curl;
}

Result<const CurlLibrary*> LoadCurl() {
  // Made once, whichever thread comes first, and never taken down: transfers may outlive main().
  static const auto* const library = new Result<CurlLibrary>(LoadAndPrepare());
  if (!library->ok()) return Status(library->status());
  return &library->value();
}

}  // namespace headrace::net
