#include "headrace/checkpoint/striped_store.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"

namespace headrace::checkpoint {
namespace {

using object::GetRequest;
using object::ListPage;
using object::ListRequest;
using object::ObjectInfo;
using object::ObjectStore;
using object::PutOptions;

constexpr std::string_view kDataPrefix = "data/";

// --- objects -------------------------------------------------------------------------------------

class StripedStore final : public ObjectStore {
 public:
  explicit StripedStore(std::vector<std::shared_ptr<ObjectStore>> stores)
      : stores_(std::move(stores)), abilities_(stores_.front()->abilities()) {
    abilities_.ordered_list = false;
    abilities_.upload = false;  // data files are written by DataFiles
  }

  const std::string& name() const override { return stores_.front()->name(); }
  const object::Abilities& abilities() const override { return abilities_; }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    Result<ObjectInfo> info = stores_.front()->Head(key, ctx);
    for (size_t i = 1; i < PlacesOf(key) && info.status().code() == Code::kNotFound; ++i)
      info = stores_[i]->Head(key, ctx);
    return info;
  }
  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    for (size_t i = 0; i < requests.size(); ++i)
      GetFrom(stores_, PlacesOf(requests[i].key), 0, requests[i], std::move(dones[i]), ctx);
  }
  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    return stores_.front()->Put(key, data, options, ctx);
  }
  Status Delete(const std::string& key, const Context& ctx) override {
    for (size_t i = 0; i < PlacesOf(key); ++i) HR_RETURN_IF_ERROR(stores_[i]->Delete(key, ctx));
    return OkStatus();
  }
  Result<ListPage> List(const ListRequest& request, const Context& ctx) override;

  Result<std::unique_ptr<object::Upload>> StartUpload(const std::string&, const Context&) override {
    return NoUploads();
  }
  Result<std::vector<object::PendingUpload>> ListUploads(const std::string&,
                                                         const Context&) override {
    return NoUploads();
  }
  Status AbortUpload(const object::PendingUpload&, const Context&) override { return NoUploads(); }

 private:
  using Stores = std::vector<std::shared_ptr<ObjectStore>>;

  Status NoUploads() const {
    return Error(Code::kUnimplemented, "{} takes no uploads in parts", name());
  }
  // In how many folders a key may lie, counted from the first.
  size_t PlacesOf(const std::string& key) const {
    return key.starts_with(kDataPrefix) ? stores_.size() : 1;
  }
  // Asks one folder, and the next one when it has no such key.
  static void GetFrom(const Stores& stores, size_t places, size_t at, const GetRequest& request,
                      GetDone done, const Context& ctx) {
    std::vector<GetDone> dones;
    dones.emplace_back(
        [stores, places, at, request, done = std::move(done), ctx](Result<ObjectInfo> info) {
          if (info.status().code() != Code::kNotFound || at + 1 >= places)
            return done(std::move(info));
          GetFrom(stores, places, at + 1, request, done, ctx);
        });
    stores[at]->SubmitGets({request}, std::move(dones), ctx);
  }

  const Stores stores_;
  object::Abilities abilities_;
};

// One folder after the other; a token is the folder's number, a colon, and its own token.
Result<ListPage> StripedStore::List(const ListRequest& request, const Context& ctx) {
  ListRequest asked = request;
  size_t at = 0;
  if (size_t colon = request.token.find(':'); colon != std::string::npos) {
    at = std::min<size_t>(std::strtoul(request.token.c_str(), nullptr, 10), stores_.size() - 1);
    asked.token = request.token.substr(colon + 1);
  }
  HR_ASSIGN_OR_RETURN(ListPage page, stores_[at]->List(asked, ctx));
  // What is no data lies in the first one only.
  const size_t places = PlacesOf(request.prefix);
  if (!page.next.empty()) {
    page.next = std::to_string(at) + ":" + page.next;
  } else if (at + 1 < places) {
    page.next = std::to_string(at + 1) + ":";
  }
  return page;
}

// --- data files ----------------------------------------------------------------------------------

