// The loader: native threads that read, check, decode and transform the samples of a known order
// into batches ahead of their use, and hand them over in order.
//
// For one consumer: Begin, Next, LoadSubstitute and BookSkipped go one by one, whichever threads
// call them; state(), stats(), settings(), ChangeSetting() and Close() may be called from any
// thread at any time.
// No Python, no worker process, no metadata per sample. After a fork the object does not work in
// the child: calls that return a Status say so, state() and stats() must not be made (see
// InForkedChild), and destroying it there is harmless.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/process_snapshot.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/status.h"
#include "headrace/codec/transform.h"
#include "headrace/dataset/dataset.h"
#include "headrace/loader/bad_samples.h"
#include "headrace/loader/batch.h"
#include "headrace/loader/cached_reads.h"
#include "headrace/loader/plan/batch_plan.h"
#include "headrace/loader/plan/order.h"

namespace headrace::loader {

struct LoaderOptions {
  OrderOptions order;
  uint64_t global_batch = 0;  // samples over all ranks
  uint32_t world_size = 1;
  uint32_t rank = 0;
  Tail tail = Tail::kDrop;
  int threads = 1;      // worker threads, >= 1; the consumer's thread only waits
  int max_threads = 0;  // budget of the setting "threads"; less than `threads`: as `threads`
  // Bytes of batches being filled or waiting, and of the threads' buffers. Batches in the
  // consumer's hands are the consumer's.
  uint64_t memory_bytes = uint64_t{128} << 20;

  struct Column {
    std::string field;
    std::string transform_json;  // empty: the field's bytes as they are
    bool required = true;        // a sample without the field is bad; else its value is null
  };
  // Made in this order. A field may come several times (views of it); boxes come after their image.
  std::vector<Column> columns;

  OnError on_error = OnError::kRaise;
  uint64_t max_bad_samples = 1000;
  double max_bad_rate = 0.01;
  std::string quarantine_path;  // JSONL of bad samples, appended; empty = none
  bool verify_checksums = true;
  CacheOptions cache;  // of shards that are read through the node's cache
  // Where values of bytes columns go; null: into memory of the batch.
  std::shared_ptr<ValueMemory> value_memory;
};

struct LoaderStats {
  StageReport stages{};  // of all threads, the consumer's included
  // The same by pools, in which busy + wait + idle = wall time x threads (ProcessSnapshot). Without
  // what the consumer's thread read itself in place of bad samples: that is a part of its steps.
  StageReport worker_stages{}, loop_stages{};
  PoolSnapshot workers{"loader", 0, 0}, loop{"consumer", 0, 0};
  uint64_t delivered_batches = 0;
  uint64_t delivered_samples = 0;
  uint64_t bad_samples = 0;
  uint64_t wait_ns = 0;  // the consumer waited for a batch
  uint64_t step_ns = 0;  // the consumer was busy between two batches
  uint64_t first_batch_ns = 0;
  uint64_t memory_bytes = 0;  // held now by the loader
  uint64_t peak_memory_bytes = 0;
  uint64_t ready_batches = 0;  // finished and waiting now
  // Images decoded by what their seek points were good for, index = codec::SeekRefusal; those of
  // batches ahead are counted too.
  codec::DecodeCounts decodes{};
  dataset::SeekPointTotals seek_points;
  CacheStats cache{};
};

class Loader;

// Destroys a loader; in a forked child it lets go of the memory instead, since locks and condition
// variables there belong to threads that do not exist.
struct LoaderDeleter {
  void operator()(Loader* loader) const;
};
using LoaderPtr = std::unique_ptr<Loader, LoaderDeleter>;

class Loader {
 public:
  // Starts no thread. kInvalidArgument / kNotFound for options that make no sense for this dataset;
  // cache.require_warm without a cache is one.
  static Result<LoaderPtr> Create(std::shared_ptr<const dataset::Dataset> dataset,
                                  LoaderOptions options);
  virtual ~Loader() = default;  // as Close()

  virtual const std::vector<ColumnSpec>& columns() const = 0;
  virtual const BatchPlan& plan() const = 0;
  virtual const LoaderOptions& options() const = 0;     // with the order's defaults filled in
  virtual const std::string& dataset_path() const = 0;  // or its URL, without what is secret

  // Goes to a position of an epoch (a multiple of the global batch). The next Next() gives the
  // batch that starts there. Cheap when the loader is there already. The first call of a loader
  // with cache.require_warm fails as CachedReads::Begin.
  virtual Status Begin(uint64_t epoch, uint64_t position) = 0;

  // Returns the next batch, or null at the end of the epoch. Waits until ctx's deadline
  // (kDeadlineExceeded: nothing is lost, call again). Errors of samples as options.on_error says;
  // after an error the position is behind the failed batch. kResourceExhausted when a budget of bad
  // samples is spent, or memory_bytes cannot hold one batch.
  virtual Result<std::shared_ptr<Batch>> Next(const Context& ctx) = 0;

  // The settings that may change while it runs, with what they are now and their bounds
  // (live_settings.h). Not in a forked child. Any thread.
  virtual std::vector<SettingValue> settings() const = 0;
  // Changes one of them, and returns what it was. Threads work from their next sample on, and are
  // started when they are not there yet; bounds of fetches hold for those to come. Any thread.
  //   kNotFound, kInvalidArgument  as CheckLiveSetting.
  //   kResourceExhausted           the system refuses threads; those that are there work.
  //   kCancelled                   the loader is closed.
  virtual Result<uint64_t> ChangeSetting(std::string_view name, uint64_t value) = 0;
  virtual int threads() const = 0;  // that may work now
  // When a batch was last asked for, by NowNanos(); 0: never.
  virtual uint64_t last_use_ns() const = 0;

  // Where the run stands: behind the last batch that Next() gave.
  virtual LoaderState state() const = 0;

  // Treats row `r` of a delivered batch as bad because the caller found it so: puts the next
  // substitute in (on_error = replace), else returns `reason` with its place. Counts as a bad
  // sample.
  virtual Status LoadSubstitute(Batch* batch, uint64_t r, Status reason, const Context& ctx) = 0;
  // Books a row that the caller dropped (on_error = skip). kResourceExhausted as Next.
  virtual Status BookSkipped(const Batch& batch, uint64_t r, Status reason) = 0;

  virtual LoaderStats stats() const = 0;
  // True in the child of a fork that came after Create.
  virtual bool InForkedChild() const = 0;

  // Stops and joins the threads, frees the memory. Next() then fails with kCancelled. Idempotent.
  virtual void Close() = 0;
};

}  // namespace headrace::loader
