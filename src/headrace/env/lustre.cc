#include "headrace/env/lustre.h"

#include <cerrno>

#include "headrace/base/text.h"
#include "headrace/env/dynamic_library.h"

namespace headrace {

namespace {

// From lustre/lustreapi.h. On a folder it sets what files made there inherit.
using FileCreate = int(const char* name, unsigned long long stripe_size, int stripe_offset,
                       int stripe_count, int stripe_pattern);
using SetMessageLevel = void(int level);

}  // namespace

Status SetFolderStriping(const std::string& folder, const Striping& striping,
                         const std::string& library) {
  constexpr uint64_t kUnit = 64 << 10;
  constexpr int kMaxCount = 2000, kAnyServer = -1, kDefaultPattern = 0, kNoMessages = 0;
  if (striping.count < -1 || striping.count > kMaxCount || striping.bytes % kUnit != 0 ||
      striping.bytes >= uint64_t{4} << 30)
    return Error(Code::kInvalidArgument,
                 "a striping over {} servers in pieces of {} bytes: expected -1 to {} servers, and "
                 "a multiple of 64 KiB below 4 GiB",
                 striping.count, striping.bytes, kMaxCount);
  Result<DynamicLibrary> lustre = DynamicLibrary::Open(library);
  auto* create = lustre.ok() ? reinterpret_cast<FileCreate*>(lustre->Find("llapi_file_create"))
                             : static_cast<FileCreate*>(nullptr);
  if (!create)
    return Error(Code::kUnimplemented, "{} cannot be striped: {} is not there", EscapeText(folder),
                 library);
  // It would print what it returns.
  if (auto* quiet = reinterpret_cast<SetMessageLevel*>(lustre->Find("llapi_msg_set_level")))
    quiet(kNoMessages);
  const int made =
      create(folder.c_str(), striping.bytes, kAnyServer, striping.count, kDefaultPattern);
  if (made >= 0) return OkStatus();
  if (made == -ENOTTY || made == -ENODEV || made == -EOPNOTSUPP || made == -ENOENT ||
      made == -EINVAL)
    return Error(Code::kUnimplemented, "{} is not on Lustre, or its Lustre takes no such layout",
                 EscapeText(folder));
  return ErrnoError(-made, "cannot set the striping of " + EscapeText(folder));
}

}  // namespace headrace
