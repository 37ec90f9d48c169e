#include "headrace/object/dir/dir_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/dir/dir_files.h"
#include "headrace/object/dir/dir_listing.h"
#include "headrace/object/dir/dir_uploads.h"
#include "headrace/object/list_page.h"
#include "headrace/object/object_key.h"
#include "headrace/object/task_pool.h"

namespace headrace::object {

namespace {

// Reads a range whose offset, length and memory may be any, as direct reads must be made.
Status ReadAligned(const RandomAccessFile& file, uint64_t offset, MutableBytes out,
                   const Context& ctx) {
  constexpr uint64_t kUnit = kDirectAlignment;
  const bool aligned = offset % kUnit == 0 && out.size() % kUnit == 0 &&
                       reinterpret_cast<uintptr_t>(out.data()) % kUnit == 0;
  if (aligned) return file.ReadAt(offset, out, ctx);
  const uint64_t begin = offset / kUnit * kUnit;
  const uint64_t end = (offset + out.size() + kUnit - 1) / kUnit * kUnit;
  // One unit more, since the buffer's own alignment is smaller.
  AlignedBuffer buffer;
  if (!buffer.Reserve(end - begin + kUnit, true))
    return Error(Code::kResourceExhausted, "no memory for reading {} bytes of {}", out.size(),
                 EscapeText(file.path()));
  const uint64_t skip = (kUnit - reinterpret_cast<uintptr_t>(buffer.data()) % kUnit) % kUnit;
  HR_ASSIGN_OR_RETURN(size_t found, file.ReadSome(begin, {buffer.data() + skip, end - begin}, ctx));
  if (begin + found < offset + out.size())
    return Error(Code::kDataLoss, "{} ends at byte {}, expected {} bytes from byte {} on",
                 EscapeText(file.path()), begin + found, out.size(), offset);
  std::memcpy(out.data(), buffer.data() + skip + (offset - begin), out.size());
  return OkStatus();
}

class DirStore final : public ObjectStore {
 public:
  DirStore(std::shared_ptr<DirFiles> files, const DirStoreOptions& options)
      : files_(std::move(files)), direct_(options.direct), pool_("hr folder", options.threads) {}

  const std::string& name() const override { return files_->name(); }
  const Abilities& abilities() const override {
    static const Abilities abilities = {.list = true,
                                        .write = true,
                                        .upload = true,
                                        .put_if_absent = true,
                                        .put_if_match = true,
                                        .get_if_match = true,
                                        .strict_keys = false};
    return abilities;
  }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    return files_->Stat(key, files_->PathOf(key));
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      pool_.Run([this, request = std::move(requests[i]), done = std::move(dones[i]), ctx] {
        done(ReadTwice(request, ctx));
      });
    }
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    return files_->Publish(key, options, ctx,
                           [data](WritableFile* file) { return file->Append(data); });
  }

  Status Delete(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    return files_->Remove(key);
  }

  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    DirListing listing(
        files_->fs(), files_->root(), request.prefix,
        [this](const std::string& key, const std::string& path) { return files_->Stat(key, path); },
        ctx);
    return FillListPage(request,
                        [&listing](const std::string& at_least) { return listing.Next(at_least); });
  }

  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    return StartDirUpload(files_, key);
  }

  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    return ListDirUploads(*files_, prefix, ctx);
  }

  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    return AbortDirUpload(*files_, upload.id);
  }

 private:
  // A handle that went stale: the same name may stand for a file that can be read. And a server
  // that did not answer in its own time: that is not the caller's deadline.
  Result<ObjectInfo> ReadTwice(const GetRequest& request, const Context& ctx) const {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), request.key));
    auto may_pass = [&ctx](const Result<ObjectInfo>& read) {
      const Code code = read.status().code();
      return code == Code::kUnavailable || (code == Code::kDeadlineExceeded && ctx.Check().ok());
    };
    Result<ObjectInfo> read = Read(request, ctx);
    if (read.ok() || !may_pass(read)) return read;
    files_->Close(request.key);
    read = Read(request, ctx);
    if (read.ok() || !may_pass(read)) return read;
    files_->Close(request.key);
    return Error(Code::kUnavailable, "{}", read.status().message()).At(read.status().location());
  }

  // One opened file answers for the whole request, so that it is one version or an error.
  Result<ObjectInfo> Read(const GetRequest& request, const Context& ctx) const {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_ASSIGN_OR_RETURN(DirFiles::OpenObject object, files_->Open(request.key, request.if_match));
    ObjectInfo& info = object.info;
    if (request.out.empty()) return info;
    if (request.offset > info.size_bytes || request.out.size() > info.size_bytes - request.offset)
      return OutsideObject(name(), request.key, request.offset, request.out.size(),
                           info.size_bytes);
    HR_RETURN_IF_ERROR(direct_ ? ReadAligned(*object.file, request.offset, request.out, ctx)
                               : object.file->ReadAt(request.offset, request.out, ctx));
    return info;
  }

  const std::shared_ptr<DirFiles> files_;
  const bool direct_;
  TaskPool pool_;  // last: its tasks use the rest
};

}  // namespace

Result<std::shared_ptr<ObjectStore>> OpenDirStore(const std::string& folder,
                                                  const DirStoreOptions& options) {
  FileSystem* fs = options.fs ? options.fs : PosixFileSystem();
  HR_ASSIGN_OR_RETURN(FileInfo info, fs->Stat(folder));
  if (info.kind != FileKind::kDirectory)
    return Error(Code::kInvalidArgument, "{} is not a folder", EscapeText(folder));
  std::string root = folder;
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  if (options.striping) {
    Status striped = SetFolderStriping(root, *options.striping);
    if (!striped.ok() && striped.code() != Code::kUnimplemented) return striped;
  }
  auto files = std::make_shared<DirFiles>(fs, std::move(root), options);
  return std::make_shared<DirStore>(std::move(files), options);
}

}  // namespace headrace::object
