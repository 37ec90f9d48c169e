#include "headrace/doctor/testing/pipeline_simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>

#include "headrace/base/keyed_random.h"
#include "headrace/base/log_histogram.h"

namespace headrace::doctor::testing {
namespace {

// Servers of one queue, first come first served. Calls come in the order of their times.
class Servers {
 public:
  explicit Servers(size_t count) : free_at_(std::max<size_t>(count, 1), 0.0) {}
  struct Turn {
    double begin, end;
  };
  Turn Serve(double now, double service_s) {
    auto first = std::min_element(free_at_.begin(), free_at_.end());
    const double begin = std::max(now, *first);
    *first = begin + service_s;
    return {begin, *first};
  }

 private:
  std::vector<double> free_at_;
};

enum class Phase : uint8_t { kIdle, kMeta, kRead, kDecode, kDone };

struct Sample {
  int64_t number = 0;
  double bytes = 0;
  bool from_origin = false, slow = false, refused = false;
};

struct Worker {
  Phase phase = Phase::kIdle;
  Sample sample;
  double since = 0;  // when the phase began
};

struct Rank {
  Rank(const PipelineConfig& config)
      : cpu(static_cast<size_t>(config.cpus)), disk(1), network(1), workers(64) {}
  Servers cpu, disk, network;
  std::vector<Worker> workers;
  int threads = 0;
  int64_t next_sample = 0;
  std::map<int64_t, int> done;  // samples of each unfinished batch
  int64_t batch = 0;            // that the loop wants or has
  bool wants = true;            // it waits for the batch
  double since = 0;             // when it began to wait, or had it
  std::vector<Window> windows;
};

struct Event {
  double at;
  uint64_t order;  // of the same time: first made, first done
  std::function<void()> act;
  bool operator>(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

class Simulation {
 public:
  explicit Simulation(const PipelineConfig& config) : c_(config) {
    for (int r = 0; r < c_.ranks; ++r) ranks_.emplace_back(c_);
  }
  JobRun Play();

 private:
  void At(double at, std::function<void()> act) { events_.push({at, order_++, std::move(act)}); }
  Window& WindowAt(Rank& rank, double at);
  // Adds the part of [from, to) in each window to the field.
  void Book(Rank& rank, double from, double to, double Window::* field);
  void BookStage(Rank& rank, Stage stage, double seconds, double bytes);
  double Chance(uint64_t what, int64_t number) const {
    return KeyedRandom(HashKey(c_.seed, what, number)).NextDouble();
  }
  Sample Draw(int r, int64_t number) const;
  double ReadFactor(int r) const;
  void Feed(int r);
  void Start(int r, size_t worker);
  void Read(int r, size_t worker);
  void ReadDone(int r, size_t worker);
  void Decode(int r, size_t worker);
  void Finish(int r, size_t worker);
  void TryStep();
  double SaveStall();
  void Step();
  void EndStep();
  void SetThreads(int threads);
  JobRun Result();

  const PipelineConfig c_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t order_ = 0;
  double now_ = 0;
  bool stepping_ = false;
  double next_save_ = 0, save_written_ = 0;
};

Window& Simulation::WindowAt(Rank& rank, double at) {
  const auto index = static_cast<size_t>(at / c_.window_s);
  while (rank.windows.size() <= index) {
    Window window;
    window.start_s = static_cast<double>(rank.windows.size()) * c_.window_s;
    window.seconds = c_.window_s;
    window.threads = static_cast<uint32_t>(rank.threads);
    window.knows_device = true;
    rank.windows.push_back(window);
  }
  return rank.windows[index];
}

void Simulation::Book(Rank& rank, double from, double to, double Window::* field) {
  while (from < to) {
    Window& window = WindowAt(rank, from);
    const double end = std::min(to, window.start_s + window.seconds);
    if (end <= from) break;  // a rounding of the border
    window.*field += end - from;
    from = end;
  }
}

void Simulation::BookStage(Rank& rank, Stage stage, double seconds, double bytes) {
  StageTotals& totals = WindowAt(rank, now_).stages[static_cast<size_t>(stage)];
  const auto ns = static_cast<uint64_t>(std::max(0.0, seconds) * 1e9);
  totals.busy_ns += ns;
  totals.bytes += static_cast<uint64_t>(bytes);
  ++totals.count;
  totals.histogram.Record(ns);
}

Sample Simulation::Draw(int r, int64_t number) const {
  const int64_t id = number * c_.ranks + r;
  Sample sample;
  sample.number = number;
  sample.bytes = c_.sample_bytes * (1 + c_.size_spread * (2 * Chance(1, id) - 1));
  sample.from_origin = Chance(2, id) < c_.origin_share;
  sample.slow = Chance(3, id) < c_.slow_share;
  sample.refused = Chance(4, id) < c_.refused_share;
  return sample;
}

double Simulation::ReadFactor(int r) const {
  return (r == c_.slow_rank ? c_.slow_rank_factor : 1) *
         (now_ < save_written_ ? c_.save_slows_reads : 1);
}

// Gives idle workers samples of batches that are at most so far ahead.
void Simulation::Feed(int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  for (size_t w = 0; w < static_cast<size_t>(rank.threads); ++w) {
    if (rank.workers[w].phase != Phase::kIdle) continue;
    if (rank.next_sample / c_.batch >= rank.batch + c_.batches_ahead) return;
    rank.workers[w].sample = Draw(r, rank.next_sample++);
    Start(r, w);
  }
}

void Simulation::Start(int r, size_t worker) {
  Worker& w = ranks_[static_cast<size_t>(r)].workers[worker];
  w.phase = Phase::kMeta;
  w.since = now_;
  const double meta = c_.meta_s * (0.5 + Chance(5, w.sample.number * c_.ranks + r));
  At(now_ + meta, [this, r, worker] { Read(r, worker); });
}

void Simulation::Read(int r, size_t worker) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  Worker& w = rank.workers[worker];
  if (c_.meta_s > 0) BookStage(rank, Stage::kMeta, now_ - w.since, 0);
  w.phase = Phase::kRead;
  w.since = now_;
  double ready = now_;
  const double factor = ReadFactor(r);
  Window& window = WindowAt(rank, now_);
  if (w.sample.from_origin) {
    ++window.requests;
    if (w.sample.refused) {
      ++window.requests;
      ++window.refused_requests;
      window.back_off_s += c_.back_off_s;
      ready += c_.back_off_s;
    }
    // A refused request waits after its answer rather than before it: the network's turns are
    // taken in the order of their times.
    const double service = w.sample.bytes * factor / c_.network_bytes_per_s;
    ready += rank.network.Serve(now_, service).end - now_ + c_.network_latency_s * factor;
    window.origin_bytes += static_cast<uint64_t>(w.sample.bytes);
  } else if (Chance(6, w.sample.number * c_.ranks + r) >= c_.page_cache_share) {
    const double service = w.sample.bytes * factor / c_.disk_bytes_per_s;
    ready = rank.disk.Serve(now_, service).end + c_.disk_latency_s * factor;
    window.device_bytes += static_cast<uint64_t>(w.sample.bytes);
    if (c_.job.has_cache) window.cache_hit_bytes += static_cast<uint64_t>(w.sample.bytes);
  } else {
    constexpr double kMemoryBytesPerSecond = 5e9;
    ready += w.sample.bytes / kMemoryBytesPerSecond;
  }
  At(ready, [this, r, worker] { ReadDone(r, worker); });
}

void Simulation::ReadDone(int r, size_t worker) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  Worker& w = rank.workers[worker];
  const Stage stage = w.sample.from_origin ? Stage::kFetch
                      : c_.job.has_cache   ? Stage::kCache
                                           : Stage::kRead;
  BookStage(rank, stage, now_ - w.since, w.sample.bytes);
  Decode(r, worker);
}

void Simulation::Decode(int r, size_t worker) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  Worker& w = rank.workers[worker];
  w.phase = Phase::kDecode;
  w.since = now_;
  double service = c_.decode_s * w.sample.bytes / c_.sample_bytes;
  if (w.sample.slow) service *= c_.slow_factor;
  service *= 1 + c_.contention * std::max(0.0, rank.threads / c_.cpus - 1);
  const Servers::Turn turn = rank.cpu.Serve(now_, service);
  Book(rank, turn.begin, turn.end, &Window::cpu_s);
  Book(rank, now_, turn.begin, &Window::run_delay_s);
  At(turn.end, [this, r, worker] { Finish(r, worker); });
}

void Simulation::Finish(int r, size_t worker) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  Worker& w = rank.workers[worker];
  BookStage(rank, Stage::kDecode, now_ - w.since, w.sample.bytes);
  w.phase = Phase::kIdle;
  ++rank.done[w.sample.number / c_.batch];
  TryStep();
  Feed(r);
}

