#include "headrace/object/object_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/object/object_key.h"

namespace headrace::object {

namespace {

uint64_t HashOf(std::string_view text) {
  uint64_t hash = text.size();
  for (char c : text) hash = CombineKey(hash, static_cast<unsigned char>(c));
  return hash;
}

// Waits for several reads; keeps the first failure.
class Gathering {
 public:
  explicit Gathering(size_t reads) : left_(reads) {}
  void Done(Status status) {
    MutexLock lock(&mu_);
    if (first_.ok()) first_ = std::move(status);
    if (--left_ == 0) done_.NotifyOne();  // under the lock: the waiter owns this
  }
  Status Wait() {
    MutexLock lock(&mu_);
    while (left_ > 0) done_.Wait(&mu_);
    return std::move(first_);
  }

 private:
  Mutex mu_;
  CondVar done_;
  size_t left_ HR_GUARDED_BY(mu_);
  Status first_ HR_GUARDED_BY(mu_);
};

// Is what was read of the version `expected`? A store that cannot ask for one tells which it was.
Status CheckVersion(const ObjectStore& store, const ObjectInfo& expected,
                    const Result<ObjectInfo>& got) {
  if (!got.ok()) {
    if (got.status().code() != Code::kOutOfRange) return got.status();
    return ObjectReplaced(store.name(), expected.key);  // it is shorter than it was
  }
  const bool has_etags = !got->etag.empty() && !expected.etag.empty();
  bool other = has_etags && got->etag != expected.etag;
  bool resized = got->size_bytes != 0 && got->size_bytes != expected.size_bytes;
  // All that some web servers tell; where there are etags, several machines may tell several times.
  bool newer = !has_etags && got->mtime_ns != 0 && expected.mtime_ns != 0 &&
               got->mtime_ns != expected.mtime_ns;
  return other || resized || newer ? ObjectReplaced(store.name(), expected.key) : OkStatus();
}

class ObjectFile final : public RandomAccessFile {
 public:
  ObjectFile(std::shared_ptr<ObjectStore> store, ObjectInfo object, const std::string& root,
             std::string path, uint64_t part_bytes, const std::atomic<bool>* cancelled)
      : store_(std::move(store)),
        object_(std::move(object)),
        info_(FileInfoOf(root, object_)),
        path_(std::move(path)),
        part_bytes_(part_bytes),
        cancelled_(cancelled) {}

  Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    // What reads for a command knows of no interrupt; a silent server would keep it for minutes.
    Context own = ctx;
    if (own.cancelled == nullptr) own.cancelled = cancelled_;
    return ReadObject(store_.get(), object_, offset, out, part_bytes_, own)
        .At({path_, offset, {}, {}});
  }
  Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    if (offset >= size()) return size_t{0};
    out = out.first(std::min<uint64_t>(out.size(), size() - offset));
    HR_RETURN_IF_ERROR(ReadAt(offset, out, ctx));
    return out.size();
  }
  void Distrust(uint64_t offset, uint64_t bytes) const override {
    store_->Distrust(object_, offset, bytes);
  }
  void WillRead(uint64_t offset, uint64_t length, const Context& ctx) const override {
    store_->WillGet(object_, offset, length, ctx);
  }
  uint64_t size() const override { return object_.size_bytes; }
  FileInfo info() const override { return info_; }
  const std::string& path() const override { return path_; }

 private:
  const std::shared_ptr<ObjectStore> store_;
  const ObjectInfo object_;
  const FileInfo info_;
  const std::string path_;
  const uint64_t part_bytes_;
  const std::atomic<bool>* const cancelled_;
};

class ObjectWriter final : public WritableFile {
 public:
  ObjectWriter(std::shared_ptr<ObjectStore> store, std::string key, std::string path,
               uint64_t part_bytes, const Context& ctx)
      : store_(std::move(store)),
        key_(std::move(key)),
        path_(std::move(path)),
        part_bytes_(std::max(part_bytes, store_->abilities().min_part_bytes)),
        ctx_(ctx) {}

