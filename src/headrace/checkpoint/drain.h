// Copies checkpoints from one tier to a farther one: file by file, by content, so that what is
// there is not sent again; then publishes them there. Reads are checked against their checksums. It
// keeps no state: one that was killed goes on from what the two lists say. Thread-safe, but Next()
// is called by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/policy/drain_rate.h"
#include "headrace/checkpoint/tiers.h"

namespace headrace::checkpoint {

struct DrainOptions {
  int threads = 2;  // files at once; >= 1. Each takes 16 MiB
  DrainRate::Options rate;
};

// What is going on, for people and for other threads.
struct DrainProgress {
  std::optional<SaveId> now;  // the checkpoint that is copied
  uint64_t files = 0, total_files = 0;
  uint64_t bytes = 0, total_bytes = 0;  // of it; what was there already counts as copied
  uint64_t sent_bytes = 0;              // since the start, of all
  uint64_t drained = 0;                 // checkpoints since the start
  uint64_t waiting = 0;                 // checkpoints behind the present one
  double rate = 0;                      // bytes a second that may go just now; 0: without a limit
  std::optional<double> input_stall;    // that was reported last
  Status last;                          // why the last try failed; ok after one that did not
};

class Drain {
 public:
  // Both must outlive it.
  Drain(Tier* from, Tier* to, const DrainOptions& options);

  // Copies the oldest checkpoint that is not at the far tier and is newer than all that are, raises
  // its level at the near one, and returns its id; none when there is none. One whose bytes are
  // damaged here is told once (kDataLoss) and left out from then on. `epoch` is the writer's, of
  // both tiers; a spare one that has not heard of it is taken over first.
  //   kFailedPrecondition  another writer has taken over.
  //   kNotFound            it was removed here meanwhile: try again.
  //   others               those of the stores: what was copied stays, so try again.
  Result<std::optional<SaveId>> Next(uint64_t epoch, const Context& ctx);

  DrainProgress progress();
  // The checkpoint that is being copied must not be pruned here.
  bool InUse(const SaveId& id);
  // Was found damaged at the near tier.
  std::optional<Status> Damaged(const SaveId& id);

  // The loader's input stall lately, as a share of the time: 0 to 1. Compared with what is reported
  // while nothing is copied.
  void ReportStall(double share);
  // The next save comes in so many seconds: the drain should have ended by then.
  void SetDeadline(double seconds);

 private:
  struct Job;
  Result<std::optional<CatalogEntry>> Choose(const Context& ctx);
  Status Copy(const CatalogEntry& entry, uint64_t epoch, const Context& ctx);
  Status CopyFile(const FileEntry& file, const Context& ctx);
  Status Touch(const std::string& key, uint64_t bytes, const Context& ctx);
  Status Found(Status fault);
  Result<Bytes> NextPiece(Job* job, uint64_t bytes, const Context& ctx);
  Status TakeTurn(uint64_t bytes, const Context& ctx);

  Tier* const from_;
  Tier* const to_;
  const DrainOptions options_;

  Mutex mu_;
  DrainRate rate_ HR_GUARDED_BY(mu_);
  DrainProgress progress_ HR_GUARDED_BY(mu_);
  bool damaged_here_ HR_GUARDED_BY(mu_) = false;  // the present one, at the near tier
  std::vector<std::pair<SaveId, Status>> damaged_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::checkpoint
