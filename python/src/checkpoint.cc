#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.h"

#include "bindings.h"
#include "errors.h"
#include "headrace/agent/process_watch.h"
#include "headrace/checkpoint/advice.h"
#include "headrace/checkpoint/parts_writer.h"
#include "headrace/checkpoint/pieces.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/restore.h"
#include "headrace/checkpoint/save_engine.h"
#include "headrace/checkpoint/save_plan.h"
#include "headrace/checkpoint/store_access.h"
#include "headrace/env/process.h"
#include "observe.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace::python {

using checkpoint::CatalogEntry;
using checkpoint::SavePlan;

void CheckNotForked(uint64_t generation) {
  if (ForkGeneration() != generation)
    Raise(Status(Code::kFailedPrecondition,
                 "a checkpointer cannot be used in a forked child: make another one there"));
}

Context Within(std::optional<double> seconds) {
  Context ctx;
  if (seconds)
    ctx.deadline = Context::Clock::now() + std::chrono::duration_cast<Context::Clock::duration>(
                                               std::chrono::duration<double>(*seconds));
  return ctx;
}

checkpoint::Level LevelFrom(const std::string& name) {
  auto level = checkpoint::LevelNamed(name);
  if (!level)
    Raise(Error(Code::kInvalidArgument,
                "no level is called {}; there are memory, local, peer and remote", name));
  return *level;
}

nb::dict EntryDict(const CatalogEntry& entry) {
  nb::dict dict;
  dict["step"] = entry.id.step;
  dict["epoch"] = entry.id.epoch;
  dict["attempt"] = entry.id.attempt;
  std::string_view level = checkpoint::LevelName(entry.level);
  dict["level"] = nb::str(level.data(), level.size());
  dict["kind"] = entry.kind;
  dict["published_ns"] = entry.published_ns;
  dict["data_bytes"] = entry.data_bytes;
  dict["new_bytes"] = entry.new_bytes;
  // 0: not measured.
  dict["stall_s"] = static_cast<double>(entry.stall_ns) * 1e-9;
  dict["save_s"] = static_cast<double>(entry.save_ns) * 1e-9;
  dict["restore_s"] = static_cast<double>(entry.restore_ns) * 1e-9;
  return dict;
}

std::vector<checkpoint::WantedBox> WantedBoxes(const std::vector<WantedTuple>& tuples) {
  std::vector<checkpoint::WantedBox> wanted;
  wanted.reserve(tuples.size());
  for (const auto& [tensor, offset, length, address, bytes] : tuples)
    wanted.push_back(
        {tensor, checkpoint::Box(offset, length),
         // NOLINTNEXTLINE(performance-no-int-to-ptr): Python gives addresses as integers
         MutableBytes(reinterpret_cast<std::byte*>(address), bytes)});
  return wanted;
}

ByteArray LoanView(nb::handle owner, MutableBytes all, uint64_t offset, uint64_t bytes) {
  if (offset > all.size() || bytes > all.size() - offset)
    Raise(Error(Code::kOutOfRange, "{} bytes at {} of {}", bytes, offset, all.size()));
  size_t shape[1] = {bytes};
  return ByteArray(all.data() + offset, 1, shape, owner);
}

checkpoint::RankSave FilledSave(const SavePlan& plan, MutableBytes loan, const Addresses& addresses,
                                const nb::dict& info, int threads) {
  if (addresses.size() != plan.size() || loan.size() < plan.total_bytes())
    Raise(
        Error(Code::kInvalidArgument, "{} addresses for {} items", addresses.size(), plan.size()));
  auto text = [&](const char* name) {
    nb::bytes value = nb::cast<nb::bytes>(info[name]);
    return std::string(value.c_str(), value.size());
  };
  checkpoint::SaveInfo what;
  what.id.step = nb::cast<uint64_t>(info["step"]);
  what.world_size = nb::cast<uint32_t>(info["world_size"]);
  what.started_ns = nb::cast<int64_t>(info["started_ns"]);
  if (info.contains("restore_ns")) what.restore_ns = nb::cast<uint64_t>(info["restore_ns"]);
  what.kind = nb::cast<std::string>(info["kind"]);
  what.dataset_version = nb::cast<std::string>(info["dataset_version"]);
  what.created_by = std::string("headrace ") + HEADRACE_VERSION;
  const auto rank = nb::cast<uint32_t>(info["rank"]);
  std::string tree = text("tree"), loader_state = text("loader_state");
  return Released([&] {
    plan.CopyIn({addresses.data(), addresses.size()}, loan, threads);
    what.stall_ns = static_cast<uint64_t>(std::max<int64_t>(WallClockNanos() - what.started_ns, 1));
    checkpoint::RankSave save = plan.Make(loan);
    save.info = what;
    save.rank = rank;
    save.tree = std::move(tree);
    save.loader_state = std::move(loader_state);
    return save;
  });
}

