#include "headrace/env/testing/loop_file_system.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "headrace/env/command.h"
#include "headrace/env/posix_descriptor.h"

namespace headrace {
namespace {

// Of <linux/fs.h> and <linux/ext4.h> where these are new enough.
constexpr unsigned long kShutdown = _IOR('X', 125, uint32_t);
constexpr uint32_t kWithoutFlushingTheJournal = 2;

Status Lacks(std::string_view what) {
  return Error(Code::kUnimplemented, "no file system can be made and shut down here: {}", what);
}

// Runs a program that prints nothing when all is well.
Status Run(const std::vector<std::string>& arguments) {
  HR_ASSIGN_OR_RETURN(const CommandOutput done, RunCommand(arguments, 1 << 16, {}));
  if (done.exit_code == 0) return OkStatus();
  return Error(Code::kFailedPrecondition, "{} ended with {}", arguments[0], done.exit_code);
}

}  // namespace

LoopFileSystem::LoopFileSystem() : image_(folder_ / "image"), path_(folder_ / "mounted") {}

LoopFileSystem::~LoopFileSystem() {
  ::umount2(path_.c_str(), MNT_DETACH);  // also when a failed test has left something open
}

Result<std::unique_ptr<LoopFileSystem>> LoopFileSystem::Make(uint64_t bytes) {
  if (::geteuid() != 0) return Lacks("that takes root");
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Lacks(PathError(errno, "enter", "a mount namespace").message());
  std::unique_ptr<LoopFileSystem> made(new LoopFileSystem());
  Descriptor image(::open(made->image_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!image.valid() || ::ftruncate(image.get(), static_cast<off_t>(bytes)) != 0 ||
      ::mkdir(made->path_.c_str(), 0700) != 0)
    return PathError(errno, "make", made->image_);
  if (Status status = Run({"mkfs.ext4", "-q", "-F", made->image_}); !status.ok())
    return Lacks(status.message());
  if (Status status = made->Mount(); !status.ok()) return Lacks(status.message());
  // A kernel that cannot do that says so here.
  if (Status status = made->Shutdown(); !status.ok()) return Lacks(status.message());
  HR_RETURN_IF_ERROR(made->Restart());
  return made;
}

Status LoopFileSystem::Mount() { return Run({"mount", "-o", "loop", image_, path_}); }

Status LoopFileSystem::Shutdown() {
  const Descriptor root(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return PathError(errno, "open", path_);
  uint32_t how = kWithoutFlushingTheJournal;
  if (::ioctl(root.get(), kShutdown, &how) != 0) return PathError(errno, "shut down", path_);
  return OkStatus();
}

Status LoopFileSystem::Restart() {
  HR_RETURN_IF_ERROR(Run({"umount", path_}));
  return Mount();
}

}  // namespace headrace