// Steps when every rank has its batch. A rank that has it earlier than the others waits in the
// step.
void Simulation::TryStep() {
  if (stepping_) return;
  bool all = true;
  for (Rank& rank : ranks_) {
    auto done = rank.done.find(rank.batch);
    const bool ready = done != rank.done.end() && done->second == c_.batch;
    if (ready && rank.wants) {
      Book(rank, rank.since, now_, &Window::input_wait_s);
      rank.wants = false;
      rank.since = now_;
    }
    all = all && ready;
  }
  if (all) Step();
}

double Simulation::SaveStall() {
  if (c_.save_every_s <= 0 || now_ < next_save_) return 0;
  const bool first = next_save_ == 0;  // nothing to save yet
  next_save_ = now_ + c_.save_every_s;
  if (first) return 0;
  save_written_ = now_ + std::max(c_.save_writes_s, c_.save_stall_s);
  for (Rank& rank : ranks_) Book(rank, now_, save_written_, &Window::saving_s);
  return c_.save_stall_s;
}

void Simulation::Step() {
  const double jitter = 1 + c_.compute_jitter * (2 * Chance(7, ranks_.front().batch) - 1);
  const double computed = now_ + c_.compute_s * jitter;
  const double python = computed + c_.python_s;
  const double end = python + SaveStall();
  for (Rank& rank : ranks_) {
    Book(rank, rank.since, computed, &Window::step_s);
    Book(rank, computed, python, &Window::python_s);
    Book(rank, python, end, &Window::save_stall_s);
    Window& window = WindowAt(rank, now_);
    ++window.batches;
    window.samples += static_cast<uint64_t>(c_.batch);
    rank.done.erase(rank.batch);
    ++rank.batch;
  }
  stepping_ = true;
  At(end, [this] { EndStep(); });
  for (int r = 0; r < c_.ranks; ++r) Feed(r);
}