namespace {

using checkpoint::Arena;
using checkpoint::CatalogStore;
using checkpoint::DataFiles;
using checkpoint::SaveEngine;
using checkpoint::SaveOutcome;

// (path, dtype, shape, offset, length, replica)
using ItemTuple = std::tuple<std::string, std::string, std::vector<uint64_t>, std::vector<uint64_t>,
                             std::vector<uint64_t>, bool>;

nb::dict OutcomeDict(const SaveOutcome& outcome) {
  nb::dict dict = SaveDict(outcome.id, outcome.report, outcome.queued_ns, outcome.publish_ns);
  dict["published"] = outcome.published;
  return dict;
}

// A store that is open, for reading and for taking over.
struct Store {
  std::string url;
  std::map<std::string, std::string> storage;
  CatalogStore catalog;
  std::unique_ptr<DataFiles> files;
};

// A saver: engine and arena.
struct Saver {
  Saver() = default;
  ~Saver() {
    if (ForkGeneration() != generation) {  // another process's threads hold locks for ever
      [[maybe_unused]] auto* of_the_parent = engine.release();
      [[maybe_unused]] auto* its_memory = arena.release();
      return;
    }
    nb::gil_scoped_release released;  // its thread may wait for who watches the process
    watched.reset();
    engine.reset();
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // In a forked child a save would overwrite what its parent has copied: the arena is shared.
  void CheckProcess() const { CheckNotForked(generation); }

  const uint64_t generation = ForkGeneration();
  std::unique_ptr<Arena> arena;
  std::unique_ptr<SaveEngine> engine;
  std::unique_ptr<agent::ProcessWatch::Part> watched;
  int copy_threads = 1;
};

Store* OpenStore(const std::string& url, const std::map<std::string, std::string>& storage) {
  auto access = Released([&] { return checkpoint::OpenCheckpointStore(url, storage); });
  if (!access.ok()) Raise(access.status());
  return new Store{url, storage, CatalogStore(std::move(access->place)), std::move(access->files)};
}

std::unique_ptr<Reading> Read(Store& store, std::optional<uint64_t> step,
                              const std::string& level) {
  checkpoint::Level least = LevelFrom(level);
  auto reading = std::make_unique<Reading>();
  auto read = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store.catalog.Read({}));
    const CatalogEntry* entry = catalog.Latest(least, step);
    if (entry == nullptr)
      return Error(Code::kNotFound, "{} holds no checkpoint{}", store.catalog.name(),
                   step ? " of step " + std::to_string(*step) : "");
    reading->entry = *entry;
    HR_ASSIGN_OR_RETURN(reading->manifest, store.catalog.ReadManifest(*entry, {}));
    return OkStatus();
  };
  Check(Released(read));
  return reading;
}

std::unique_ptr<Reading> ReadFullBefore(Store& store, const Reading& light,
                                        const std::string& level) {
  checkpoint::Level least = LevelFrom(level);
  auto reading = std::make_unique<Reading>();
  auto read = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store.catalog.Read({}));
    const CatalogEntry* entry = catalog.FullBefore(light.entry.id, least);
    if (entry == nullptr)
      return Error(Code::kNotFound,
                   "{} is light and {} holds no full checkpoint before it: restore what it holds "
                   "with light_only=True",
                   light.entry.id.Text(), store.catalog.name());
    reading->entry = *entry;
    HR_ASSIGN_OR_RETURN(reading->manifest, store.catalog.ReadManifest(*entry, {}));
    return OkStatus();
  };
  Check(Released(read));
  return reading;
}

