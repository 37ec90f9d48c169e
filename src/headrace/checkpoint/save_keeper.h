// Keeps saves in memory and brings them to the durable tiers in the background: the heart of the
// helper process, without its socket. A save is in memory once it was handed in; a thread hashes
// it and writes, syncs and publishes it at the first tier; others drain what is there to each of
// the tiers behind, apart from each other, so that none waits for one that is slow or gone. What is
// in memory stays, to be restored from, until its room is needed. Thread-safe. Not for use in a
// forked child.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/arena.h"
#include "headrace/checkpoint/drain.h"
#include "headrace/checkpoint/memory_files.h"
#include "headrace/checkpoint/rank_writer.h"
#include "headrace/checkpoint/tiers.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {

struct KeeperOptions {
  uint32_t rank = 0;
  WriteOptions write;
  int write_threads = 1;  // files written at once; one for each disk
  size_t keep_last = 0;   // checkpoints that each tier keeps; 0: all
  uint64_t keep_every = 0;
  std::chrono::nanoseconds publish_timeout = std::chrono::minutes(30);
  DrainOptions drain;
  size_t remembered = 256;  // saves whose outcome can still be asked for
  // Between two looks at what other processes did, and after a fault.
  std::chrono::milliseconds first_pause{20}, longest_pause{std::chrono::seconds(30)};
};

// How far a save has come.
struct KeptStatus {
  SaveId id;
  Level level = Level::kMemory;  // reached
  Status failed;                 // it comes no farther; what is reached stays
  WriteReport report;
  uint64_t queued_ns = 0, publish_ns = 0;
};

// A save in memory. What is in it stays valid while this is held.
struct KeptSave {
  std::shared_ptr<Arena> arena;
  Arena::Loan loan;
  RankSave save;
  std::unique_ptr<MemoryFiles> files;
  // Of a run of one rank: the checkpoint as it is published, or would be.
  std::string manifest;
  CatalogEntry entry;
};

class SaveKeeper {
 public:
  // Takes a thread for each tier. `tiers` are one to three: a spare one may be in the middle.
  // kResourceExhausted.
  static Result<std::unique_ptr<SaveKeeper>> Start(Tiers tiers, const KeeperOptions& options);
  // Ends what is under way: what was not published is not.
  ~SaveKeeper();

  // Goes on with a writer's epoch, which it took at all tiers (TakeOverTiers); earlier saves that
  // are not published will not be.
  //   kFailedPrecondition  it has a higher one already, or the first tier has another one.
  //   others               those of the first tier.
  Status Begin(uint64_t epoch);
  // Makes the arena, or a larger one after Finish(); saves in the old one are given up once nobody
  // reads them.
  //   kResourceExhausted   there is no such memory.
  Status MakeArena(uint64_t bytes, int threads);
  std::shared_ptr<Arena> arena();

  // Room for a save; gives up old saves that are durable. kDeadlineExceeded when there is none yet:
  // ask again. kFailedPrecondition: no arena.
  Result<Arena::Loan> Borrow(uint64_t bytes);
  // Hands in a save whose bytes lie in `loan`. save.info.id is whole. Returns its number.
  //   kFailedPrecondition  the id's epoch is not the present one.
  Result<uint64_t> Submit(RankSave save, Arena::Loan loan, std::shared_ptr<Arena> arena);
  // kNotFound: no such save, or it is too long ago.
  Result<KeptStatus> Look(uint64_t number);
  // Saves that are not yet published at the first tier and may still be.
  size_t pending();
  // The number of the newest save, of the oldest that is pending, and of the oldest that cannot be
  // restored yet but may be soon; 0: there is none.
  uint64_t newest();
  uint64_t first_pending();
  uint64_t first_unready();
  // The oldest that is pending, where it is of several ranks, which must all hand it in.
  struct Shared {
    SaveId id;
    uint32_t world_size = 0;
  };
  std::optional<Shared> waiting_for_ranks();
  // It was handed in here and has not failed.
  bool Holds(const SaveId& id);
  // Waits until none is pending.
  void Finish();
  // Saves that can be restored from memory, from the oldest to the newest.
  std::vector<std::shared_ptr<const KeptSave>> InMemory();

  // Nothing is under way and, as far as is known, nothing is left to drain. A spare tier that
  // cannot be reached is not waited for.
  bool idle();
  // To each tier behind the first one, the farthest last. None where this is not rank 0.
  std::vector<Drain*> drains() const;
  const Tiers& tiers() const { return tiers_; }
  uint64_t epoch();

 private:
  struct Record {
    KeptStatus status;
    std::shared_ptr<KeptSave> kept;  // null: given up
    bool sealed = false;             // can be restored from
    bool ended = false;              // the first tier has it, or never will
    Context::Clock::time_point came = Context::Clock::now();
  };

  // The way from the first tier to another one.
  struct Route {
    Tier* to = nullptr;
    std::unique_ptr<Drain> drain;  // null: only looks at what rank 0 does
    bool to_drain = true;          // there may be something. Under mu_, as the next two
    bool draining = false;         // the thread is at it
    bool failed = false;           // the last time
    std::unique_ptr<Thread> thread;
  };

  SaveKeeper(Tiers tiers, const KeeperOptions& options);
  bool first_rank() const { return options_.rank == 0; }
  Tier* near() { return tiers_.front().get(); }
  Context Within() const;

  void SaveLoop();
  Status Do(uint64_t number, KeptSave* kept, KeptStatus* status);
  Result<RankManifest> Seal(KeptSave* kept, WriteReport* report, const Context& ctx);
  Status SealWhole(const RankManifest& manifest, KeptSave* kept);
  Status Publish(const KeptSave& kept, const Context& ctx);
  Status Copy(const KeptSave& kept, const RankManifest& manifest, WriteReport* report,
              const Context& ctx);
  Status PruneTier(Tier* tier, uint64_t epoch, const Context& ctx);
  std::shared_ptr<const Manifest> ManifestBefore(const std::string& kind, const Context& ctx);
  void MarkSealed(uint64_t number);
  void End(uint64_t number, KeptStatus status);
  bool GiveUpOldest();
  void Forget() HR_REQUIRES(mu_);

  void WakeDrains() HR_REQUIRES(mu_);
  void DrainLoop(Route* route);
  Status DrainOnce(const Route& route, uint64_t epoch, bool* more);
  Status WatchOnce(bool* more);
  std::vector<SaveId> Undrained();
  void MarkDrained(const SaveId& id, Level level);
  void MarkLeftOut(const SaveId& id, const Status& why);

  const Tiers tiers_;
  const KeeperOptions options_;
  std::vector<std::unique_ptr<Route>> routes_;  // made by Start, the farthest last
  std::atomic<bool> stopping_{false};

  // Of the saving thread alone.
  std::shared_ptr<const Manifest> latest_;
  std::optional<SaveId> latest_id_;

  Mutex mu_;
  CondVar changed_;
  std::shared_ptr<Arena> arena_ HR_GUARDED_BY(mu_);
  std::map<uint64_t, Record> records_ HR_GUARDED_BY(mu_);  // by number
  std::deque<uint64_t> queue_ HR_GUARDED_BY(mu_);
  uint64_t next_ HR_GUARDED_BY(mu_) = 1;
  uint64_t epoch_ HR_GUARDED_BY(mu_) = 0;

  std::unique_ptr<Thread> saver_;
};

}  // namespace headrace::checkpoint
