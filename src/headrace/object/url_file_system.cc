#include "headrace/object/url_file_system.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/redaction.h"
#include "headrace/base/text.h"
#include "headrace/net/http_client.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/https/https_store.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/peer/peer_store.h"
#include "headrace/object/peer/token.h"
#include "headrace/object/per_process.h"
#include "headrace/object/retrying_store.h"
#include "headrace/object/s3/s3_store.h"
#include "headrace/object/throttled_store.h"
#include "headrace/object/url.h"

namespace headrace::object {

namespace {

constexpr size_t kShortestSecretQuery = 16;

std::string RootOf(const Url& url) { return url.scheme + "://" + url.authority; }

// What a driver is opened with.
struct Opening {
  const Url& url;
  const UrlSettings& settings;
  // The process's client that trusts these certificates, made when first asked for.
  const std::function<Result<net::HttpClient*>(const std::string& ca_file)>& client;
};
using OpenedStore = Result<std::shared_ptr<ObjectStore>>;

OpenedStore OpenS3(const Opening& opening) {
  HR_ASSIGN_OR_RETURN(S3Settings settings, ReadS3Settings(opening.settings.s3));
  HR_ASSIGN_OR_RETURN(net::HttpClient * client, opening.client(settings.ca_file));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store,
                      OpenS3Store(opening.url.authority, settings, client));
  return std::shared_ptr<ObjectStore>(std::move(store));
}

OpenedStore OpenHttps(const Opening& opening) {
  const UrlSettings& settings = opening.settings;
  HR_ASSIGN_OR_RETURN(net::HttpClient * client, opening.client(settings.s3.ca_file));
  std::string url = RootOf(opening.url) + "/";
  // A dataset may name other hosts: they get none of it.
  if (RootOf(opening.url) == settings.http_root) {
    const std::string user = settings.http_user.empty() ? "" : settings.http_user + "@";
    const std::string query = settings.http_query.empty() ? "" : "?" + settings.http_query;
    url = opening.url.scheme + "://" + user + opening.url.authority + "/" + query;
  }
  HR_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store, OpenHttpsStore(url, client));
  return std::shared_ptr<ObjectStore>(std::move(store));
}

OpenedStore OpenPeer(const Opening& opening) {
  PeerStoreOptions options;
  options.token = opening.settings.peer_token;
  if (const std::string& file = opening.settings.peer_token_file; !file.empty()) {
    HR_ASSIGN_OR_RETURN(options.token, ReadTokenFile(PosixFileSystem(), file));
  }
  return OpenPeerStore(opening.url.authority, options);
}

// The table of schemes. A scheme without `open` is the operating system's files.
struct SchemeRow {
  std::string_view scheme;
  OpenedStore (*open)(const Opening&);
  // Of one call at most. A peer is but one of several places, and may be gone for good.
  std::chrono::nanoseconds retry_budget = std::chrono::nanoseconds::max();
};
constexpr SchemeRow kSchemes[] = {{"file", nullptr},
                                  {"s3", OpenS3},
                                  {"https", OpenHttps},
                                  {"http", OpenHttps},
                                  {"peer", OpenPeer, std::chrono::seconds(2)}};

Result<const SchemeRow*> FindScheme(const Url& url) {
  std::string known;
  for (const SchemeRow& row : kSchemes) {
    if (row.scheme != url.scheme) {
      known += (known.empty() ? "" : ", ") + std::string(row.scheme) + "://";
      continue;
    }
    if (row.open == OpenS3 && url.authority.find('@') != std::string::npos)
      return Error(Code::kInvalidArgument,
                   "{}: a bucket's URL holds no keys; give them by storage_options, the "
                   "environment or a profile",
                   EscapeText(WithoutSecrets(url)));
    return &row;
  }
  return Error(Code::kInvalidArgument,
               "no driver for '{}://'; there are {}, and paths of this machine",
               EscapeText(url.scheme), known);
}

// "file://host/a" is another machine's file.
Result<std::string> PathOfFileUrl(const Url& url) {
  if (url.authority.empty() || url.authority == "localhost")
    return url.path.empty() ? std::string("/") : url.path;
  return Error(Code::kInvalidArgument,
               "{} names another machine: expected file:///PATH, with three '/'",
               EscapeText(WithoutSecrets({url.scheme, url.authority, "", ""})));
}

// The stores of one process for one set of settings.
class Stores {
 public:
  explicit Stores(const UrlSettings& settings) : settings_(settings) {
    if (settings.bandwidth_bytes > 0) rate_ = std::make_shared<ByteRate>(settings.bandwidth_bytes);
  }

  struct Opened {
    std::shared_ptr<ObjectStore> store;
    std::shared_ptr<FileSystem> files;
  };