// One attempt of a step, also when a newer one was published.
std::unique_ptr<Reading> ReadAttempt(Store& store, uint64_t step, uint64_t epoch,
                                     uint64_t attempt) {
  checkpoint::SaveId id{.step = step, .epoch = epoch, .attempt = attempt};
  auto reading = std::make_unique<Reading>();
  auto read = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store.catalog.Read({}));
    const CatalogEntry* entry = catalog.Find(id);
    if (entry == nullptr)
      return Error(Code::kNotFound, "{} holds no {}", store.catalog.name(), id.Text());
    reading->entry = *entry;
    HR_ASSIGN_OR_RETURN(reading->manifest, store.catalog.ReadManifest(*entry, {}));
    return OkStatus();
  };
  Check(Released(read));
  return reading;
}

Saver* StartSaver(Store& store, uint64_t epoch, const std::string& level, uint64_t arena_bytes,
                  int copy_threads, int hash_threads, bool reuse, double publish_timeout_s) {
  checkpoint::EngineOptions options;
  options.level = LevelFrom(level);
  options.write.threads = hash_threads;
  options.write.reuse = reuse;
  options.publish_timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(publish_timeout_s));
  options.ended = [](const checkpoint::SaveOutcome& outcome) {
    agent::ProcessWatch::OfThisProcess().BookSave({.step = outcome.id.step,
                                                   .published = outcome.published,
                                                   .queued_ns = outcome.queued_ns,
                                                   .work_ns = outcome.work_ns,
                                                   .publish_ns = outcome.publish_ns,
                                                   .written_bytes = outcome.report.written_bytes});
  };
  auto saver = std::make_unique<Saver>();
  saver->copy_threads = copy_threads;
  auto start = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(saver->arena, Arena::Create(arena_bytes, copy_threads));
    HR_ASSIGN_OR_RETURN(auto access, checkpoint::OpenCheckpointStore(store.url, store.storage));
    HR_ASSIGN_OR_RETURN(saver->engine, SaveEngine::Start(std::move(access.place),
                                                         std::move(access.files), epoch, options));
    saver->watched =
        WatchPendingSaves([engine = saver->engine.get()] { return engine->pending(); });
    return OkStatus();
  };
  Check(Released(start));
  return saver.release();
}

std::shared_ptr<const SavePlan> MakePlan(const std::vector<ItemTuple>& tuples, bool as_files) {
  std::vector<SavePlan::Item> items;
  items.reserve(tuples.size());
  for (const auto& [path, dtype, shape, offset, length, replica] : tuples)
    items.push_back({path, dtype, shape, offset, length, replica});
  return Unwrap(
      SavePlan::Create(items, as_files ? SavePlan::Layout::kAsFiles : SavePlan::Layout::kAsGiven));
}

uint64_t Submit(Saver& saver, const SavePlan& plan, Arena::Loan& loan, const Addresses& addresses,
                const nb::dict& info) {
  saver.CheckProcess();
  checkpoint::RankSave save = FilledSave(plan, loan.bytes(), addresses, info, saver.copy_threads);
  return Unwrap(Released([&] { return saver.engine->Submit(std::move(save), std::move(loan)); }));
}

nb::dict RestoreInto(Store& store, const Reading& reading, const std::vector<WantedTuple>& tuples,
                     int threads, bool shared_whole) {
  const std::vector<checkpoint::WantedBox> wanted = WantedBoxes(tuples);
  checkpoint::RestoreReport report;
  checkpoint::RestoreOptions options;
  options.threads = threads;
  options.shared_whole = shared_whole;
  std::vector<DataFiles*> places{store.files.get()};
  Check(Released(
      [&] { return checkpoint::Restore(places, reading.manifest, wanted, options, {}, &report); }));
  nb::dict dict;
  dict["wanted_bytes"] = report.wanted_bytes;
  dict["read_bytes"] = report.read_bytes;
  return dict;
}

nb::dict Verify(Store& store, const Reading& reading, int threads) {
  checkpoint::VerifyProgress progress;
  auto report = Released([&] {
    return checkpoint::VerifyFiles(store.files.get(), reading.manifest, threads, {}, &progress);
  });
  if (!report.ok()) Raise(report.status());
  return VerifyDict(*report);
}

// (path, dtype, shape)
using TensorTuple = std::tuple<std::string, std::string, std::vector<uint64_t>>;

