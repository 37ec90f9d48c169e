// What the agent knows of its node: the processes that have admin sockets, what they do now, what
// they did, and what the doctor says of them. Pure logic on the caller's clock, so that it is
// tested on a virtual one; one owner at a time.
//
// Bounded: at most so many processes, of each a few snapshots, the doctor's windows and a History.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/agent/history.h"
#include "headrace/base/json.h"
#include "headrace/base/process_snapshot.h"
#include "headrace/doctor/run.h"

namespace headrace::agent {

class NodeView {
 public:
  struct Options {
    size_t max_processes = 64;
    double interval_s = 2;        // between two looks, about
    double keeps_ended_s = 3600;  // how long a process that has ended is remembered
    size_t recent_looks = 5;      // "now" is the time since so many looks ago
    size_t doctor_windows = 60;   // that the doctor looks at
    History::Options history = {};
    doctor::MachineFacts machine = {};
  };
  // What one look found at a socket; without a snapshot: its process did not answer.
  struct Seen {
    std::string id;
    std::optional<ProcessSnapshot> snapshot;
  };

  explicit NodeView(Options options) : options_(std::move(options)) {}

  // One look at all sockets of the node, at `now_s`. A process that is not among them has ended.
  void Look(double now_s, std::vector<Seen> seen);

  // What is known of data sets, by name.
  void SetFacts(std::map<std::string, doctor::DatasetFacts> facts) { facts_ = std::move(facts); }

  // Every answer below is of the last look. Texts of processes are escaped, so that they are one
  // printable line of UTF-8.
  //
  // {"processes": [...], ...}: who runs, and what each does now.
  Json NodeJson() const;
  // The last `span_s` in at most `points` stretches, of each process, or of `id` alone.
  Json HistoryJson(double span_s, size_t points, const std::string& id = "") const;
  // The doctor's word on each run. Made once after each look.
  const Json& FindingsJson();
  // What the processes tell of each data set, and what is known of it.
  Json DatasetsJson() const;
  // Values of the scope kNode, and snapshots of those that answered.
  std::vector<MetricValue> NodeMetrics() const;
  std::vector<ProcessSnapshot> Snapshots() const;
  // Names of data sets that live processes read.
  std::vector<std::string> DatasetNames() const;

 private:
  enum class State : uint8_t { kLive, kSilent, kEnded };
  struct Process {
    explicit Process(const History::Options& options) : history(options) {}
    State state = State::kLive;
    double begun_s = 0, seen_s = 0;     // first and last answer
    std::deque<ProcessSnapshot> looks;  // the last ones, oldest first; never empty
    ProcessSnapshot recent;             // what lies between the first and the last of them
    History history;
    doctor::RankRun run;
  };

  void Take(double now_s, const std::string& id, ProcessSnapshot snapshot);
  void Book(const ProcessSnapshot& between);
  void Forget(double now_s);
  size_t NumIn(State state) const;
  Json ProcessJson(const std::string& id, const Process& process) const;
  std::map<std::string, doctor::JobRun> Runs() const;

  const Options options_;
  double now_s_ = 0;
  std::map<std::string, Process> processes_;  // by id
  std::map<std::string, doctor::DatasetFacts> facts_;
  size_t left_out_ = 0;
  uint64_t looks_ = 0, failed_looks_ = 0;
  // Sums over all processes while they were watched; they never fall.
  double batches_ = 0, samples_ = 0;
  uint64_t input_wait_ns_ = 0, between_batches_ns_ = 0, save_stall_ns_ = 0;
  std::optional<Json> findings_;  // of the last look
};

// The part of the pipeline that sets its pace: "step" while the input stalls less than the doctor's
// border, else the loader's stage that most of the workers' busy time goes to. Empty: nothing was
// done.
std::string LimitingStage(const ProcessSnapshot& recent);

}  // namespace headrace::agent