  Status Append(Bytes data) override {
    if (closed_ && failure_.ok())
      return Error(Code::kFailedPrecondition, "cannot write {}: it is closed", EscapeText(path_));
    while (failure_.ok() && !data.empty()) {
      Bytes part = data.first(std::min<uint64_t>(data.size(), part_bytes_ - waiting_.size()));
      waiting_.append(AsText(part));
      size_ += part.size();
      data = data.subspan(part.size());
      if (waiting_.size() == part_bytes_ && store_->abilities().upload) failure_ = SendPart();
    }
    return failure_;
  }
  Status Sync() override {
    if (closed_ && failure_.ok())
      return Error(Code::kFailedPrecondition, "cannot write {}: it is closed", EscapeText(path_));
    return failure_;  // the object is made, and durable, by Close
  }
  Status Close() override {
    if (closed_) return failure_;
    closed_ = true;
    if (failure_.ok()) failure_ = Finish();
    upload_.reset();
    return failure_;
  }
  uint64_t size() const override { return size_; }

 private:
  Status SendPart() {
    if (!upload_) {
      HR_ASSIGN_OR_RETURN(upload_, store_->StartUpload(key_, ctx_));
    }
    if (num_parts_ == store_->abilities().max_parts)
      return Error(Code::kResourceExhausted, "{} has more than {} parts of {}: it is too large",
                   EscapeText(path_), num_parts_, FormatSize(part_bytes_));
    HR_RETURN_IF_ERROR(upload_->PutPart(++num_parts_, AsBytes(waiting_), ctx_));
    waiting_.clear();
    return OkStatus();
  }
  Status Finish() {
    if (!upload_) return store_->Put(key_, AsBytes(waiting_), {}, ctx_).status();
    if (!waiting_.empty()) HR_RETURN_IF_ERROR(SendPart());
    return upload_->Complete(num_parts_, ctx_).status();
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::string key_, path_;
  const uint64_t part_bytes_;
  const Context ctx_;
  std::unique_ptr<Upload> upload_;  // destroyed without Complete it gives the parts up
  std::string waiting_;             // what is not sent yet
  uint32_t num_parts_ = 0;
  uint64_t size_ = 0;
  bool closed_ = false;
  Status failure_;
};

}  // namespace

Status ReadObject(ObjectStore* store, const ObjectInfo& info, uint64_t offset, MutableBytes out,
                  uint64_t part_bytes, const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  if (offset > info.size_bytes || out.size() > info.size_bytes - offset)
    return Error(Code::kDataLoss, "the object {} has {} bytes, expected {} bytes from byte {} on",
                 ObjectName(store->name(), info.key), info.size_bytes, out.size(), offset);
  if (out.empty()) return OkStatus();
  const std::string if_match = store->abilities().get_if_match ? info.etag : std::string();
  if (!if_match.empty() &&
      store->TryGet({.key = info.key, .offset = offset, .out = out, .if_match = if_match}, ctx))
    return OkStatus();
  std::vector<GetRequest> requests;
  for (size_t done = 0; done < out.size(); done += requests.back().out.size()) {
    MutableBytes part = out.subspan(done, std::min<uint64_t>(part_bytes, out.size() - done));
    requests.push_back(
        {.key = info.key, .offset = offset + done, .out = part, .if_match = if_match});
  }
  Gathering gathering(requests.size());
  std::vector<ObjectStore::GetDone> dones(requests.size(), [&](const Result<ObjectInfo>& got) {
    gathering.Done(CheckVersion(*store, info, got));
  });
  store->SubmitGets(std::move(requests), std::move(dones), ctx);
  return gathering.Wait();
}

FileInfo FileInfoOf(const std::string& root, const ObjectInfo& info) {
  FileInfo file;
  file.size_bytes = info.size_bytes;
  file.mtime_ns = info.mtime_ns;
  file.device = HashOf(root);
  file.inode = CombineKey(HashOf(info.key), HashOf(info.etag));
  return file;
}

FileInfo DirectoryInfoOf(const std::string& root, const std::string& key) {
  FileInfo info;
  info.kind = FileKind::kDirectory;
  info.device = HashOf(root);
  info.inode = HashOf(key + "/");
  return info;
}

std::unique_ptr<RandomAccessFile> MakeObjectFile(std::shared_ptr<ObjectStore> store,
                                                 ObjectInfo info, const std::string& root,
                                                 std::string path, uint64_t part_bytes,
                                                 const std::atomic<bool>* cancelled) {
  return std::make_unique<ObjectFile>(std::move(store), std::move(info), root, std::move(path),
                                      part_bytes, cancelled);
}

std::unique_ptr<WritableFile> MakeObjectWriter(std::shared_ptr<ObjectStore> store, std::string key,
                                               std::string path, uint64_t part_bytes,
                                               const Context& ctx) {
  return std::make_unique<ObjectWriter>(std::move(store), std::move(key), std::move(path),
                                        part_bytes, ctx);
}

}  // namespace headrace::object