checkpoint::DType DTypeFrom(const std::string& name) {
  auto dtype = checkpoint::DTypeNamed(name);
  if (!dtype) Raise(Error(Code::kInvalidArgument, "no type of elements is called {}", name));
  return *dtype;
}

std::unique_ptr<checkpoint::PartsWriter> StartParts(Store& store, uint64_t epoch, uint64_t step,
                                                    uint32_t parts, const std::string& level,
                                                    const std::vector<TensorTuple>& tensors,
                                                    nb::bytes tree, int threads) {
  checkpoint::PartsWriter::What what;
  what.epoch = epoch;
  what.step = step;
  what.parts = parts;
  what.level = LevelFrom(level);
  for (const auto& [path, dtype, shape] : tensors) what.tensors.Add(path, DTypeFrom(dtype), shape);
  what.tree = std::string(tree.c_str(), tree.size());
  what.created_by = std::string("headrace ") + HEADRACE_VERSION + " import";
  what.threads = threads;
  auto writer = Released([&] {
    return checkpoint::PartsWriter::Start(&store.catalog, store.files.get(), std::move(what), {});
  });
  if (!writer.ok()) Raise(writer.status());
  return std::make_unique<checkpoint::PartsWriter>(std::move(*writer));
}

void WritePart(checkpoint::PartsWriter& writer, const std::vector<WantedTuple>& tuples) {
  std::vector<checkpoint::SavedBox> boxes;
  for (const auto& [tensor, offset, length, address, bytes] : tuples)
    boxes.push_back({tensor, checkpoint::Box(offset, length),
                     // NOLINTNEXTLINE(performance-no-int-to-ptr): Python gives addresses
                     Bytes(reinterpret_cast<const std::byte*>(address), bytes), false});
  Check(Released([&] { return writer.Write(std::move(boxes), {}); }));
}

nb::list Pieces(const std::vector<uint64_t>& shape, const std::string& dtype, uint64_t most_bytes) {
  nb::list pieces;
  Check(checkpoint::ForEachPiece(
      shape, DTypeFrom(dtype), most_bytes, [&](const checkpoint::Box& box) {
        pieces.append(
            nb::make_tuple(nb::tuple(nb::cast(box.offset)), nb::tuple(nb::cast(box.length))));
        return OkStatus();
      }));
  return pieces;
}

nb::dict Advise(Store& store, double mtbf_s, double restart_s, double step_s, double interval_s) {
  const checkpoint::AdviceQuestion question{mtbf_s, restart_s, step_s, interval_s};
  auto advice = Released([&]() -> Result<checkpoint::SaveAdvice> {
    HR_ASSIGN_OR_RETURN(checkpoint::Catalog catalog, store.catalog.Read({}));
    return checkpoint::AdviseSaves(catalog, question);
  });
  if (!advice.ok()) Raise(advice.status());
  nb::dict dict;
  dict["saves"] = advice->measured.saves;
  dict["stall_s"] = advice->measured.stall;
  dict["durable_s"] = advice->measured.durable;
  dict["restore_s"] = advice->measured.restore;
  dict["interval_s"] = advice->interval;
  dict["expected_goodput"] = advice->present_goodput;
  dict["advised_interval_s"] = advice->advice.interval;
  dict["advised_steps"] = advice->advice.steps;
  dict["advised_goodput"] = advice->advice.expected_goodput;
  dict["warning"] = advice->warning;
  dict["text"] = advice->Text();
  return dict;
}

nb::list Prune(Store& store, std::optional<uint64_t> epoch, size_t keep_last, uint64_t keep_every,
               const std::string& level, bool dry_run) {
  checkpoint::RetentionRules rules;
  rules.keep_last = keep_last;
  rules.keep_every = keep_every;
  rules.level = LevelFrom(level);
  checkpoint::PrunePlan plan;
  auto prune = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(plan, checkpoint::PlanPrune(&store.catalog, rules, {}));
    if (dry_run) return OkStatus();
    uint64_t writer = 0;
    if (epoch) {
      writer = *epoch;
    } else {
      HR_ASSIGN_OR_RETURN(checkpoint::StoreHead head, store.catalog.ReadHead({}));
      writer = head.epoch;
    }
    return checkpoint::Prune(&store.catalog, writer, plan, {});
  };
  Check(Released(prune));
  nb::list rows;
  for (const auto& row : plan.rows) {
    nb::dict dict = EntryDict(row.entry);
    dict["keep"] = row.keep;
    dict["why"] = row.why;
    rows.append(dict);
  }
  return rows;
}

