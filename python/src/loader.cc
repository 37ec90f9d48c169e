#include "headrace/loader/loader.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings.h"
#include "errors.h"
#include "headrace/agent/auto_tune.h"
#include "headrace/base/mutex.h"
#include "headrace/loader/sample_access.h"
#include "observe.h"
#include "storage.h"
#include "tensor.h"
#include "value_memory.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

using loader::Batch;
using loader::Loader;
using loader::LoaderOptions;
using loader::LoaderState;

struct NativeBatch {
  std::shared_ptr<Batch> batch;
  const Loader* loader;  // columns() only; kept alive by the Python loader that made the batch
};

// A Loader whose destruction joins threads, which must not happen under the GIL.
struct NativeLoader {
  loader::LoaderPtr loader;
  std::shared_ptr<loader::ValueMemory> value_memory;  // outlives the loader: dies with the GIL held
  std::unique_ptr<agent::ProcessWatch::Part> watched;
  bool autotune = false;
  Mutex tune_mu{};  // held while its thread starts or is joined; never waited for with the GIL held
  std::unique_ptr<agent::AutoTune> tune HR_GUARDED_BY(tune_mu) = nullptr;
  ~NativeLoader() {
    nb::gil_scoped_release released;
    tune.reset();
    watched.reset();
    loader.reset();
  }
};

// Where there is nothing to choose from, nothing is tuned.
Status StartTuning(NativeLoader* self) {
  const bool has_choice = agent::AutoTune::HasChoice(self->loader->settings());
  MutexLock lock(&self->tune_mu);
  if (!self->autotune || !has_choice || self->tune) return OkStatus();
  HR_ASSIGN_OR_RETURN(self->tune,
                      agent::AutoTune::OfLoader(self->loader.get(), self->watched.get()));
  return OkStatus();
}

template <typename T>
T Get(const nb::dict& options, const char* name) {
  T value{};
  if (nb::try_cast<T>(options[name], value)) return value;
  Raise(Error(Code::kInvalidArgument, "{}: found {}, which is of the wrong kind or out of range",
              name, nb::repr(options[name]).c_str()));
}

// state() and stats() of a forked child would wait for threads that do not exist.
const Loader& Usable(const NativeLoader& self) {
  if (self.loader->InForkedChild())
    Raise(
        Error(Code::kFailedPrecondition,
              "this loader was made before fork(); its threads do not exist in this process. Make "
              "the loader after the fork, or start the process with spawn or forkserver"));
  return *self.loader;
}

LoaderOptions ReadOptions(const nb::dict& options) {
  LoaderOptions out;
  out.order.seed = Get<uint64_t>(options, "seed");
  out.order.shuffle = Get<bool>(options, "shuffle");
  out.order.lanes = Get<uint32_t>(options, "lanes");
  out.order.window_shards = Get<uint32_t>(options, "window_shards");
  out.global_batch = Get<uint64_t>(options, "global_batch_size");
  out.world_size = Get<uint32_t>(options, "world_size");
  out.rank = Get<uint32_t>(options, "rank");
  out.tail = Unwrap(loader::ParseTail(Get<std::string>(options, "tail")));
  out.threads = Get<int>(options, "threads");
  out.max_threads = Get<int>(options, "max_threads");
  out.memory_bytes = Get<uint64_t>(options, "memory_bytes");
  out.on_error = Unwrap(loader::ParseOnError(Get<std::string>(options, "on_error")));
  out.max_bad_samples = Get<uint64_t>(options, "max_bad_samples");
  out.max_bad_rate = Get<double>(options, "max_bad_rate");
  out.quarantine_path = Get<std::string>(options, "quarantine");
  out.verify_checksums = Get<bool>(options, "verify_checksums");
  out.cache.prefetch.ahead_bytes = Get<uint64_t>(options, "prefetch_bytes");
  out.cache.prefetch.in_flight_bytes = Get<uint64_t>(options, "prefetch_in_flight");
  out.cache.prefetch.max_requests = Get<uint32_t>(options, "prefetch_requests");
  out.cache.node_ranks = Get<uint32_t>(options, "node_ranks");
  out.cache.require_warm = Get<bool>(options, "require_warm");
  for (nb::handle column : nb::cast<nb::list>(options["columns"])) {
    auto parts = nb::cast<nb::tuple>(column);
    out.columns.push_back({nb::cast<std::string>(parts[0]), nb::cast<std::string>(parts[1]),
                           nb::cast<bool>(parts[2])});
  }
  return out;
}

