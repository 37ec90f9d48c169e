#include "headrace/cache/warm.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::cache {
namespace {

// What fetches report to; outlives the call where they do.
struct Report {
  Mutex mu;  // order: none is taken under it
  CondVar changed_cv;
  uint64_t in_flight_bytes HR_GUARDED_BY(mu) = 0;
  uint64_t done_bytes HR_GUARDED_BY(mu) = 0, fetched_bytes HR_GUARDED_BY(mu) = 0;
  Status failure HR_GUARDED_BY(mu);
};

void Note(Report* report, uint32_t length, BlockCache::Fetched how, const Status& status) {
  MutexLock lock(&report->mu);
  report->in_flight_bytes -= length;
  switch (how) {
    case BlockCache::Fetched::kFetched:
      report->fetched_bytes += length;
      [[fallthrough]];
    case BlockCache::Fetched::kWasHere:
      report->done_bytes += length;
      break;
    case BlockCache::Fetched::kRefused:
      if (report->failure.ok())
        report->failure = Status(Code::kResourceExhausted,
                                 "the cache takes no more: it is full of what is pinned, or its "
                                 "disk is full or does not work");
      break;
    case BlockCache::Fetched::kFailed:
      if (report->failure.ok()) report->failure = status;
      break;
  }
  report->changed_cv.NotifyAll();
}

class Warming {
 public:
  Warming(CachingStore* store, const WarmOptions& options, WarmProgress* progress,
          const Context& ctx)
      : store_(store), options_(options), progress_(progress), ctx_(ctx) {}

  Status Bring(const std::string& key) {
    HR_ASSIGN_OR_RETURN(auto object, store_->Find(key, ctx_));
    std::vector<BlockCache::Wanted> wanted;
    uint64_t bytes = 0;
    for (uint64_t number = 0; number < object->num_blocks(); ++number) {
      bytes += object->Block(number).length;
      wanted.push_back({object, number, {}});
      if (bytes < options_.request_bytes && number + 1 < object->num_blocks()) continue;
      HR_RETURN_IF_ERROR(Ask(std::exchange(wanted, {}), std::exchange(bytes, 0)));
    }
    return OkStatus();
  }

  // Waits until at most `bytes` are in flight.
  Status WaitFor(uint64_t bytes) {
    constexpr auto kLookEvery = std::chrono::milliseconds(50);
    MutexLock lock(&report_->mu);
    while (report_->failure.ok() && report_->in_flight_bytes > bytes) {
      HR_RETURN_IF_ERROR(ctx_.Check());
      report_->changed_cv.WaitFor(&report_->mu, kLookEvery);
      progress_->done_bytes = report_->done_bytes;
      progress_->fetched_bytes = report_->fetched_bytes;
    }
    progress_->done_bytes = report_->done_bytes;
    progress_->fetched_bytes = report_->fetched_bytes;
    return report_->failure;
  }

 private:
  Status Ask(std::vector<BlockCache::Wanted> wanted, uint64_t bytes) {
    uint64_t limit = options_.in_flight_bytes;
    HR_RETURN_IF_ERROR(WaitFor(limit - std::min(bytes, limit)));
    HR_RETURN_IF_ERROR(ctx_.Check());
    std::vector<uint32_t> lengths;
    ExpectedUse now{kNoPlan, store_->cache()->node()->Now()};
    for (BlockCache::Wanted& one : wanted) {
      one.use = now;
      lengths.push_back(one.object->Block(one.number).length);
    }
    {
      MutexLock lock(&report_->mu);
      report_->in_flight_bytes += bytes;
    }
    store_->cache()->Prefetch(std::move(wanted),
                              [report = report_, lengths = std::move(lengths)](
                                  size_t place, BlockCache::Fetched how, const Status& status) {
                                Note(report.get(), lengths[place], how, status);
                              });
    return OkStatus();
  }

  CachingStore* const store_;  // not owned
  const WarmOptions options_;
  WarmProgress* const progress_;  // not owned
  const Context ctx_;
  const std::shared_ptr<Report> report_ = std::make_shared<Report>();
};

}  // namespace

Status Warm(CachingStore* store, const std::vector<object::ObjectInfo>& objects,
            const WarmOptions& options, WarmProgress* progress, const Context& ctx) {
  DiskTier* node = store->cache() ? store->cache()->node() : nullptr;
  if (!node || !node->healthy())
    return Status(Code::kUnavailable, "there is no cache on disk that works");
  uint64_t total = 0;
  for (const object::ObjectInfo& object : objects) total += object.size_bytes;
  progress->total_bytes = total;
  if (total > node->limit_bytes())
    return Error(Code::kResourceExhausted,
                 "{} do not fit into the cache's limit of {}: raise it, or bring less",
                 FormatSize(total), FormatSize(node->limit_bytes()));
  Warming warming(store, options, progress, ctx);
  for (const object::ObjectInfo& object : objects) HR_RETURN_IF_ERROR(warming.Bring(object.key));
  return warming.WaitFor(0);
}

}  // namespace headrace::cache
