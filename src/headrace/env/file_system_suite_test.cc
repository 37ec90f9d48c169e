// Runs the conformance suite on the real file system and on both doubles.
#include <utility>

#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/file_system_suite.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

FileSystemUnderTest OpenPosix() {
  auto directory = std::make_shared<TemporaryDirectory>();
  return {PosixFileSystem(), directory->path(), directory};
}

FileSystemUnderTest OpenMemory() {
  auto files = std::make_shared<MemoryFileSystem>();
  return {files.get(), "/", files};
}

FileSystemUnderTest OpenFaulty(FileSystemUnderTest base) {
  auto both = std::make_shared<std::pair<FileSystemUnderTest, std::unique_ptr<FaultyFileSystem>>>(
      base, std::make_unique<FaultyFileSystem>(base.files));
  return {both->second.get(), base.root, both};
}

const bool kRegistered =
    RegisterFileSystemSuite("posix", OpenPosix) && RegisterFileSystemSuite("memory", OpenMemory) &&
    RegisterFileSystemSuite("faulty_posix", [] { return OpenFaulty(OpenPosix()); }) &&
    RegisterFileSystemSuite("faulty_memory", [] { return OpenFaulty(OpenMemory()); });

}  // namespace
}  // namespace headrace
