#include "headrace/object/ref.h"

#include <algorithm>
#include <atomic>
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

// What a network file system may get wrong, and what is done about it:
// - A machine remembers for a while which file a name stands for, and so reads what has been
//   replaced. What a swap goes by is therefore read by a second name, which the server gives to the
//   file that it has and to no other; and who sets the ref first is decided by the server too.
// - A file that is replaced while it is opened is told as stale, or as not there: it is looked for
//   again, under the lock where nobody replaces it.
// - An answer is lost and the request made again, which then says that the temporary file is gone:
//   the content tells whether it was done.
class FileRef final : public Ref {
 public:
  FileRef(FileSystem* fs, std::string path)
      : fs_(fs), path_(std::move(path)), name_(EscapeText(path_)) {}

  const std::string& name() const override { return name_; }

  Result<Value> Read(const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    Result<Value> value = Look(path_, ctx);
    // Where it was never set there is no lock either.
    if (value.ok() || !IsOdd(value.status()) || !fs_->Exists(path_ + ".lock")) return value;
    Result<std::unique_ptr<FileLock>> lock = Lock(ctx);
    if (IsOfTheCaller(lock.status())) return std::move(lock).status();
    return LookAgain(ctx);
  }

  Result<std::string> Swap(const std::string& expected, Bytes content,
                           const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckContent(name_, content));
    HR_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, Lock(ctx));
    if (expected.empty()) return SetFirst(content, ctx);
    Result<Value> now = LookSurely(ctx);
    if (!now.ok() && now.status().code() != Code::kNotFound) return std::move(now).status();
    if (!now.ok() || now->version != expected) return Moved(name_);
    return Replace(content, ctx);
  }

 private:
  static std::string VersionOf(std::string_view content) {
    Sha256 digest;
    digest.Update(content);
    return digest.Finish();
  }
  // What may be said of a file that is being replaced, besides of one that is not there.
  static bool IsOdd(const Status& status) {
    return status.code() == Code::kNotFound || status.code() == Code::kUnavailable;
  }
  static bool IsOfTheCaller(const Status& status) {
    return status.code() == Code::kCancelled || status.code() == Code::kDeadlineExceeded;
  }

  Result<Value> Look(const std::string& path, const Context& ctx) {
    HR_RETURN_IF_ERROR(ctx.Check());
    Result<std::string> content = fs_->ReadWhole(path, kMaxBytes);
    if (!content.ok()) return std::move(content).status();
    std::string version = VersionOf(*content);
    return Value{*std::move(content), std::move(version)};
  }

  // More than once where a name was found and its file was not.
  Result<Value> LookAgain(const Context& ctx) {
    constexpr int kAttempts = 4;
    constexpr std::chrono::milliseconds kPause(5);
    for (int attempt = 1;; ++attempt) {
      Result<Value> value = Look(path_, ctx);
      if (value.ok() || !IsOdd(value.status()) || attempt == kAttempts) return value;
      HR_RETURN_IF_ERROR(PauseFor(kPause, ctx));
    }
  }

  // What the server has, whatever this machine remembers. Under the lock only.
  Result<Value> LookSurely(const Context& ctx) {
    // Longer than a machine usually remembers names.
    constexpr std::chrono::seconds kPatience(10);
    constexpr std::chrono::milliseconds kPause(20);
    const auto give_up = Context::Clock::now() + kPatience;
    while (true) {
      Result<Value> value = LookBySecondName(ctx);
      if (value.ok() || !IsOdd(value.status()) || !fs_->Exists(path_)) return value;
      if (Context::Clock::now() >= give_up)
        return Error(Code::kUnavailable,
                     "{} was replaced, and this machine goes on looking for the old file: its "
                     "mount remembers names for too long ({})",
                     name_, value.status().message());
      HR_RETURN_IF_ERROR(PauseFor(kPause, ctx));
    }
  }

  Result<Value> LookBySecondName(const Context& ctx) {
    const std::string second = path_ + ".seen";
    (void)fs_->Remove(second);  // left by one that was killed
    Status linked = fs_->Link(path_, second);
    if (linked.code() == Code::kUnimplemented) return LookAgain(ctx);
    if (linked.code() == Code::kAlreadyExists)
      return Status(Code::kUnavailable, std::string(linked.message()));
    HR_RETURN_IF_ERROR(linked);
    Result<Value> value = Look(second, ctx);
    (void)fs_->Remove(second);
    return value;
  }

  // Of all who believe that it was never set the server lets one win.
  Result<std::string> SetFirst(Bytes content, const Context& ctx) {
    if (fs_->Exists(path_)) return Moved(name_);
    std::string folder(DirectoryName(path_)), temporary;
    HR_ASSIGN_OR_RETURN(auto file, fs_->CreateTemporary(folder, &temporary));
    Status status = file->Append(content);
    if (status.ok()) status = file->Sync();
    if (status.ok()) status = file->Close();
    if (status.ok()) status = fs_->RenameIfAbsent(temporary, path_);
    if (status.ok()) status = fs_->SyncDirectory(folder);
    if (status.ok()) return VersionOf(AsText(content));
    (void)fs_->Remove(temporary);
    if (status.code() == Code::kAlreadyExists) return Moved(name_);
    if (status.code() == Code::kUnimplemented) return Replace(content, ctx);
    return Settle(content, std::move(status), ctx);
  }

  Result<std::string> Replace(Bytes content, const Context& ctx) {
    Status status = fs_->WriteAtomically(path_, content);
    if (status.ok()) return VersionOf(AsText(content));
    return Settle(content, std::move(status), ctx);
  }

  // Was it done all the same?
  Result<std::string> Settle(Bytes content, Status failure, const Context& ctx) {
    if (!IsOdd(failure)) return failure;
    Result<Value> value = LookAgain(ctx);
    if (!value.ok() || value->content != AsText(content)) return failure;
    HR_RETURN_IF_ERROR(fs_->SyncDirectory(std::string(DirectoryName(path_))));
    return std::move(value->version);
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

  // Replaced between the two requests of a look, it is looked at again; slower and slower, so that
  // readers do not hold up the writers.
  Result<Value> Read(const Context& ctx) override {
    constexpr std::chrono::seconds kPatience(60);
    constexpr std::chrono::milliseconds kLongestPause(200);
    constexpr int kLooksForOneThatWasThere = 6;
    const auto give_up = Context::Clock::now() + kPatience;
    std::chrono::milliseconds pause(1);
    for (int look = 1;; ++look, pause = std::min(pause * 2, kLongestPause)) {
      Result<Value> value = Look(ctx);
      if (value.ok()) was_seen_.store(true, std::memory_order_relaxed);
      if (value.ok()) return value;
      const Code code = value.status().code();
      // On a network file system a name may be gone for a moment while it is replaced.
      const bool blinks = code == Code::kNotFound && look < kLooksForOneThatWasThere &&
                          was_seen_.load(std::memory_order_relaxed);
      // Out of range: the new one is shorter.
      if (!blinks && code != Code::kFailedPrecondition && code != Code::kOutOfRange) return value;
      if (Context::Clock::now() >= give_up)
        return Error(Code::kUnavailable, "{} is replaced all the time: {}", name_,
                     value.status().message());
      HR_RETURN_IF_ERROR(PauseFor(pause, ctx));
    }
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
  Result<Value> Look(const Context& ctx) {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, store_->Head(key_, ctx));
    if (info.size_bytes > kMaxBytes)
      return Error(Code::kDataLoss, "{} has {} bytes, at most {} are expected: it is no ref", name_,
                   info.size_bytes, kMaxBytes);
    Value value{std::string(info.size_bytes, '\0'), info.etag};
    Result<ObjectInfo> got = store_->Get({.key = key_,
                                          .offset = 0,
                                          .out = std::as_writable_bytes(std::span(value.content)),
                                          .if_match = info.etag},
                                         ctx);
    if (!got.ok()) return std::move(got).status();
    return value;
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::string key_, name_;
  std::atomic<bool> was_seen_{false};
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