// Removes checkpoints by (step, epoch, attempt), with the files that only they name.
void Remove(Store& store, uint64_t epoch,
            const std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>& tuples) {
  std::vector<checkpoint::SaveId> ids;
  for (const auto& [step, saved_by, attempt] : tuples)
    ids.push_back({.step = step, .epoch = saved_by, .attempt = attempt});
  Check(Released([&]() -> Status {
    HR_ASSIGN_OR_RETURN(auto plan, checkpoint::PlanRemoval(&store.catalog, ids, {}));
    return checkpoint::Prune(&store.catalog, epoch, plan, {});
  }));
}

void BindReading(nb::module_& m) {
  nb::class_<Reading>(m, "CheckpointReading", "A published checkpoint.")
      .def_prop_ro("entry", [](const Reading& r) { return EntryDict(r.entry); })
      .def_prop_ro("world_size", [](const Reading& r) { return r.manifest.info.world_size; })
      .def_prop_ro("dataset_version",
                   [](const Reading& r) { return r.manifest.info.dataset_version; })
      .def("tree",
           [](const Reading& r, uint32_t rank) {
             const std::string& text = r.manifest.trees.Of(rank);
             return nb::bytes(text.data(), text.size());
           })
      .def("loader_state",
           [](const Reading& r, uint32_t rank) {
             const std::string& text = r.manifest.loader_states.Of(rank);
             return nb::bytes(text.data(), text.size());
           })
      .def("tensors", [](const Reading& r) {
        nb::list rows;
        const checkpoint::TensorTable& tensors = r.manifest.tensors;
        for (uint32_t i = 0; i < tensors.size(); ++i) {
          checkpoint::Extents shape = tensors.shape(i);
          std::string_view path = tensors.path(i);
          std::string_view dtype = checkpoint::DTypeName(tensors.dtype(i));
          rows.append(nb::make_tuple(
              nb::str(path.data(), path.size()), nb::str(dtype.data(), dtype.size()),
              nb::tuple(nb::cast(std::vector<uint64_t>(shape.begin(), shape.end())))));
        }
        return rows;
      });
}

}  // namespace

nb::dict SaveDict(const checkpoint::SaveId& id, const checkpoint::WriteReport& report,
                  uint64_t queued_ns, uint64_t publish_ns) {
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  nb::dict dict;
  dict["step"] = id.step;
  dict["epoch"] = id.epoch;
  dict["attempt"] = id.attempt;
  dict["bytes"] = report.bytes;
  dict["reused_bytes"] = report.reused_bytes;
  dict["written_bytes"] = report.written_bytes;
  dict["files"] = report.files;
  dict["queued_s"] = seconds(queued_ns);
  dict["hash_s"] = seconds(report.hash_ns);
  dict["write_s"] = seconds(report.write_ns);
  dict["sync_s"] = seconds(report.sync_ns);
  dict["publish_s"] = seconds(publish_ns);
  return dict;
}

