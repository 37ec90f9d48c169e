// The place in which a pack is built, and the steps by which it becomes a data set.
//
// Everything is written into DST/.headrace-pack, under a lock that the kernel drops when the
// process dies. How a version is published, and what a power cut leaves at each step:
//
//   1. plan.json names the input (fingerprint), the file names to be, and the files that will be
//      replaced.                                            Nothing visible has changed.
//   2. Per shard: tar written and synced, index written and synced, then its record (NAME.done).
//      A later pack of the same input keeps the shards that have a record and still match it.
//   3. Tars and indexes are renamed into DST, and DST is synced. A reader sees the version before,
//      or no data set: names differ from those of the version before.
//   4. headrace.json is replaced in one atomic step. From here on readers see the new version.
//   5. The files of the version before and DST/.headrace-pack are removed. A pack that finds step 4
//      done and step 5 not, finishes step 5.
//
// Reuse, TarPath, IndexPath and Finish may be called from several threads for different shards; all
// else from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/pack_shard.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

class PackStaging {
 public:
  // Takes the lock on `destination`, making the folder when it is not there.
  //   kAlreadyExists a data set is there and `overwrite` is false; or files that are no data set,
  //   or
  //                  a file in place of the folder: never touched.
  //   kUnavailable   another pack is at work there.
  static Result<std::unique_ptr<PackStaging>> Open(FileSystem* fs, const std::string& destination,
                                                   bool overwrite, bool sync);
  // Releases the lock. Without Publish or Abandon everything stays as a killed process leaves it.
  ~PackStaging();

  enum class Found { kNothing, kUnfinished, kPublished };
  // Prepares for a pack of the input that `fingerprint` names. kUnfinished: an earlier pack of the
  // same input was broken off, and Reuse may find its shards. kPublished: it was already published;
  // what was left to tidy is done, and nothing else is to do. An unfinished pack of other input is
  // removed. kAlreadyExists as in Open.
  Result<Found> Begin(const std::string& fingerprint, uint64_t num_shards);

  std::string TarPath(uint64_t shard) const;  // where to write it
  std::string IndexPath(uint64_t shard) const;
  // The shard's record when an earlier pack finished it and every byte is still as recorded.
  std::optional<PackedShard> Reuse(uint64_t shard, const Context& ctx);
  // Notes a shard as finished; from now on it survives this process.
  Status Finish(uint64_t shard, const PackedShard& packed);

  // Steps 3 to 5. `manifest` has everything but its shards. kIoError after step 4 says that the
  // version is visible but may not survive a power cut.
  Status Publish(const std::vector<PackedShard>& shards, Manifest* manifest);
  // Leaves the destination as it was before. With `keep_finished`, shards that are finished stay in
  // the staging folder for the next try; returns true when there are any.
  bool Abandon(bool keep_finished);

 private:
  PackStaging(FileSystem* fs, std::string destination, bool overwrite, bool sync);
  Status CheckFolder();
  Status CheckFree();  // that a pack without a plan may begin here
  Status MakeDestination();
  Status ReadCurrentManifest();
  Status ReadPlan();
  Status WritePlan();
  Status WriteRecord(const std::string& path, const std::string& content);
  void RemovePublishedFiles();  // of plan_, those that no manifest names
  Status RemoveReplacedFiles();
  Status RemoveTemporaries();
  Status RemoveStaging();
  void RemoveEmptyFolders();  // the staging folder and those in made_
  Status MoveIn(const std::string& from, const std::string& to);
  void MoveBack(uint64_t shard);
  bool CurrentNames(const std::string& file) const;
  std::string ShardName(uint64_t shard) const;
  std::string DonePath(uint64_t shard) const;

  struct Plan {
    std::string fingerprint;
    uint64_t num_shards = 0;
    unsigned generation = 0;
    std::vector<std::string> replaces;  // files of the version before, in the destination
  };

  FileSystem* fs_;
  std::string destination_, staging_;
  bool overwrite_, sync_;
  std::vector<std::string> made_;  // folders that Open made, outermost first
  std::unique_ptr<FileLock> lock_;
  std::optional<Manifest> current_;  // the version that readers see
  std::optional<Plan> plan_;
};

}  // namespace headrace::dataset
