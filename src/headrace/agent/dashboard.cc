#include "headrace/agent/dashboard.h"

namespace headrace::agent {

// Made from the files of web/ by cmake/EmbedFiles.cmake.
extern const std::string_view kDashboardHtml, kDashboardCss, kDashboardJs;

const DashboardFile* FindDashboardFile(std::string_view path) {
  static const DashboardFile kFiles[] = {
      {"/", "text/html; charset=utf-8", kDashboardHtml},
      {"/dashboard.css", "text/css; charset=utf-8", kDashboardCss},
      {"/dashboard.js", "text/javascript; charset=utf-8", kDashboardJs},
  };
  for (const DashboardFile& file : kFiles)
    if (file.path == path) return &file;
  return nullptr;
}

}  // namespace headrace::agent