NativeLoader* Create(const loader::SampleAccess& access, const nb::dict& options) {
  LoaderOptions native = ReadOptions(options);
  const bool autotune = Get<bool>(options, "autotune");
  std::shared_ptr<loader::ValueMemory> value_memory = MakeBytesMemory(native.memory_bytes / 4);
  native.value_memory = value_memory;
  std::unique_ptr<agent::ProcessWatch::Part> watched;
  Result<loader::LoaderPtr> made = [&] {
    nb::gil_scoped_release released;
    auto loader = Loader::Create(access.dataset(), std::move(native));
    if (loader.ok()) watched = WatchLoader(loader->get());
    return loader;
  }();
  return new NativeLoader{Unwrap(std::move(made)), std::move(value_memory), std::move(watched),
                          autotune};
}

nb::object Next(NativeLoader& self, double timeout_s) {
  Context ctx;
  ctx.deadline =
      Context::Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(timeout_s * 1e9));
  Result<std::shared_ptr<Batch>> batch = [&] {
    nb::gil_scoped_release released;
    return self.loader->Next(ctx);
  }();
  if (!batch.ok() && batch.status().code() == Code::kDeadlineExceeded) return nb::bool_(false);
  std::shared_ptr<Batch> value = Unwrap(std::move(batch));
  if (!value) return nb::none();
  return nb::cast(NativeBatch{std::move(value), self.loader.get()});
}

nb::list Keys(const NativeBatch& self) {
  nb::list keys;
  for (uint64_t r = 0; r < self.batch->num_rows; ++r)
    keys.append(KeyToStr(self.batch->rows[r].key));
  return keys;
}

nb::list Values(const NativeBatch& self, size_t value) {
  nb::list values;
  for (uint64_t r = 0; r < self.batch->num_rows; ++r)
    values.append(ValueObject(*self.batch, self.batch->rows[r], value));
  return values;
}

Array Tensor(const NativeBatch& self, size_t column) {
  const codec::TensorSpec& spec = self.loader->columns().at(column).transform->output();
  nb::capsule owner(new std::shared_ptr<Batch>(self.batch),
                    [](void* p) noexcept { delete static_cast<std::shared_ptr<Batch>*>(p); });
  return MakeArray(self.batch->TensorData(column), static_cast<int64_t>(self.batch->num_rows), spec,
                   owner);
}

nb::list HistogramList(const LogHistogram& histogram) {
  size_t used = LogHistogram::kBuckets;
  while (used > 0 && histogram[used - 1] == 0) --used;
  nb::list counts;
  for (size_t i = 0; i < used; ++i) counts.append(histogram[i]);
  return counts;
}

nb::dict StageDict(const StageTotals& totals) {
  nb::dict stage;
  stage["busy_seconds"] = static_cast<double>(totals.busy_ns) * 1e-9;
  stage["wait_seconds"] = static_cast<double>(totals.wait_ns) * 1e-9;
  stage["bytes"] = totals.bytes;
  stage["count"] = totals.count;
  stage["p50_seconds"] = static_cast<double>(totals.Percentile(0.5)) * 1e-9;
  stage["p99_seconds"] = static_cast<double>(totals.Percentile(0.99)) * 1e-9;
  stage["p99_wait_seconds"] = static_cast<double>(totals.waits.Percentile(0.99)) * 1e-9;
  stage["durations"] = HistogramList(totals.histogram);
  stage["waits"] = HistogramList(totals.waits);
  return stage;
}

nb::object CacheDict(const loader::CacheStats& stats) {
  if (!stats.has_cache) return nb::none();
  nb::dict out = ToDict(stats.cache);
  out["in_memory"] = stats.in_memory;
  out["has_plan"] = stats.has_plan;
  out["keeps_all"] = stats.keeps_all;
  out["epoch"] = stats.epoch;
  out["epoch_bytes"] = stats.epoch_bytes;
  out["expected_origin_bytes"] = stats.expected_origin_bytes;
  out["epoch_origin_bytes"] = stats.epoch_origin_bytes;
  out["prefetch_request_limit"] = stats.prefetch.request_limit;
  out["prefetch_overloads"] = stats.prefetch.overloads;
  return out;
}

