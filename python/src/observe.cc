#include "observe.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "errors.h"
#include "headrace/agent/admin_server.h"
#include "headrace/base/mutex.h"
#include "headrace/base/trace_json.h"
#include "headrace/env/file.h"
#include "headrace/loader/loader_snapshot.h"
#include "headrace/object/per_process.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

using agent::AdminHttp;
using agent::AdminSocket;
using agent::ProcessWatch;

// The servers of this process; a forked child has none.
struct Servers {
  Mutex mu;  // held while one starts or ends: before the watch's
  std::unique_ptr<AdminSocket> socket HR_GUARDED_BY(mu);
  std::unique_ptr<AdminHttp> http HR_GUARDED_BY(mu);
};
Servers& TheServers() {
  static auto* servers =
      new object::PerProcess<Servers>([] { return std::make_unique<Servers>(); });
  return servers->Get();
}

template <typename Run>
auto Released(const Run& run) {
  nb::gil_scoped_release released;
  return run();
}

std::string StartSocket() {
  auto start = []() -> Result<std::string> {
    Servers& servers = TheServers();
    MutexLock lock(&servers.mu);
    if (!servers.socket) {
      HR_ASSIGN_OR_RETURN(servers.socket, AdminSocket::Start(&ProcessWatch::OfThisProcess()));
    }
    return servers.socket->path();
  };
  return Unwrap(Released(start));
}

uint16_t StartHttp(const std::string& address, uint16_t port, const std::string& token) {
  auto start = [&]() -> Result<uint16_t> {
    Servers& servers = TheServers();
    MutexLock lock(&servers.mu);
    servers.http.reset();  // its port may be the one that is asked for
    agent::HttpOptions options;
    options.address = address;
    options.port = port;
    options.token = token;
    HR_ASSIGN_OR_RETURN(servers.http, AdminHttp::Start(&ProcessWatch::OfThisProcess(), options));
    return servers.http->port();
  };
  return Unwrap(Released(start));
}

void StopServers() {
  nb::gil_scoped_release released;
  Servers& servers = TheServers();
  MutexLock lock(&servers.mu);
  servers.socket.reset();
  servers.http.reset();
}

std::string SnapshotJson() {
  nb::gil_scoped_release released;
  return ProcessWatch::OfThisProcess().Snapshot().ToJson().Dump();
}

// Closes the window and writes what happened in it. Returns how many events that were.
uint64_t WriteTrace(TraceWindow& window, const std::string& path) {
  auto write = [&]() -> Result<uint64_t> {
    const TraceChunk chunk = window.Close();
    TraceFile file;
    const size_t process =
        file.AddProcess(ProcessWatch::OfThisProcess().Snapshot(), window.begin_ns());
    for (const TraceEvent& event : chunk.events) file.Add(process, event);
    file.AddLost(chunk.lost);
    HR_RETURN_IF_ERROR(PosixFileSystem()->WriteAtomically(path, AsBytes(file.Finish())));
    return file.num_events();
  };
  return Unwrap(Released(write));
}

}  // namespace

std::unique_ptr<ProcessWatch::Part> WatchLoader(loader::Loader* loader) {
  return ProcessWatch::OfThisProcess().Add(
      [loader](ProcessSnapshot* snapshot) { loader::AddToSnapshot(*loader, snapshot); },
      [loader](const std::string& name, uint64_t value) {
        return loader->ChangeSetting(name, value);
      },
      [loader] { return loader->last_use_ns(); });
}

std::unique_ptr<ProcessWatch::Part> WatchPendingSaves(std::function<uint64_t()> pending) {
  return ProcessWatch::OfThisProcess().Add(
      [pending = std::move(pending)](ProcessSnapshot* snapshot) {
        snapshot->AddMetric(Metric::kCheckpointPendingSaves, static_cast<double>(pending()));
      });
}

void BindObserve(nb::module_& m) {
  m.def("admin_start", &StartSocket, "Path of this process's admin socket, made if need be.");
  m.def("admin_serve_http", &StartHttp, nb::arg("address"), nb::arg("port"), nb::arg("token"));
  m.def("admin_stop", &StopServers);
  m.def("snapshot_json", &SnapshotJson);
  m.def("set_job", [](const std::string& job) {
    Released([&] { ProcessWatch::OfThisProcess().SetJob(job); });
  });
  m.def("set_model", [](double flops_per_step, double peak) {
    Released([&] { ProcessWatch::OfThisProcess().SetModel(flops_per_step, peak); });
  });
  nb::class_<TraceWindow>(m, "TraceWindow", "While it is open, this process is traced.")
      .def_static(
          "open", [] { return new TraceWindow(Unwrap(Released(&TraceWindow::Open))); },
          nb::rv_policy::take_ownership)
      .def("write", &WriteTrace, nb::arg("path"));
  m.def("book_save_level", [](uint64_t step, uint8_t level, double seconds) {
    TraceInterval(TraceKind::kSaveLevel, level, static_cast<uint64_t>(seconds * 1e9), 0, step);
  });
  m.def("book_save_stall", [](double seconds) {
    Released(
        [&] { ProcessWatch::OfThisProcess().BookSaveStall(static_cast<uint64_t>(seconds * 1e9)); });
  });
}

}  // namespace headrace::python
