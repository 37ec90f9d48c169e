// The dashboard's files (web/), which the build puts into the program. Constant data: safe from any
// thread.
#pragma once

#include <string_view>

namespace headrace::agent {

struct DashboardFile {
  std::string_view path;  // of a request: "/", "/dashboard.js"
  std::string_view content_type;
  std::string_view content;
};

// Null: there is none at this path.
const DashboardFile* FindDashboardFile(std::string_view path);

}  // namespace headrace::agent