class StripedFiles final : public DataFiles {
 public:
  StripedFiles(FileSystem* fs, const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) places_.push_back(FilesInFolder(fs, folder));
    given_.resize(places_.size());
  }

  const std::string& name() const override { return places_.front()->name(); }
  Status CheckRoom(uint64_t bytes, const Context& ctx) override;
  Result<bool> Write(const std::string& key, std::span<const Bytes> parts,
                     const Context& ctx) override {
    uint64_t bytes = 0;
    for (Bytes part : parts) bytes += part.size();
    return WriteBy(key, bytes, ctx,
                   [&](DataFiles* place) { return place->Write(key, parts, ctx); });
  }
  Result<bool> WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                         const Context& ctx) override {
    // What `next` has given cannot be asked for again: no second try elsewhere.
    return WriteOnce(key, bytes, ctx,
                     [&](DataFiles* place) { return place->WriteFrom(key, bytes, next, ctx); });
  }
  Status Sync(const Context& ctx) override {
    for (const auto& place : places_) HR_RETURN_IF_ERROR(place->Sync(ctx));
    return OkStatus();
  }
  Result<std::unique_ptr<DataFile>> Open(const std::string& key, uint64_t bytes,
                                         const Context& ctx) override;

 private:
  using WriteCall = std::function<Result<bool>(DataFiles*)>;
  Result<bool> WriteBy(const std::string& key, uint64_t bytes, const Context& ctx,
                       const WriteCall& write);
  Result<bool> WriteOnce(const std::string& key, uint64_t bytes, const Context& ctx,
                         const WriteCall& write);
  // Where a file goes, the best place first; all but data to the first folder.
  std::vector<size_t> Order(const std::string& key, uint64_t bytes, const Context& ctx);
  void Book(size_t place, uint64_t bytes) {
    MutexLock lock(&mu_);
    given_[place] += bytes;
  }

  std::vector<std::unique_ptr<DataFiles>> places_;
  Mutex mu_;
  std::vector<uint64_t> given_ HR_GUARDED_BY(mu_);  // bytes that went to each place
};

Status StripedFiles::CheckRoom(uint64_t bytes, const Context& ctx) {
  // Files are as good as evenly spread; a folder that has less is made up for by the others.
  size_t full = 0;
  Status first;
  for (const auto& place : places_) {
    Status room = place->CheckRoom(bytes / places_.size(), ctx);
    if (room.ok()) continue;
    if (room.code() != Code::kResourceExhausted) return room;
    if (first.ok()) first = std::move(room);
    ++full;
  }
  if (full == 0) return OkStatus();
  for (const auto& place : places_)
    if (full < places_.size() && place->CheckRoom(bytes, ctx).ok()) return OkStatus();
  return first;
}

std::vector<size_t> StripedFiles::Order(const std::string& key, uint64_t bytes,
                                        const Context& ctx) {
  if (!key.starts_with(kDataPrefix)) return {0};
  std::vector<size_t> order(places_.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i : order)
    if (places_[i]->Open(key, bytes, ctx).ok()) return {i};  // it is there
  MutexLock lock(&mu_);
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) HR_REQUIRES(mu_) { return given_[a] < given_[b]; });
  // Booked before it is written, so that several threads spread over the folders.
  given_[order.front()] += bytes;
  return order;
}

Result<bool> StripedFiles::WriteBy(const std::string& key, uint64_t bytes, const Context& ctx,
                                   const WriteCall& write) {
  Status full;
  for (size_t place : Order(key, bytes, ctx)) {
    Result<bool> written = write(places_[place].get());
    if (written.status().code() != Code::kResourceExhausted) return written;
    if (full.ok()) full = written.status();
    Book(place, bytes);  // so that the next file looks elsewhere first
  }
  return full;
}

Result<bool> StripedFiles::WriteOnce(const std::string& key, uint64_t bytes, const Context& ctx,
                                     const WriteCall& write) {
  const std::vector<size_t> order = Order(key, bytes, ctx);
  for (size_t place : order)
    if (places_[place]->CheckRoom(bytes, ctx).ok()) return write(places_[place].get());
  return write(places_[order.front()].get());
}

Result<std::unique_ptr<DataFile>> StripedFiles::Open(const std::string& key, uint64_t bytes,
                                                     const Context& ctx) {
  Status first;
  for (const auto& place : places_) {
    auto file = place->Open(key, bytes, ctx);
    if (file.ok()) return file;
    // One that was cut short here may lie whole elsewhere; it is told when it does not.
    if (first.ok() || first.code() == Code::kNotFound) first = file.status();
  }
  return first;
}

}  // namespace

Result<StorePlace> StoreInFolders(FileSystem* fs, const std::vector<std::string>& folders) {
  if (folders.empty()) return Status(Code::kInvalidArgument, "a store needs a folder");
  if (std::set<std::string>(folders.begin(), folders.end()).size() != folders.size())
    return Error(Code::kInvalidArgument, "a folder is named twice beside {}",
                 EscapeText(folders.front()));
  HR_ASSIGN_OR_RETURN(StorePlace place, StoreInFolder(fs, folders.front()));
  if (folders.size() == 1) return place;
  std::vector<std::shared_ptr<ObjectStore>> stores{place.store};
  for (size_t i = 1; i < folders.size(); ++i) {
    HR_ASSIGN_OR_RETURN(StorePlace other, StoreInFolder(fs, folders[i]));
    stores.push_back(std::move(other.store));
  }
  place.store = std::make_shared<StripedStore>(std::move(stores));
  return place;
}

std::unique_ptr<DataFiles> FilesInFolders(FileSystem* fs, const std::vector<std::string>& folders) {
  if (folders.size() == 1) return FilesInFolder(fs, folders.front());
  return std::make_unique<StripedFiles>(fs, folders);
}

}  // namespace headrace::checkpoint
