// Traces as text: the trace event format that Chrome and Perfetto read, and the chunks in which a
// process tells its events to who traces it (/trace of the admin server). Pure; one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/process_snapshot.h"
#include "headrace/base/status.h"
#include "headrace/base/trace_ring.h"

namespace headrace {

// Writes one trace file. Work of a thread is a complete event ("X"); batches, requests and saves,
// of which many are under way at once, are pairs of nestable asynchronous events ("b", "e") with
// an id of their own and their parts inside. Times are microseconds since the window began; what
// began before it is cut off there.
class TraceFile {
 public:
  // Adds a process and returns its number. `begin_ns`: when the window began, by its clock.
  size_t AddProcess(const ProcessSnapshot& process, uint64_t begin_ns);
  // What ended before the window began is left out.
  void Add(size_t process, const TraceEvent& event);
  void AddLost(uint64_t events) { lost_ += events; }
  uint64_t num_events() const { return num_events_; }
  uint64_t lost() const { return lost_; }
  // The file's text. Call it last.
  std::string Finish();

 private:
  struct Process {
    int64_t pid;
    uint64_t begin_ns;
    std::set<uint32_t> lanes;  // that are named
  };
  void AddWork(Process* process, const TraceEvent& event);
  void AddInterval(const Process& process, const TraceEvent& event);
  void NameLane(Process* process, uint32_t lane, TracePool pool);
  void Name(const Process& process, std::string_view what, uint32_t lane, const std::string& name);
  void Mark(const Process& process, char phase, std::string_view category, std::string_view name,
            uint64_t when, std::string_view arguments = "");

  std::vector<Process> processes_;
  std::string text_;
  uint64_t num_events_ = 0, lost_ = 0, next_id_ = 1;
};

// {"version": 1, "next": 7, "lost": 0, "events": [[kind, detail, pool, lane, id, amount, ...]...]}:
// each event ends with its four times.
std::string TraceChunkText(const TraceChunk& chunk);
// Kinds of events that this program does not know are left out. kDataLoss, kInvalidArgument: no
// such text.
Result<TraceChunk> TraceChunkFrom(std::string_view text);

}  // namespace headrace
