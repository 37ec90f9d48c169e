#include "headrace/checkpoint/verify.h"

#include <algorithm>
#include <set>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/checkpoint/parallel.h"
#include "headrace/checkpoint/safetensors.h"

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;

// Compares a file with its checksums, and its header with what the manifest says of its boxes.
Status VerifyFile(DataFiles* files, const FileEntry& entry, const Context& ctx,
                  VerifyProgress* progress) {
  HR_ASSIGN_OR_RETURN(ChunkSums sums, ReadSums(files, entry, ctx));
  HR_ASSIGN_OR_RETURN(auto file, files->Open(entry.DataKey(), entry.bytes, ctx));
  const std::string name = files->name() + "/" + entry.DataKey();
  std::vector<std::byte> buffer(std::min(kReadBytes, entry.bytes));
  for (uint64_t offset = 0; offset < entry.bytes; offset += buffer.size()) {
    MutableBytes part(buffer.data(), std::min<uint64_t>(buffer.size(), entry.bytes - offset));
    HR_RETURN_IF_ERROR(file->Read(offset, part, ctx));
    HR_RETURN_IF_ERROR(sums.Check(offset, part, name));
    progress->bytes += part.size();
  }
  return OkStatus();
}

std::vector<std::string> TensorsIn(const Manifest& manifest, uint32_t file) {
  std::set<std::string> paths;
  for (size_t i = 0; i < manifest.boxes.size() && paths.size() < 20; ++i)
    if (manifest.boxes.entry(i).file == file)
      paths.insert(std::string(manifest.tensors.path(manifest.boxes.entry(i).tensor)));
  return {paths.begin(), paths.end()};
}

}  // namespace

Result<VerifyReport> VerifyFiles(DataFiles* files, const Manifest& manifest, int threads,
                                 const Context& ctx, VerifyProgress* progress) {
  for (const FileEntry& file : manifest.files) progress->total_bytes += file.bytes;
  VerifyReport report;
  Mutex mu;
  HR_RETURN_IF_ERROR(ForEach(manifest.files.size(), threads, [&](size_t i) -> Status {
    const FileEntry& entry = manifest.files[i];
    Status status = VerifyFile(files, entry, ctx, progress);
    HR_RETURN_IF_ERROR(ctx.Check());
    MutexLock lock(&mu);
    ++report.files;
    report.bytes += entry.bytes;
    if (!status.ok())
      report.faults.push_back(
          {entry.DataKey(), TensorsIn(manifest, static_cast<uint32_t>(i)), std::move(status)});
    return OkStatus();
  }));
  std::sort(report.faults.begin(), report.faults.end(),
            [](const VerifyFault& a, const VerifyFault& b) { return a.file < b.file; });
  return report;
}

}  // namespace headrace::checkpoint
