// Writes and publishes saves in the background, one after the other, in the order they came.
// Thread-safe. Not for use in a forked child.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/arena.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/rank_writer.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {

struct SaveOutcome;

struct EngineOptions {
  WriteOptions write;
  Level level = Level::kLocal;  // what durable in this store means
  // For all ranks to write, and for the publish; counted from when this rank has written.
  std::chrono::nanoseconds publish_timeout = std::chrono::minutes(30);
  size_t remembered = 64;  // ended saves whose outcome can still be asked for
  // Told of each save that has ended, on the engine's thread under no lock.
  std::function<void(const SaveOutcome&)> ended = {};
};

struct SaveOutcome {
  SaveId id;
  bool published = false;
  Status status;  // of a save that ended without being published
  WriteReport report;
  uint64_t queued_ns = 0, publish_ns = 0;
  uint64_t work_ns = 0;  // from when its turn came to its end
};

class SaveEngine {
 public:
  // Takes a thread. `epoch` is the writer's (CatalogStore::TakeOver). kResourceExhausted.
  static Result<std::unique_ptr<SaveEngine>> Start(StorePlace place,
                                                   std::unique_ptr<DataFiles> files, uint64_t epoch,
                                                   const EngineOptions& options);
  // Ends what is under way with kCancelled and waits for it.
  ~SaveEngine();

  // `loan` holds the bytes that `save` points to; it is given back when they are written. Returns
  // the save's number. save.info.id.attempt is set here: it counts up.
  Result<uint64_t> Submit(RankSave save, Arena::Loan loan);

  // Waits until the save has ended. kNotFound: no such save, or it ended too long ago;
  // kDeadlineExceeded, kCancelled.
  Result<SaveOutcome> Wait(uint64_t number, const Context& ctx);
  // The outcome, if the save has ended.
  std::optional<SaveOutcome> Ended(uint64_t number);
  // Saves that have not ended.
  size_t pending();

 private:
  struct Save;
  SaveEngine(StorePlace place, std::unique_ptr<DataFiles> files, uint64_t epoch,
             const EngineOptions& options);
  void Work();
  Status Do(Save* save, SaveOutcome* outcome);
  Result<std::shared_ptr<const Manifest>> ManifestBefore(const std::string& kind,
                                                         const Context& ctx);

  CatalogStore store_;
  const std::unique_ptr<DataFiles> files_;
  const uint64_t epoch_;
  const EngineOptions options_;
  std::atomic<bool> stopping_{false};

  // Of the worker's thread alone.
  RankWriter writer_;
  std::shared_ptr<const Manifest> latest_;  // what was published last, by whomever
  std::optional<SaveId> latest_id_;

  Mutex mu_;
  CondVar changed_;
  std::deque<std::unique_ptr<Save>> queue_ HR_GUARDED_BY(mu_);
  std::map<uint64_t, SaveOutcome> ended_ HR_GUARDED_BY(mu_);
  uint64_t next_ HR_GUARDED_BY(mu_) = 1;
  uint64_t under_way_ HR_GUARDED_BY(mu_) = 0;  // number of the save that is being written; 0: none
  std::map<uint64_t, uint64_t> attempts_ HR_GUARDED_BY(mu_);  // by step

  std::unique_ptr<Thread> thread_;  // last: joined first
};

}  // namespace headrace::checkpoint
