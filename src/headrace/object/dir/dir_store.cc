#include "headrace/object/dir/dir_store.h"

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

class DirStore final : public ObjectStore {
 public:
  DirStore(std::shared_ptr<DirFiles> files, uint32_t threads)
      : files_(std::move(files)), pool_("hr folder", threads) {}

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
        Result<ObjectInfo> read = Read(request, ctx);
        // A handle that went stale: the same name may stand for a file that can be read.
        if (!read.ok() && read.status().code() == Code::kUnavailable) read = Read(request, ctx);
        done(std::move(read));
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
  // One opened file answers for the whole request, so that it is one version or an error.
  Result<ObjectInfo> Read(const GetRequest& request, const Context& ctx) const {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), request.key));
    auto file = files_->fs()->OpenForRead(files_->PathOf(request.key));
    if (!file.ok()) {
      Code code = file.status().code();
      // Invalid: a folder has the name, which is no object.
      if (code == Code::kNotFound || code == Code::kInvalidArgument)
        return NoSuchObject(name(), request.key);
      return std::move(file).status();
    }
    ObjectInfo info = DirFiles::Describe(request.key, (*file)->info());
    if (!request.if_match.empty() && info.etag != request.if_match)
      return ObjectReplaced(name(), request.key);
    if (request.out.empty()) return info;
    if (request.offset > info.size_bytes || request.out.size() > info.size_bytes - request.offset)
      return OutsideObject(name(), request.key, request.offset, request.out.size(),
                           info.size_bytes);
    HR_RETURN_IF_ERROR((*file)->ReadAt(request.offset, request.out, ctx));
    return info;
  }

  const std::shared_ptr<DirFiles> files_;
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
  auto files = std::make_shared<DirFiles>(fs, std::move(root));
  return std::make_shared<DirStore>(std::move(files), options.threads);
}

}  // namespace headrace::object
