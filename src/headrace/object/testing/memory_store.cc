#include "headrace/object/testing/memory_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/sha256.h"
#include "headrace/object/list_page.h"
#include "headrace/object/object_key.h"
#include "headrace/object/task_pool.h"

namespace headrace::object {

namespace {

struct Object {
  std::shared_ptr<const std::string> content;
  ObjectInfo info;
};

struct Parts {
  std::string key;
  int64_t started_ns = 0;
  std::map<uint32_t, std::string> parts;
};

// What the store holds; uploads share it.
struct State {
  explicit State(const MemoryStoreOptions& o) : options(o) {}

  const MemoryStoreOptions options;
  Mutex mu;  // order: none is taken under it
  std::map<std::string, Object> objects HR_GUARDED_BY(mu);
  std::map<std::string, Parts> uploads HR_GUARDED_BY(mu);
  int64_t clock_ns HR_GUARDED_BY(mu) = 0;  // one more at each change
  uint64_t num_uploads HR_GUARDED_BY(mu) = 0;

  std::string Write(const std::string& key, std::string content, const std::string& mark = "")
      HR_REQUIRES(mu) {
    Sha256 digest;
    digest.Update(content);
    ObjectInfo info{.key = key,
                    .size_bytes = content.size(),
                    .etag = digest.Finish().substr(0, 32),
                    .mtime_ns = ++clock_ns,
                    .mark = options.abilities.put_mark ? mark : ""};
    std::string etag = info.etag;
    objects[key] = {std::make_shared<const std::string>(std::move(content)), std::move(info)};
    return etag;
  }

  std::optional<Object> Find(const std::string& key) {
    MutexLock lock(&mu);
    auto found = objects.find(key);
    if (found == objects.end()) return std::nullopt;
    return found->second;
  }
};

class MemoryUpload final : public Upload {
 public:
  MemoryUpload(std::shared_ptr<State> state, std::string key, std::string id)
      : state_(std::move(state)), key_(std::move(key)), id_(std::move(id)) {}
  ~MemoryUpload() override { (void)Abort(Context()); }

  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (number == 0 || number > state_->options.abilities.max_parts)
      return Error(Code::kInvalidArgument, "the parts of {} are numbered from 1 to {}, found {}",
                   Name(), state_->options.abilities.max_parts, number);
    MutexLock lock(&state_->mu);
    HR_ASSIGN_OR_RETURN(Parts * upload, Find());
    upload->parts[number] = AsText(data);
    return OkStatus();
  }

  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (num_parts == 0)
      return Error(Code::kInvalidArgument, "an upload has at least 1 part: {}", Name());
    MutexLock lock(&state_->mu);
    HR_ASSIGN_OR_RETURN(Parts * upload, Find());
    std::string content;
    for (uint32_t number = 1; number <= num_parts; ++number) {
      auto part = upload->parts.find(number);
      if (part == upload->parts.end())
        return Error(Code::kFailedPrecondition, "part {} of {} was not sent: {}", number, num_parts,
                     Name());
      if (number < num_parts && part->second.size() < state_->options.abilities.min_part_bytes)
        return Error(Code::kInvalidArgument, "part {} of {} has {} bytes, expected at least {}",
                     number, Name(), part->second.size(), state_->options.abilities.min_part_bytes);
      content += part->second;
    }
    std::string etag = state_->Write(key_, std::move(content));
    state_->uploads.erase(id_);
    return etag;
  }

  Status Abort(const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    MutexLock lock(&state_->mu);
    state_->uploads.erase(id_);
    return OkStatus();
  }

 private:
  std::string Name() const { return ObjectName(state_->options.name, key_); }
  Result<Parts*> Find() HR_REQUIRES(state_->mu) {
    auto found = state_->uploads.find(id_);
    if (found != state_->uploads.end()) return &found->second;
    return Error(Code::kFailedPrecondition, "the upload of {} has ended", Name());
  }

  const std::shared_ptr<State> state_;
  const std::string key_, id_;
};