  Result<Opened> Open(const Url& url, const SchemeRow& row) {
    const std::string root = RootOf(url);
    MutexLock lock(&mu_);
    auto known = opened_.find(root);
    if (known != opened_.end()) return known->second;
    const std::function<Result<net::HttpClient*>(const std::string&)> client =
        [this](const std::string& ca_file) { return Client(ca_file); };
    HR_ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> store, row.open({url, settings_, client}));
    store = MakeCountedStore(std::move(store), counters_);
    RetryOptions retry;
    retry.budget = std::min(settings_.retry_budget, row.retry_budget);
    retry.num_retries = &counters_->retries;
    retry.back_off_ns = &counters_->back_off_ns;
    store = MakeRetryingStore(std::move(store), retry);
    // Outside of the retries: to wait for a turn takes nothing from what a call may take.
    if (rate_) store = MakeThrottledStore(std::move(store), rate_);
    if (settings_.wrap) {
      HR_ASSIGN_OR_RETURN(store, (*settings_.wrap)(std::move(store)));
    }
    ObjectFileSystemOptions options;
    options.root = root;
    options.context.cancelled = settings_.cancelled;
    Opened opened{store, MakeObjectFileSystem(store, options)};
    opened_.emplace(root, opened);
    return opened;
  }

  const StoreCounters& counters() const { return *counters_; }

 private:
  // Called under mu_, by a driver that is being opened.
  Result<net::HttpClient*> Client(const std::string& ca_file) HR_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_ptr<net::HttpClient>& client = clients_[ca_file];
    if (!client) {
      net::HttpClientOptions options;
      options.max_connections = settings_.connections;
      options.max_connections_per_host = std::max<uint32_t>(settings_.connections / 2, 1);
      options.ca_file = ca_file;
      HR_ASSIGN_OR_RETURN(client, net::HttpClient::Create(options));
    }
    return client.get();
  }

  const UrlSettings settings_;
  const std::shared_ptr<StoreCounters> counters_ = std::make_shared<StoreCounters>();
  std::shared_ptr<ByteRate> rate_;  // of all stores; null: no limit
  Mutex mu_;  // held while a store is opened, which asks nothing of the network
  std::map<std::string, std::unique_ptr<net::HttpClient>> clients_ HR_GUARDED_BY(mu_);
  std::map<std::string, Opened> opened_ HR_GUARDED_BY(mu_);
};

class AllPlaces final : public FileSystem, public HasObjects {
 public:
  explicit AllPlaces(const UrlSettings& settings)
      : stores_([settings] { return std::make_unique<Stores>(settings); }) {}

  Stores& stores() { return stores_.Get(); }

  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->OpenForRead(route.path);
  }
  Result<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->Map(route.path);
  }
  Result<std::unique_ptr<SharedWords>> OpenSharedWords(const std::string& path,
                                                       size_t words) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->OpenSharedWords(route.path, words);
  }
  Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->ReadWhole(route.path, limit_bytes);
  }
  Result<size_t> ReadInto(const std::string& path, MutableBytes out) override {
    if (!IsUrl(path)) return PosixFileSystem()->ReadInto(path, out);
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->ReadInto(route.path, out);
  }
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->Create(route.path);
  }
  Result<std::unique_ptr<WritableFile>> CreateDirect(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->CreateDirect(route.path);
  }
  Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& directory,
                                                        std::string* path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(directory));
    return route.fs->CreateTemporary(route.path, path);
  }
  Result<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->OpenForAppend(route.path);
  }
  Status WriteAtomically(const std::string& path, Bytes content) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->WriteAtomically(route.path, content);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(from));
    HR_ASSIGN_OR_RETURN(Route other, Find(to));
    if (route.fs != other.fs) return Elsewhere(from, to);
    return route.fs->Rename(route.path, other.path);
  }
  Status Link(const std::string& from, const std::string& to) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(from));
    HR_ASSIGN_OR_RETURN(Route other, Find(to));
    if (route.fs != other.fs) return Elsewhere(from, to);
    return route.fs->Link(route.path, other.path);
  }
  Status RenameIfAbsent(const std::string& from, const std::string& to) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(from));
    HR_ASSIGN_OR_RETURN(Route other, Find(to));
    if (route.fs != other.fs) return Elsewhere(from, to);
    return route.fs->RenameIfAbsent(route.path, other.path);
  }
  Status Remove(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->Remove(route.path);
  }
  Status RemoveTree(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->RemoveTree(route.path);
  }
  Status MakeDirectories(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->MakeDirectories(route.path);
  }
  Status SyncDirectory(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->SyncDirectory(route.path);
  }
  Result<FileInfo> Stat(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->Stat(route.path);
  }
  Result<std::vector<DirectoryEntry>> List(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->List(route.path);
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->Lock(route.path);
  }
  Result<uint64_t> FreeBytes(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return route.fs->FreeBytes(route.path);
  }
  Result<StorePlace> FindObject(const std::string& path) override {
    HR_ASSIGN_OR_RETURN(Route route, Find(path));
    return object::FindObject(route.fs, route.path);
  }

 private:
  struct Route {
    FileSystem* fs = nullptr;  // lives as long as the process
    std::string path;
  };

  Result<Route> Find(const std::string& path) {
    if (!IsUrl(path)) return Route{PosixFileSystem(), path};
    HR_ASSIGN_OR_RETURN(Url url, ParseUrl(path));
    HR_ASSIGN_OR_RETURN(const SchemeRow* row, FindScheme(url));
    if (!row->open) {
      HR_ASSIGN_OR_RETURN(std::string file, PathOfFileUrl(url));
      return Route{PosixFileSystem(), std::move(file)};
    }
    HR_ASSIGN_OR_RETURN(Stores::Opened opened, stores().Open(url, *row));
    // As the store's file system writes it: with the scheme in lower case.
    return Route{opened.files.get(), RootOf(url) + path.substr(RootOf(url).size())};
  }

  static Status Elsewhere(const std::string& from, const std::string& to) {
    return Error(Code::kUnimplemented, "cannot rename {} to {}: they are in different places",
                 EscapeText(from), EscapeText(to));
  }

  PerProcess<Stores> stores_;
};