void BindCheckpoint(nb::module_& m) {
  nb::class_<SavePlan>(m, "SavePlan", "What each save consists of.")
      .def_prop_ro("total_bytes", &SavePlan::total_bytes)
      .def("offset", &SavePlan::offset, "item"_a)
      .def("bytes", &SavePlan::bytes, "item"_a);
  m.def("make_save_plan", &MakePlan, "items"_a, "as_files"_a);
  nb::class_<Arena::Loan>(m, "ArenaLoan", "A part of the arena, until it is saved.")
      .def(
          "view",
          [](nb::handle self, uint64_t offset, uint64_t bytes) {
            return LoanView(self, nb::cast<Arena::Loan&>(self).bytes(), offset, bytes);
          },
          "offset"_a, "bytes"_a)
      .def("give_back", &Arena::Loan::Return);
  nb::class_<Saver>(m, "CheckpointSaver", "Saves in the background. Thread-safe.")
      .def(
          "borrow",
          [](Saver& saver, uint64_t bytes, std::optional<double> timeout) {
            saver.CheckProcess();
            auto loan = Released([&] { return saver.arena->Borrow(bytes, Within(timeout)); });
            return Unwrap(std::move(loan));
          },
          "bytes"_a, "timeout"_a = nb::none(), nb::keep_alive<0, 1>())
      .def("submit", &Submit, "plan"_a, "loan"_a, "addresses"_a, "info"_a)
      .def(
          "wait",
          // All levels beyond memory are one here.
          [](Saver& saver, uint64_t number, std::optional<double> timeout, const std::string&) {
            saver.CheckProcess();
            auto outcome = Released([&] { return saver.engine->Wait(number, Within(timeout)); });
            if (!outcome.ok()) Raise(outcome.status());
            Check(outcome->status);
            return OutcomeDict(*outcome);
          },
          "number"_a, "timeout"_a = nb::none(), "level"_a = "local")
      .def(
          "ended",
          [](Saver& saver, uint64_t n, const std::string&) {
            saver.CheckProcess();
            return saver.engine->Ended(n).has_value();
          },
          "number"_a, "level"_a = "local")
      .def_prop_ro("arena_bytes", [](Saver& saver) { return saver.arena->size(); });
  BindReading(m);
  nb::class_<checkpoint::PartsWriter>(m, "CheckpointParts",
                                      "A checkpoint that is written in parts.")
      .def("write", &WritePart, "boxes"_a)
      .def("publish",
           [](checkpoint::PartsWriter& writer) {
             Check(Released([&] { return writer.Publish({}); }));
             return writer.id().attempt;
           })
      .def_prop_ro("reused_bytes", &checkpoint::PartsWriter::reused_bytes);
  m.def("checkpoint_pieces", &Pieces, "shape"_a, "dtype"_a, "most_bytes"_a);
  nb::class_<Store>(m, "CheckpointStore", "A checkpoint store. Thread-safe.")
      .def_static("open", &OpenStore, "url"_a, "storage"_a, nb::rv_policy::take_ownership)
      .def_prop_ro("name", [](const Store& s) { return s.catalog.name(); })
      .def("take_over",
           [](Store& s, const std::string& owner) {
             auto epoch = Released([&] { return s.catalog.TakeOver(owner, {}); });
             return Unwrap(std::move(epoch));
           })
      .def(
          "sweep",
          [](Store& s, uint64_t epoch, double grace_s, bool dry_run) {
            auto report = Released([&] {
              return checkpoint::Sweep(&s.catalog, epoch,
                                       std::chrono::seconds(static_cast<int64_t>(grace_s)), dry_run,
                                       {});
            });
            if (!report.ok()) Raise(report.status());
            return nb::make_tuple(report->files, report->bytes);
          },
          "epoch"_a, "grace_s"_a, "dry_run"_a)
      .def("entries",
           [](Store& s) {
             auto catalog = Released([&] { return s.catalog.Read({}); });
             if (!catalog.ok()) Raise(catalog.status());
             nb::list rows;
             for (const CatalogEntry& entry : catalog->entries) rows.append(EntryDict(entry));
             return rows;
           })
      .def("read", &Read, "step"_a = nb::none(), "level"_a = "memory")
      .def("read_full_before", &ReadFullBefore, "light"_a, "level"_a = "memory")
      .def("read_attempt", &ReadAttempt, "step"_a, "epoch"_a, "attempt"_a)
      .def("remove", &Remove, "epoch"_a, "ids"_a)
      .def("restore", &RestoreInto, "reading"_a, "wanted"_a, "threads"_a, "shared_whole"_a = false)
      .def("verify", &Verify, "reading"_a, "threads"_a)
      .def("start_parts", &StartParts, "epoch"_a, "step"_a, "parts"_a, "level"_a, "tensors"_a,
           "tree"_a, "threads"_a, nb::keep_alive<0, 1>())
      .def("advise", &Advise, "mtbf_s"_a, "restart_s"_a, "step_s"_a, "interval_s"_a)
      .def("prune", &Prune, "epoch"_a = nb::none(), "keep_last"_a, "keep_every"_a, "level"_a,
           "dry_run"_a)
      .def("start_saver", &StartSaver, "epoch"_a, "level"_a, "arena_bytes"_a, "copy_threads"_a,
           "hash_threads"_a, "reuse"_a, "publish_timeout_s"_a, nb::rv_policy::take_ownership);
}

}  // namespace headrace::python
