// Keeps the record of this process while it runs (doctor/run_record.h): a thread that takes a
// snapshot each so often. Thread-safe. In a forked child nothing is recorded, and destroying it
// there lets go of nothing that is the parent's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/agent/process_watch.h"
#include "headrace/base/mutex.h"
#include "headrace/doctor/run_record.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"

namespace headrace::agent {

class RunRecording {
 public:
  struct Options {
    std::string directory;  // of the run; all its ranks share it
    std::chrono::nanoseconds interval = std::chrono::seconds(10);  // at least 100 ms
    uint64_t limit_bytes = 16 << 20;                               // of each file of the record
    bool from_beginning = false;                                   // as RunRecorder::Options
  };

  // Takes the first look. The facts of machine and rank are those of now: start it when the loader
  // is there. kInvalidArgument for an interval below 100 ms; failures of RunRecorder::Open;
  // kResourceExhausted when the thread is refused.
  static Result<std::unique_ptr<RunRecording>> Start(FileSystem* fs, ProcessWatch* watch,
                                                     const Options& options);
  // Takes a last look and waits for the thread.
  ~RunRecording();

  // Adds what happened since the last look now. Failures of RunRecorder::Add.
  Status Flush();
  // Adds a line of the job's log: "warning" or "error".
  Status AddLog(std::string_view level, std::string_view text);
  // Windows that could not be written since the start.
  uint64_t num_failures() const { return failures_.load(); }

 private:
  RunRecording(ProcessWatch* watch, std::unique_ptr<doctor::RunRecorder> recorder,
               std::chrono::nanoseconds interval);
  void Work();

  ProcessWatch* const watch_;  // not owned
  const std::unique_ptr<doctor::RunRecorder> recorder_;
  const std::chrono::nanoseconds interval_;
  const uint64_t fork_generation_;
  std::atomic<uint64_t> failures_{0};
  Mutex mu_;  // order: none is taken under it
  CondVar ending_changed_;
  bool ending_ HR_GUARDED_BY(mu_) = false;
  std::unique_ptr<Thread> thread_;  // last: joined first
};

}  // namespace headrace::agent