// All file systems of the process, by their settings. They are never destroyed: threads may use
// them at exit.
class Registry {
 public:
  AllPlaces* Find(const UrlSettings& settings) {
    MutexLock lock(&mu_);
    std::unique_ptr<AllPlaces>& places = places_[settings.Fingerprint()];
    if (!places) places = std::make_unique<AllPlaces>(settings);
    return places.get();
  }
  std::vector<AllPlaces*> All() {
    MutexLock lock(&mu_);
    std::vector<AllPlaces*> all;
    for (const auto& [_, places] : places_) all.push_back(places.get());
    return all;
  }

 private:
  Mutex mu_;  // leaf
  std::map<std::string, std::unique_ptr<AllPlaces>> places_ HR_GUARDED_BY(mu_);
};

Registry& ThisRegistry() {
  static auto* registry = new PerProcess<Registry>([] { return std::make_unique<Registry>(); });
  return registry->Get();
}

AllPlaces* FindPlaces(const UrlSettings& settings) { return ThisRegistry().Find(settings); }

void Add(const StoreCounters& counters, StoreTotals* to) {
  to->gets += counters.gets;
  to->heads += counters.heads;
  to->lists += counters.lists;
  to->writes += counters.writes;
  to->failures += counters.failures;
  to->throttled += counters.throttled;
  to->retries += counters.retries;
  to->back_off_ns += counters.back_off_ns;
  to->bytes_read += counters.bytes_read;
  to->bytes_written += counters.bytes_written;
  to->busy_ns += counters.busy_ns;
}

}  // namespace

FileSystem* UrlFileSystem(const UrlSettings& settings) { return FindPlaces(settings); }

StoreTotals TotalsOfStores(const UrlSettings& settings) {
  StoreTotals totals;
  Add(FindPlaces(settings)->stores().counters(), &totals);
  return totals;
}

StoreTotals TotalsOfAllStores(StageReport* stages) {
  StoreTotals totals;
  for (AllPlaces* places : ThisRegistry().All()) {
    const StoreCounters& counters = places->stores().counters();
    Add(counters, &totals);
    counters.stages.AddTo(stages);
  }
  return totals;
}

Result<Place> LocateUrl(const std::string& text, const UrlSettings& settings) {
  if (!IsUrl(text)) return Place{UrlFileSystem(settings), text};
  HR_ASSIGN_OR_RETURN(Url url, ParseUrl(text));
  HR_ASSIGN_OR_RETURN(const SchemeRow* row, FindScheme(url));
  if (!row->open) {
    HR_ASSIGN_OR_RETURN(std::string path, PathOfFileUrl(url));
    return Place{UrlFileSystem(settings), std::move(path)};
  }
  UrlSettings own = settings;
  if (row->open == OpenHttps) {
    HR_ASSIGN_OR_RETURN(url.path, DecodePercent(url.path));
    own.http_query = std::exchange(url.query, "");
    if (size_t at = url.authority.rfind('@'); at != std::string::npos) {
      own.http_user = url.authority.substr(0, at);
      url.authority.erase(0, at + 1);
    }
    if (!own.http_user.empty() || !own.http_query.empty()) own.http_root = RootOf(url);
    // A short query is a choice, not a secret, and stands in other texts, too.
    if (own.http_query.size() >= kShortestSecretQuery) RememberSecret(own.http_query);
    if (const size_t colon = own.http_user.find(':'); colon != std::string::npos)
      RememberSecret(own.http_user.substr(colon + 1));
  }
  return Place{UrlFileSystem(own), RootOf(url) + url.path};
}

Result<StorePlace> OpenStore(const std::string& text, const UrlSettings& settings) {
  HR_ASSIGN_OR_RETURN(Place place, LocateUrl(text, settings));
  if (!IsUrl(place.path)) {
    HR_ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> store, OpenDirStore(place.path, {}));
    return StorePlace{std::move(store), ""};
  }
  HR_ASSIGN_OR_RETURN(Url url, ParseUrl(place.path));
  HR_ASSIGN_OR_RETURN(const SchemeRow* row, FindScheme(url));
  HR_ASSIGN_OR_RETURN(Stores::Opened opened,
                      static_cast<AllPlaces*>(place.fs)->stores().Open(url, *row));
  const size_t root_bytes = RootOf(url).size() + 1;  // with the '/' behind it
  return StorePlace{std::move(opened.store),
                    place.path.size() > root_bytes ? place.path.substr(root_bytes) : ""};
}

}  // namespace headrace::object
