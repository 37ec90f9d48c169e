// The record of a run: what one process did, as JSON lines in a folder. docs/formats/run-record.md
// describes the files; `headrace doctor`, `report` and `compare` read them.
//
// The folder of a run holds one file for each rank, "rank-0.jsonl", and the older half of a file
// that grew to its limit beside it ("rank-0.1.jsonl"), so that a record never takes more than twice
// the limit for each rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/process_snapshot.h"
#include "headrace/doctor/run.h"
#include "headrace/env/file.h"

namespace headrace::doctor {

inline constexpr uint64_t kRecordVersion = 1;

// What a record says once, and again at the head of each file.
struct RunFacts {
  std::string name;
  uint32_t rank = 0;
  std::string node;
  MachineFacts machine;
  JobFacts job;
  DatasetFacts dataset;
};
Json RunFactsJson(const RunFacts& facts);
// kInvalidArgument names what is wrong; members that are not known are skipped.
Result<RunFacts> ReadRunFacts(const Json& json);

// Writes the record of one process. Thread-safe. A failure to write is told to the caller and never
// repeated for the job's sake: the record then has a gap, and the next window is tried again.
class RunRecorder {
 public:
  struct Options {
    std::string directory;            // made when it is missing
    uint64_t limit_bytes = 16 << 20;  // of one file; at least 64 KiB
    // The first window is all that the process did before the first Add().
    bool from_beginning = false;
  };
  // kInvalidArgument for a limit below 64 KiB; else the file system's. A record that is there is
  // continued: a job that was resumed has one.
  static Result<std::unique_ptr<RunRecorder>> Open(FileSystem* fs, RunFacts facts,
                                                   const Options& options);

  // Adds what happened since the last call; the first one only remembers where it began, or with
  // `from_beginning` adds all before.
  Status Add(const ProcessSnapshot& snapshot) HR_EXCLUDES(mu_);
  // Adds a line of the job's log, a warning or worse. `level` is "warning" or "error".
  Status AddLog(std::string_view level, std::string_view text, int64_t unix_ns) HR_EXCLUDES(mu_);

 private:
  RunRecorder(FileSystem* fs, RunFacts facts, const Options& options);
  std::string PathOf(std::string_view suffix) const;
  Status Write(const Json& line) HR_REQUIRES(mu_);
  Status Rotate() HR_REQUIRES(mu_);

  FileSystem* const fs_;  // not owned
  const Options options_;
  const RunFacts facts_;
  Mutex mu_;  // order: none is taken under it; the record's file is written under it
  std::unique_ptr<WritableFile> file_ HR_GUARDED_BY(mu_);
  uint64_t file_bytes_ HR_GUARDED_BY(mu_) = 0;
  bool begun_ HR_GUARDED_BY(mu_) = false;
  ProcessSnapshot before_ HR_GUARDED_BY(mu_);
};

// A line of the job's log, or a setting that was changed while it ran (level "change").
struct LogLine {
  uint32_t rank = 0;
  int64_t unix_ns = 0;
  std::string level, text;
};

struct RunRecord {
  JobRun run;
  int64_t begin_unix_ns = 0, end_unix_ns = 0;
  std::vector<LogLine> log;
  // Lines that could not be read: the last one of a process that was killed in the middle of it,
  // or damage. They are left out.
  std::vector<std::string> faults;
};

// True for a folder that holds files of a record, and for such a file.
bool IsRunRecord(FileSystem* fs, const std::string& path);
// Reads the record in a folder, or one file of it. kNotFound: there is none; kInvalidArgument: it
// was written by a newer version; kResourceExhausted: a file of more than 1 GiB. Windows of ranks
// that began at different times are set against the earliest beginning.
Result<RunRecord> ReadRunRecord(FileSystem* fs, const std::string& path);
// The lines of one file, for tests and fuzzers. Adds to `record`.
Status ReadRecordLines(std::string_view text, std::string_view file, RunRecord* record);

}  // namespace headrace::doctor
