#include "headrace/env/durable_write.h"

#include <algorithm>

#include "headrace/env/posix_durable_file.h"

namespace headrace {

Status WriteDurably(FileSystem* fs, const std::string& path, std::span<const Bytes> parts,
                    const Context& ctx) {
  constexpr size_t kAtOnce = size_t{16} << 20;
  if (fs == PosixFileSystem()) return WritePosixDurably(path, parts, {}, ctx);
  HR_ASSIGN_OR_RETURN(auto file, fs->Create(path));
  for (Bytes part : parts) {
    for (; !part.empty(); part = part.subspan(std::min(kAtOnce, part.size()))) {
      HR_RETURN_IF_ERROR(ctx.Check());
      HR_RETURN_IF_ERROR(file->Append(part.first(std::min(kAtOnce, part.size()))));
    }
  }
  HR_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace headrace
