#include "headrace/dataset/file_checksum.h"

#include <algorithm>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/keyed_random.h"

namespace headrace::dataset {

Result<uint32_t> ChecksumOfFile(FileSystem* fs, const std::string& path, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(auto file, fs->OpenForRead(path));
  return ChecksumOfFile(*file, ctx);
}

Result<uint32_t> ChecksumOfFile(const RandomAccessFile& file, const Context& ctx) {
  std::vector<std::byte> buffer(std::min<uint64_t>(file.size(), 1 << 20));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    HR_RETURN_IF_ERROR(ctx.Check());
    MutableBytes part =
        MutableBytes(buffer).first(std::min<uint64_t>(buffer.size(), file.size() - at));
    HR_RETURN_IF_ERROR(file.ReadAt(at, part, ctx));
    crc = Crc32c(part, crc);
  }
  return crc;
}

uint64_t FileVersion(const FileInfo& info) {
  if (info.inode == 0 || info.mtime_ns == 0) return 0;
  return HashKey(info.device, info.inode, info.size_bytes, static_cast<uint64_t>(info.mtime_ns)) |
         1;
}

}  // namespace headrace::dataset