// In each stage busy + wait + idle = thread_seconds.
nb::dict PoolDict(const PoolSnapshot& pool, const StageReport& report) {
  nb::dict stages;
  uint64_t booked = 0;
  for (size_t i = 0; i < kNumStages; ++i) {
    const StageTotals& totals = report[i];
    if (totals.count == 0 && totals.wait_ns == 0) continue;
    const uint64_t spent = totals.busy_ns + totals.wait_ns;
    booked += spent;
    nb::dict stage = StageDict(totals);
    stage["idle_seconds"] =
        static_cast<double>(pool.thread_ns > spent ? pool.thread_ns - spent : 0) * 1e-9;
    stages[std::string(StageName(static_cast<Stage>(i))).c_str()] = stage;
  }
  nb::dict out;
  out["threads"] = pool.threads;
  out["thread_seconds"] = static_cast<double>(pool.thread_ns) * 1e-9;
  out["unbooked_seconds"] =
      static_cast<double>(pool.thread_ns > booked ? pool.thread_ns - booked : 0) * 1e-9;
  out["stages"] = stages;
  return out;
}

nb::dict Stats(const NativeLoader& self) {
  const Loader& loader = Usable(self);
  loader::LoaderStats stats = [&] {
    nb::gil_scoped_release released;
    return loader.stats();
  }();
  nb::dict stages;
  for (size_t i = 0; i < kNumStages; ++i) {
    const StageTotals& totals = stats.stages[i];
    if (totals.count == 0 && totals.wait_ns == 0) continue;
    std::string name(StageName(static_cast<Stage>(i)));
    stages[name.c_str()] = StageDict(totals);
  }
  nb::dict decode;
  for (size_t i = 0; i < stats.decodes.size(); ++i) {
    if (stats.decodes[i] == 0) continue;
    std::string name(codec::SeekRefusalName(static_cast<codec::SeekRefusal>(i)));
    decode[name.c_str()] = stats.decodes[i];
  }
  nb::dict seek_points;
  seek_points["used"] = stats.seek_points.used;
  seek_points["added"] = stats.seek_points.added;
  seek_points["build_seconds"] = static_cast<double>(stats.seek_points.build_ns) * 1e-9;
  nb::dict out;
  nb::dict pools;
  pools["loader"] = PoolDict(stats.workers, stats.worker_stages);
  pools["consumer"] = PoolDict(stats.loop, stats.loop_stages);
  out["stages"] = stages;
  out["pools"] = pools;
  out["decode"] = decode;
  out["seek_points"] = seek_points;
  out["delivered_batches"] = stats.delivered_batches;
  out["delivered_samples"] = stats.delivered_samples;
  out["bad_samples"] = stats.bad_samples;
  out["wait_seconds"] = static_cast<double>(stats.wait_ns) * 1e-9;
  out["step_seconds"] = static_cast<double>(stats.step_ns) * 1e-9;
  out["first_batch_seconds"] = static_cast<double>(stats.first_batch_ns) * 1e-9;
  out["memory_bytes"] = stats.memory_bytes;
  out["peak_memory_bytes"] = stats.peak_memory_bytes;
  out["ready_batches"] = stats.ready_batches;
  out["cache"] = CacheDict(stats.cache);
  return out;
}

// What a Python transform found wrong with a row of a delivered batch.
Status RowFault(const NativeBatch& b, uint64_t row, const std::string& reason,
                const std::string& field) {
  return Status(Code::kInvalidArgument, reason)
      .At({"", std::nullopt, b.batch->rows.at(row).key, field});
}

