// libcurl, loaded when it is first needed: a table of the functions that are used here. The only
// files that name libcurl's header are those that include this one. Thread-safe.
#pragma once

#define CURL_DISABLE_DEPRECATION  // old options are used where old versions have no new ones
#include <curl/curl.h>

#include <string>

#include "headrace/base/status.h"

#define HR_CURL_FUNCTIONS(F)                                                                 \
  F(global_init)                                                                             \
  F(version_info)                                                                            \
  F(slist_append)                                                                            \
  F(slist_free_all)                                                                          \
  F(easy_init) F(easy_cleanup) F(easy_reset) F(easy_setopt) F(easy_getinfo) F(easy_strerror) \
      F(multi_init) F(multi_cleanup) F(multi_setopt) F(multi_strerror) F(multi_add_handle)   \
          F(multi_remove_handle) F(multi_perform) F(multi_info_read) F(multi_poll) F(multi_wakeup)

namespace headrace::net {

// Each member is the function curl_NAME.
struct CurlLibrary {
#define HR_CURL_POINTER(name) decltype(&::curl_##name) name = nullptr;
  HR_CURL_FUNCTIONS(HR_CURL_POINTER)
#undef HR_CURL_POINTER
  std::string version;  // of the library found: "7.88.1"
};

// Loads libcurl at the first call and prepares it. Later calls return the same table or the same
// failure. kUnimplemented, with what to install, when it is not there or too old.
Result<const CurlLibrary*> LoadCurl();

// Loads the library `name`, without preparing it. As LoadCurl(), which calls this.
Result<CurlLibrary> LoadCurlFrom(const std::string& name);

}  // namespace headrace::net
