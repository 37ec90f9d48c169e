#include "headrace/checkpoint/export.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "headrace/checkpoint/pieces.h"
#include "headrace/checkpoint/safetensors.h"
#include "headrace/checkpoint/tensor_path.h"

namespace headrace::checkpoint {
namespace {

struct Exported {
  uint32_t tensor = 0;
  std::string name;
};

// The keys behind the first `skip` ones, joined by dots.
Result<std::string> NameBehind(std::string_view path, size_t skip) {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> keys, SplitPath(path));
  std::string name;
  for (size_t i = std::min(skip, keys.size()); i < keys.size(); ++i)
    name += (name.empty() ? "" : ".") + keys[i];
  return name.empty() ? std::string("tensor") : name;
}

Result<std::vector<Exported>> Choose(const Manifest& manifest, const std::string& below) {
  size_t skip = 0;
  if (!below.empty()) {
    HR_ASSIGN_OR_RETURN(std::vector<std::string> keys, SplitPath(below));
    skip = keys.size();
  }
  std::vector<Exported> chosen;
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    std::string_view path = manifest.tensors.path(i);
    if (!below.empty() && path != below && !path.starts_with(below + "/")) continue;
    HR_ASSIGN_OR_RETURN(std::string name, NameBehind(path, skip));
    chosen.push_back({i, std::move(name)});
  }
  if (chosen.empty())
    return Error(Code::kNotFound, "this checkpoint has no tensors below {}", below);
  return chosen;
}

// Restores a tensor, piece by piece, and appends it.
Status AppendTensor(DataFiles* files, const Manifest& manifest, uint32_t tensor,
                    const ExportOptions& options, WritableFile* out, const Context& ctx,
                    ExportProgress* progress) {
  std::vector<std::byte> buffer;
  auto piece = [&](const Box& box) -> Status {
    HR_RETURN_IF_ERROR(ReadBox(files, manifest, tensor, box, options.threads, ctx, &buffer));
    HR_RETURN_IF_ERROR(out->Append(buffer));
    progress->bytes += buffer.size();
    return OkStatus();
  };
  return ForEachPiece(manifest.tensors.shape(tensor), manifest.tensors.dtype(tensor),
                      options.memory_bytes, piece);
}

Status WriteAll(DataFiles* files, const Manifest& manifest, std::span<const Exported> chosen,
                const WrittenHeader& header, const ExportOptions& options, FileSystem* fs,
                const std::string& path, const Context& ctx, ExportProgress* progress) {
  HR_ASSIGN_OR_RETURN(auto out, fs->CreateDirect(path));
  HR_RETURN_IF_ERROR(out->Append(AsBytes(header.bytes)));
  for (const Exported& one : chosen)
    HR_RETURN_IF_ERROR(
        AppendTensor(files, manifest, one.tensor, options, out.get(), ctx, progress));
  HR_RETURN_IF_ERROR(out->Sync());
  return out->Close();
}

}  // namespace

Result<ExportReport> ExportSafetensors(DataFiles* files, const Manifest& manifest,
                                       const ExportOptions& options, FileSystem* fs,
                                       const std::string& path, const Context& ctx,
                                       ExportProgress* progress) {
  HR_ASSIGN_OR_RETURN(std::vector<Exported> chosen, Choose(manifest, options.below));
  std::vector<SafetensorsSpec> specs;
  for (const Exported& one : chosen)
    specs.push_back(
        {one.name, manifest.tensors.dtype(one.tensor), manifest.tensors.shape(one.tensor)});
  const std::array<std::pair<std::string, std::string>, 2> metadata = {
      {{"format", "pt"}, {"headrace.save", manifest.info.id.Text()}}};
  HR_ASSIGN_OR_RETURN(WrittenHeader header, WriteSafetensorsHeader(specs, metadata));
  progress->total_bytes = header.file_bytes - header.bytes.size();

  const std::string folder(DirectoryName(path));
  std::string temporary;
  {
    HR_ASSIGN_OR_RETURN(auto named, fs->CreateTemporary(folder, &temporary));
    HR_RETURN_IF_ERROR(named->Close());
  }
  Status status = WriteAll(files, manifest, chosen, header, options, fs, temporary, ctx, progress);
  if (status.ok()) status = fs->Rename(temporary, path);
  if (!status.ok()) {
    (void)fs->Remove(temporary);
    return status;
  }
  HR_RETURN_IF_ERROR(fs->SyncDirectory(folder));
  return ExportReport{chosen.size(), header.file_bytes};
}

}  // namespace headrace::checkpoint
