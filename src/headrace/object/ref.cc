#include "headrace/object/ref.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headrace/base/sha256.h"
#include "headrace/base/text.h"
#include "headrace/object/object_key.h"
#include "headrace/object/pause.h"

namespace headrace::object {

namespace {

Status CheckContent(const std::string& name, Bytes content) {
  if (content.size() <= Ref::kMaxBytes) return OkStatus();
  return Error(Code::kInvalidArgument, "{} holds at most {} bytes, got {}", name, Ref::kMaxBytes,
               content.size());
}

Status Moved(const std::string& name) {
  return Error(Code::kFailedPrecondition,
               "{} is not the version expected: another writer was faster; read it again", name);
}

class FileRef final : public Ref {
 public:
  FileRef(FileSystem* fs, std::string path)
      : fs_(fs), path_(std::move(path)), name_(EscapeText(path_)) {}

  const std::string& name() const override { return name_; }

  Result<Value> Read(const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    Result<std::string> content = fs_->ReadWhole(path_, kMaxBytes);
    // A handle gone stale on a network file system: the file was replaced meanwhile.
    if (!content.ok() && content.status().code() == Code::kUnavailable)
      content = fs_->ReadWhole(path_, kMaxBytes);
    if (!content.ok()) return std::move(content).status();
    std::string version = VersionOf(*content);
    return Value{*std::move(content), std::move(version)};
  }

  Result<std::string> Swap(const std::string& expected, Bytes content,
                           const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckContent(name_, content));
    HR_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, Lock(ctx));
    Result<Value> now = Read(ctx);
    if (!now.ok() && now.status().code() != Code::kNotFound) return std::move(now).status();
    if ((now.ok() ? now->version : std::string()) != expected) return Moved(name_);
    HR_RETURN_IF_ERROR(fs_->WriteAtomically(path_, content));
    return VersionOf(AsText(content));
  }

 private:
  static std::string VersionOf(std::string_view content) {
    Sha256 digest;
    digest.Update(content);
    return digest.Finish();
  }

  Result<std::unique_ptr<FileLock>> Lock(const Context& ctx) {
    constexpr std::chrono::milliseconds kLongestPause(20);
    for (std::chrono::milliseconds pause(1);; pause = std::min(pause * 2, kLongestPause)) {
      auto lock = fs_->Lock(path_ + ".lock");
      if (lock.ok() || lock.status().code() != Code::kFailedPrecondition) return lock;
      HR_RETURN_IF_ERROR(PauseFor(pause, ctx));
    }
  }

  FileSystem* const fs_;
  const std::string path_, name_;
};

class ObjectRef final : public Ref {
 public:
  ObjectRef(std::shared_ptr<ObjectStore> store, std::string key)
      : store_(std::move(store)), key_(std::move(key)), name_(ObjectName(store_->name(), key_)) {}

  const std::string& name() const override { return name_; }

  Result<Value> Read(const Context& ctx) override {
    constexpr int kAttempts = 20;
    Status replaced;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      HR_ASSIGN_OR_RETURN(ObjectInfo info, store_->Head(key_, ctx));
      if (info.size_bytes > kMaxBytes)
        return Error(Code::kDataLoss, "{} has {} bytes, at most {} are expected: it is no ref",
                     name_, info.size_bytes, kMaxBytes);
      Value value{std::string(info.size_bytes, '\0'), info.etag};
      Result<ObjectInfo> got = store_->Get({.key = key_,
                                            .offset = 0,
                                            .out = std::as_writable_bytes(std::span(value.content)),
                                            .if_match = info.etag},
                                           ctx);
      if (got.ok()) return value;
      if (got.status().code() != Code::kFailedPrecondition) return std::move(got).status();
      replaced = std::move(got).status();  // between the two requests
    }
    return Error(Code::kUnavailable, "{} is replaced all the time: {}", name_, replaced.message());
  }

  Result<std::string> Swap(const std::string& expected, Bytes content,
                           const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckContent(name_, content));
    auto etag =
        store_->Put(key_, content, {.if_absent = expected.empty(), .if_match = expected}, ctx);
    Code code = etag.status().code();
    if (code == Code::kAlreadyExists || code == Code::kFailedPrecondition) return Moved(name_);
    return etag;
  }

 private:
  const std::shared_ptr<ObjectStore> store_;
  const std::string key_, name_;
};

}  // namespace

std::unique_ptr<Ref> MakeFileRef(FileSystem* fs, const std::string& path) {
  return std::make_unique<FileRef>(fs, path);
}

Result<std::unique_ptr<Ref>> MakeObjectRef(std::shared_ptr<ObjectStore> store,
                                           const std::string& key) {
  const Abilities& can = store->abilities();
  if (!can.put_if_absent || !can.put_if_match || !can.get_if_match)
    return CannotDo(store->name(), "put with a condition, so it cannot hold a ref");
  HR_RETURN_IF_ERROR(CheckKey(store->name(), key));
  return std::make_unique<ObjectRef>(std::move(store), key);
}

}  // namespace headrace::object
