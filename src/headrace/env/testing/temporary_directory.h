// A fresh, empty directory on the real disk that is gone with this object. For tests only.
// One owner at a time.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

class TemporaryDirectory {
 public:
  // Makes the directory under $TMPDIR, else /tmp. Ends the test program when it cannot.
  TemporaryDirectory();
  // Removes it and all below, also what a test has made unreadable.
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  // The path of `name` in it.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace headrace
