// Collects what a process does: its loaders and savers say here how to look at them, and who
// watches the process (the admin server, a run record) takes snapshots. Thread-safe. A forked child
// has a watch of its own, in which nothing is; what its parent has added is left alone there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/process_snapshot.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/status.h"

namespace headrace::agent {

class ProcessWatch {
 public:
  // Adds what a part of the process did to a snapshot. Called on any thread, under the watch's
  // lock: it must not wait for the GIL, nor for a thread that adds or removes a part.
  using Look = std::function<void(ProcessSnapshot*)>;
  // Changes one of the part's settings and returns what it was. kNotFound: not one of its own.
  using Change = std::function<Result<uint64_t>(const std::string& name, uint64_t value)>;
  // When the part was last used, by NowNanos(); 0: never.
  using LastUse = std::function<uint64_t()>;

  // Who changes a setting, and why: kept with the change.
  struct Author {
    std::string by;   // "headrace doctor"; cut after 64 bytes
    std::string why;  // one sentence, or empty; cut after 256 bytes
  };

  // A part that is being watched. Destroying it takes a last look, and what only grows is kept, so
  // that sums never fall; after that none of its functions is called.
  class Part {
   public:
    Part(ProcessWatch* watch, uint64_t number);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // Changes a setting of this part. Failures as the part says; kNotFound in a forked child.
    Status ChangeSetting(const std::string& name, uint64_t value, const Author& author);

   private:
    ProcessWatch* const watch_;
    const uint64_t number_;
    const uint64_t fork_generation_;
  };

  // Of this process; never destroyed.
  static ProcessWatch& OfThisProcess();
  ProcessWatch();

  // Of what is true of one part alone (rank, data set, settings) a snapshot has that of the part
  // used last; without `last_use`, that was when it was added.
  std::unique_ptr<Part> Add(Look look, Change change = {}, LastUse last_use = {});

  // The job's name, instead of that of the environment: HEADRACE_JOB, else the scheduler's id
  // (SLURM_JOB_ID, TORCHELASTIC_RUN_ID...).
  void SetJob(std::string job);
  // FLOPs of one step, and the FLOP/s that this rank's accelerator can do; 0: not known.
  void SetModel(double flops_per_step, double peak_flops_per_second);
  // A save held the training loop up.
  void BookSaveStall(uint64_t ns);
  // The training loop's thread ran transforms written in Python.
  void BookPython(uint64_t ns);
  struct EndedSave {
    uint64_t step = 0;
    bool published = false;
    // From when it was handed in to its turn; from then to its end; and of that for publishing.
    uint64_t queued_ns = 0, work_ns = 0, publish_ns = 0;
    uint64_t written_bytes = 0;
  };
  // A save in the background ended just now.
  void BookSave(const EndedSave& save);

  // The training loop's time so far, over all loaders: these two of what Snapshot() has, for who
  // asks often.
  struct LoopTime {
    uint64_t input_wait_ns = 0, between_batches_ns = 0;
  };
  LoopTime Loop();
  // All of it, with the stores, caches and the use of the machine of the process.
  ProcessSnapshot Snapshot();
  // Asks the parts, that used last first, and keeps what was changed. kNotFound: no part has a
  // setting of that name; says which that part has. Others as the part says.
  Status ChangeSetting(const std::string& name, uint64_t value, const Author& author);

 private:
  struct Watched {
    uint64_t number;
    Look look;
    Change change;
    LastUse last_use;
  };

  void Remove(uint64_t number);
  std::vector<const Watched*> ByUse() const HR_REQUIRES(mu_);
  Status ChangeOf(const Watched& part, const std::string& name, uint64_t value,
                  const Author& author) HR_REQUIRES(mu_);

  const uint64_t begin_ns_;
  const int64_t begin_unix_ns_;
  SharedStageRecorder saves_, python_;

  Mutex mu_;  // held while parts are looked at: before all of theirs
  uint64_t next_ HR_GUARDED_BY(mu_) = 1;
  std::vector<Watched> parts_ HR_GUARDED_BY(mu_);
  ProcessSnapshot past_ HR_GUARDED_BY(mu_);  // of parts that are gone
  std::string job_ HR_GUARDED_BY(mu_);
  double flops_per_step_ HR_GUARDED_BY(mu_) = 0, peak_flops_ HR_GUARDED_BY(mu_) = 0;
  uint64_t save_stall_ns_ HR_GUARDED_BY(mu_) = 0;
  uint64_t saves_published_ HR_GUARDED_BY(mu_) = 0, saves_failed_ HR_GUARDED_BY(mu_) = 0;
  uint64_t saved_bytes_ HR_GUARDED_BY(mu_) = 0;
  std::vector<SettingChange> changes_ HR_GUARDED_BY(mu_);  // the latest
  uint64_t num_changes_ HR_GUARDED_BY(mu_) = 0;
};

}  // namespace headrace::agent
