// A real file system (ext4) in a file, mounted through a loop device, that can be shut down as by a
// power cut: what its journal has not written is lost, and every write from then on fails. For
// tests only; needs root. One owner at a time.
//
// It is mounted in a mount namespace that the calling thread enters for good, so it is gone with
// the process; threads and children started afterwards see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {

class LoopFileSystem {
 public:
  // kUnimplemented: this machine has none; the message says what it lacks.
  static Result<std::unique_ptr<LoopFileSystem>> Make(uint64_t bytes);
  // Unmounts it.
  ~LoopFileSystem();
  LoopFileSystem(const LoopFileSystem&) = delete;
  LoopFileSystem& operator=(const LoopFileSystem&) = delete;

  // Where it is mounted.
  const std::string& path() const { return path_; }

  Status Shutdown();
  // Mounts it again, as the machine's next start does. kFailedPrecondition: a file in it is open.
  Status Restart();

 private:
  LoopFileSystem();
  Status Mount();

  TemporaryDirectory folder_;
  const std::string image_, path_;
};

}  // namespace headrace
