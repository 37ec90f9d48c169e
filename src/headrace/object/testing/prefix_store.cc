#include "headrace/object/testing/prefix_store.h"

#include <utility>

#include "headrace/object/object_key.h"

namespace headrace::object {

namespace {

class PrefixStore final : public ObjectStore {
 public:
  PrefixStore(std::shared_ptr<ObjectStore> store, std::string prefix)
      : store_(std::move(store)),
        prefix_(std::move(prefix)),
        name_(store_->name() + "/" + prefix_.substr(0, prefix_.find_last_not_of('/') + 1)) {}

  const std::string& name() const override { return name_; }
  const Abilities& abilities() const override { return store_->abilities(); }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name_, key));
    return Inside(store_->Head(prefix_ + key, ctx));
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (Status fits = CheckKey(name_, requests[i].key); !fits.ok()) {
        dones[i](std::move(fits));
        continue;
      }
      requests[i].key.insert(0, prefix_);
      std::vector<GetDone> done;
      done.emplace_back([this, done = std::move(dones[i])](Result<ObjectInfo> got) {
        done(Inside(std::move(got)));
      });
      store_->SubmitGets({std::move(requests[i])}, std::move(done), ctx);
    }
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name_, key));
    return store_->Put(prefix_ + key, data, options, ctx);
  }
  Status Delete(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name_, key));
    return store_->Delete(prefix_ + key, ctx);
  }

  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    ListRequest below = request;
    below.prefix.insert(0, prefix_);
    if (!below.after.empty()) below.after.insert(0, prefix_);
    HR_ASSIGN_OR_RETURN(ListPage page, store_->List(below, ctx));
    for (ObjectInfo& info : page.objects) info.key.erase(0, prefix_.size());
    for (std::string& prefix : page.prefixes) prefix.erase(0, prefix_.size());
    return page;
  }

  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name_, key));
    return store_->StartUpload(prefix_ + key, ctx);
  }
  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    HR_ASSIGN_OR_RETURN(std::vector<PendingUpload> uploads,
                        store_->ListUploads(prefix_ + prefix, ctx));
    for (PendingUpload& upload : uploads) upload.key.erase(0, prefix_.size());
    return uploads;
  }
  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    PendingUpload below = upload;
    below.key.insert(0, prefix_);
    return store_->AbortUpload(below, ctx);
  }

 private:
  Result<ObjectInfo> Inside(Result<ObjectInfo> info) const {
    if (info.ok()) info->key.erase(0, prefix_.size());
    return info;
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::string prefix_, name_;
};

}  // namespace

std::shared_ptr<ObjectStore> MakePrefixStore(std::shared_ptr<ObjectStore> store,
                                             std::string prefix) {
  return std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
}

}  // namespace headrace::object
