// The conformance suite of FileSystem: what every one must do, the real one and the doubles alike.
// A test program registers a file system with one line at namespace scope:
//
//   const bool kRegistered = RegisterFileSystemSuite("posix", [] { return OpenPosix(); });
//
// Each test gets a fresh one from `open`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "headrace/env/file.h"

namespace headrace {

struct FileSystemUnderTest {
  FileSystem* files = nullptr;  // not owned
  std::string root;             // an empty directory in which the test may do anything
  std::shared_ptr<void> owner;  // whatever must live as long as the test
};

// Registers the tests FileSystemSuite/<name>.<test> with GoogleTest. Returns true.
bool RegisterFileSystemSuite(const std::string& name,
                             const std::function<FileSystemUnderTest()>& open);

}  // namespace headrace
