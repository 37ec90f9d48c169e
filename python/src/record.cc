#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "headrace/agent/run_recording.h"
#include "headrace/base/mutex.h"
#include "headrace/checkpoint/run_records.h"
#include "headrace/object/per_process.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

using agent::ProcessWatch;
using agent::RunRecording;

// The recording of this process; a forked child has none.
struct Recording {
  Mutex mu;  // held while one starts or ends: before the watch's
  std::unique_ptr<RunRecording> running HR_GUARDED_BY(mu);
};
Recording& TheRecording() {
  static auto* recording =
      new object::PerProcess<Recording>([] { return std::make_unique<Recording>(); });
  return recording->Get();
}

Status StartRecording(const std::string& directory, double interval_s, uint64_t limit_bytes,
                      bool from_beginning) {
  Recording& recording = TheRecording();
  MutexLock lock(&recording.mu);
  recording.running.reset();
  constexpr double kMost = 86'400;
  const double seconds = interval_s > 0 ? std::min(interval_s, kMost) : 0;
  RunRecording::Options options;
  options.directory = directory;
  options.interval = std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  options.limit_bytes = limit_bytes;
  options.from_beginning = from_beginning;
  HR_ASSIGN_OR_RETURN(
      recording.running,
      RunRecording::Start(PosixFileSystem(), &ProcessWatch::OfThisProcess(), options));
  return OkStatus();
}

}  // namespace

void BindRecord(nb::module_& m) {
  m.def(
      "record_start",
      [](const std::string& directory, double interval_seconds, uint64_t limit_bytes,
         bool from_beginning) {
        Status status;
        {
          nb::gil_scoped_release released;
          status = StartRecording(directory, interval_seconds, limit_bytes, from_beginning);
        }
        Check(status);
      },
      nb::arg("directory"), nb::arg("interval_seconds"), nb::arg("limit_bytes"),
      nb::arg("from_beginning") = false);
  m.def("record_stop", [] {
    nb::gil_scoped_release released;
    Recording& recording = TheRecording();
    MutexLock lock(&recording.mu);
    recording.running.reset();
  });
  // Nothing happens while no run is recorded: a log line must not fail for it.
  m.def(
      "record_log",
      [](const std::string& level, const std::string& text) {
        nb::gil_scoped_release released;
        Recording& recording = TheRecording();
        MutexLock lock(&recording.mu);
        if (recording.running) (void)recording.running->AddLog(level, text);
      },
      nb::arg("level"), nb::arg("text"));
  m.def("run_record_folder", &checkpoint::RunRecordFolder, nb::arg("home"), nb::arg("epoch"));
  m.def(
      "prune_run_records",
      [](const std::string& home, const std::vector<uint64_t>& epochs, uint64_t running) {
        auto removed = [&] {
          nb::gil_scoped_release released;
          return checkpoint::PruneRunRecords(PosixFileSystem(), home,
                                             {epochs.begin(), epochs.end()}, running);
        }();
        return Unwrap(std::move(removed));
      },
      nb::arg("home"), nb::arg("epochs"), nb::arg("running"));
  m.def("book_python", [](double seconds) {
    nb::gil_scoped_release released;
    ProcessWatch::OfThisProcess().BookPython(static_cast<uint64_t>(std::max(seconds, 0.0) * 1e9));
  });
}

}  // namespace headrace::python