void BindBatch(nb::module_& m) {
  nb::class_<NativeBatch>(m, "Batch")
      .def_prop_ro("num_rows", [](const NativeBatch& b) { return b.batch->num_rows; })
      .def_prop_ro("epoch", [](const NativeBatch& b) { return b.batch->epoch; })
      .def_prop_ro("index", [](const NativeBatch& b) { return b.batch->index; })
      .def("ids",
           [](const NativeBatch& b) {
             std::vector<uint64_t> ids;
             for (uint64_t r = 0; r < b.batch->num_rows; ++r)
               ids.push_back(b.batch->rows[r].sample_id);
             return ids;
           })
      .def("keys", &Keys)
      .def("values", &Values, nb::arg("value"))
      .def("tensor", &Tensor, nb::arg("column"));
}

}  // namespace

void BindLoader(nb::module_& m) {
  BindBatch(m);
  nb::class_<NativeLoader>(m, "Loader")
      .def_static("create", &Create, nb::arg("dataset"), nb::arg("options"),
                  nb::rv_policy::take_ownership)
      .def_prop_ro("num_batches",
                   [](const NativeLoader& l) { return l.loader->plan().num_batches(); })
      .def_prop_ro("max_rows", [](const NativeLoader& l) { return l.loader->plan().MaxRows(); })
      .def_prop_ro("lanes", [](const NativeLoader& l) { return l.loader->options().order.lanes; })
      .def(
          "begin",
          [](NativeLoader& l, uint64_t epoch, uint64_t position) {
            Status status = [&] {
              nb::gil_scoped_release released;
              Status begun = l.loader->Begin(epoch, position);
              return begun.ok() ? StartTuning(&l) : begun;
            }();
            Check(status);
          },
          nb::arg("epoch"), nb::arg("position"))
      .def("next", &Next, nb::arg("timeout_seconds"),
           "The next batch, None at the end of the epoch, False when the time is over.")
      .def("state_json", [](const NativeLoader& l) { return Usable(l).state().ToJson(); })
      .def(
          "check_state",
          [](const NativeLoader& l, const std::string& json) {
            LoaderState state = Unwrap(LoaderState::FromJson(json));
            Check(state.CheckFits(Usable(l).state()));
            const loader::BatchPlan& plan = l.loader->plan();
            loader::StreamPoint point = Unwrap(plan.PointOf(state.epoch, state.next_position));
            return nb::make_tuple(point.epoch, plan.BatchBegin(point.batch));
          },
          nb::arg("json"))
      .def("substitute",
           [](NativeLoader& l, NativeBatch& b, uint64_t row, const std::string& reason,
              const std::string& field) {
             Status bad = RowFault(b, row, reason, field);
             Status status = [&] {
               nb::gil_scoped_release released;
               return l.loader->LoadSubstitute(b.batch.get(), row, std::move(bad), Context());
             }();
             Check(status);
           })
      .def("book_skipped",
           [](NativeLoader& l, NativeBatch& b, uint64_t row, const std::string& reason,
              const std::string& field) {
             Status bad = RowFault(b, row, reason, field);
             Status status = [&] {
               nb::gil_scoped_release released;
               return l.loader->BookSkipped(*b.batch, row, std::move(bad));
             }();
             Check(status);
           })
      .def("drop_rows",
           [](NativeLoader&, NativeBatch& b, const std::vector<uint64_t>& rows) {
             for (uint64_t r : rows) b.batch->rows.at(r).state = loader::BatchRow::State::kSkipped;
             b.batch->DropEmptyRows();
           })
      .def("stats", &Stats)
      .def("settings",
           [](const NativeLoader& l) {
             std::vector<std::tuple<std::string, uint64_t, uint64_t, uint64_t>> all;
             const Loader& loader = Usable(l);
             nb::gil_scoped_release released;
             for (const SettingValue& one : loader.settings())
               all.emplace_back(one.name, one.value, one.min, one.max);
             return all;
           })
      .def(
          "change_setting",
          [](NativeLoader& l, const std::string& name, uint64_t value) {
            (void)Usable(l);
            Status status = [&] {
              nb::gil_scoped_release released;
              return l.watched->ChangeSetting(name, value, {"the program", ""});
            }();
            Check(status);
          },
          nb::arg("name"), nb::arg("value"))
      .def("close", [](NativeLoader& l) {
        nb::gil_scoped_release released;
        {
          MutexLock lock(&l.tune_mu);
          if (l.tune) l.tune->Stop();
        }
        l.loader->Close();
      });
}

}  // namespace headrace::python