class MemoryStore final : public ObjectStore {
 public:
  explicit MemoryStore(const MemoryStoreOptions& options)
      : state_(std::make_shared<State>(options)), pool_("memory store", options.threads) {}

  const std::string& name() const override { return state_->options.name; }
  const Abilities& abilities() const override { return state_->options.abilities; }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    std::optional<Object> object = state_->Find(key);
    if (!object) return NoSuchObject(name(), key);
    return object->info;
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      pool_.Run([this, request = std::move(requests[i]), done = std::move(dones[i]), ctx] {
        done(Read(request, ctx));
      });
    }
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    if (!abilities().write) return CannotDo(name(), "be written");
    if (options.if_absent && !abilities().put_if_absent) return CannotDo(name(), "put if absent");
    if (!options.if_match.empty() && !abilities().put_if_match)
      return CannotDo(name(), "put if the object matches");
    MutexLock lock(&state_->mu);
    auto found = state_->objects.find(key);
    bool there = found != state_->objects.end();
    if (options.if_absent && there) return ObjectTaken(name(), key);
    if (!options.if_match.empty() && (!there || found->second.info.etag != options.if_match))
      return ObjectReplaced(name(), key);
    return state_->Write(key, std::string(AsText(data)), options.mark);
  }

  Status Delete(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    if (!abilities().write) return CannotDo(name(), "be written");
    MutexLock lock(&state_->mu);
    state_->objects.erase(key);
    return OkStatus();
  }

  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (!abilities().list) return CannotDo(name(), "list its objects");
    return FillListPage(request, [this](const std::string& at_least) { return Next(at_least); });
  }

  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    if (!abilities().upload) return CannotDo(name(), "upload in parts");
    MutexLock lock(&state_->mu);
    std::string id = std::to_string(++state_->num_uploads);
    state_->uploads[id] = {.key = key, .started_ns = ++state_->clock_ns, .parts = {}};
    return std::make_unique<MemoryUpload>(state_, key, id);
  }

  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (!abilities().upload) return CannotDo(name(), "upload in parts");
    MutexLock lock(&state_->mu);
    std::vector<PendingUpload> pending;
    for (const auto& [id, upload] : state_->uploads)
      if (upload.key.starts_with(prefix)) pending.push_back({upload.key, id, upload.started_ns});
    return pending;
  }

  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (!abilities().upload) return CannotDo(name(), "upload in parts");
    MutexLock lock(&state_->mu);
    state_->uploads.erase(upload.id);
    return OkStatus();
  }

 private:
  Result<ObjectInfo> Read(const GetRequest& request, const Context& ctx) const {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), request.key));
    if (!request.if_match.empty() && !abilities().get_if_match)
      return CannotDo(name(), "read only a certain version");
    std::optional<Object> object = state_->Find(request.key);
    if (!object) return NoSuchObject(name(), request.key);
    if (!request.if_match.empty() && object->info.etag != request.if_match)
      return ObjectReplaced(name(), request.key);
    const std::string& content = *object->content;
    if (request.out.empty()) return object->info;
    if (request.offset > content.size() || request.out.size() > content.size() - request.offset)
      return OutsideObject(name(), request.key, request.offset, request.out.size(), content.size());
    content.copy(reinterpret_cast<char*>(request.out.data()), request.out.size(), request.offset);
    return object->info;
  }

  Result<std::optional<ObjectInfo>> Next(const std::string& at_least) const {
    MutexLock lock(&state_->mu);
    auto found = state_->objects.lower_bound(at_least);
    if (found == state_->objects.end()) return std::optional<ObjectInfo>();
    return std::optional<ObjectInfo>(found->second.info);
  }

  const std::shared_ptr<State> state_;
  TaskPool pool_;  // last: its tasks use the rest
};

}  // namespace

std::shared_ptr<ObjectStore> MakeMemoryStore(const MemoryStoreOptions& options) {
  return std::make_shared<MemoryStore>(options);
}

}  // namespace headrace::object