void Simulation::EndStep() {
  stepping_ = false;
  for (Rank& rank : ranks_) {
    rank.wants = true;
    rank.since = now_;
  }
  TryStep();
}

void Simulation::SetThreads(int threads) {
  for (int r = 0; r < c_.ranks; ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    rank.threads = std::min(threads, static_cast<int>(rank.workers.size()));
    for (Window& window : rank.windows)
      if (window.start_s >= now_) window.threads = static_cast<uint32_t>(rank.threads);
    Feed(r);
  }
}

JobRun Simulation::Play() {
  SetThreads(c_.threads);
  for (const ThreadsChange& change : c_.threads_changes)
    At(change.at_s, [this, change] { SetThreads(change.threads); });
  while (!events_.empty() && events_.top().at < c_.duration_s) {
    Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.act();
  }
  return Result();
}

JobRun Simulation::Result() {
  JobRun run;
  run.name = "simulated";
  run.dataset = c_.dataset;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (rank.wants) Book(rank, rank.since, c_.duration_s, &Window::input_wait_s);
    WindowAt(rank, c_.duration_s - c_.window_s / 2);
    rank.windows.resize(static_cast<size_t>(std::llround(c_.duration_s / c_.window_s)));
    for (Window& window : rank.windows) {
      double wall = window.start_s + window.seconds;
      if (c_.clock_jump_at_s > 0 && wall > c_.clock_jump_at_s) wall += c_.clock_jump_s;
      window.wall_clock_ns = 1'700'000'000'000'000'000 + static_cast<int64_t>(wall * 1e9);
    }
    RankRun result;
    result.rank = static_cast<uint32_t>(r);
    result.node = "node" + std::to_string(r);
    result.machine = c_.machine;
    if (result.machine.cpus == 0) result.machine.cpus = c_.cpus;
    if (result.machine.network_bytes_per_s == 0)
      result.machine.network_bytes_per_s = c_.network_bytes_per_s;
    if (result.machine.disk_bytes_per_s == 0) result.machine.disk_bytes_per_s = c_.disk_bytes_per_s;
    result.job = c_.job;
    if (result.job.world_size <= 1) result.job.world_size = static_cast<uint32_t>(c_.ranks);
    result.windows = std::move(rank.windows);
    run.ranks.push_back(std::move(result));
  }
  return run;
}

}  // namespace

JobRun Simulate(const PipelineConfig& config) { return Simulation(config).Play(); }

double SpeedOf(const JobRun& run) {
  return run.ranks.empty() ? 0 : SteadyTotal(run.ranks.front().windows).samples_per_s();
}

}  // namespace headrace::doctor::testing
