#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "checkpoint.h"
#include "errors.h"
#include "headrace/agent/process_watch.h"
#include "headrace/checkpoint/checkpoint_helper.h"
#include "headrace/checkpoint/helper_client.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/tiered_restore.h"
#include "headrace/checkpoint/trainer_reporter.h"
#include "headrace/checkpoint/verify.h"
#include "headrace/env/console.h"
#include "headrace/env/process.h"
#include "observe.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace::python {

namespace {

using checkpoint::HelperClient;
using checkpoint::HelperSettings;
using checkpoint::KeptStatus;
using checkpoint::SavePlan;
using checkpoint::Tiers;
using checkpoint::TierSettings;
using checkpoint::TrainerReporter;

// The tiers of a store, for reading and for taking over.
struct TieredStore {
  TieredStore() = default;
  TieredStore(const TieredStore&) = delete;
  TieredStore& operator=(const TieredStore&) = delete;

  TierSettings settings;
  std::map<std::string, std::string> storage;
  std::string home;
  Tiers tiers;
};

// A checkpoint that is read, with what a helper has of it in memory.
struct TieredReading : Reading {
  std::vector<std::shared_ptr<const checkpoint::HelperMemory>> memories;
  std::vector<Status> skipped;
};

struct Helper {
  Helper() = default;
  ~Helper() {
    if (ForkGeneration() != generation) {  // another process's threads hold locks for ever
      [[maybe_unused]] auto* of_the_parent = reporter.release();
      [[maybe_unused]] auto* asked_by_it = client.release();
      return;
    }
    nb::gil_scoped_release released;  // the reporter's thread may wait for who watches the process
    watched.reset();
    reporter.reset();
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  const uint64_t generation = ForkGeneration();
  std::unique_ptr<HelperClient> client;
  std::unique_ptr<TrainerReporter> reporter;  // once it is open
  std::unique_ptr<agent::ProcessWatch::Part> watched;
  int copy_threads = 1;
};

TieredStore* OpenTieredStore(const std::vector<std::string>& folders, const std::string& dest,
                             const std::string& level,
                             const std::map<std::string, std::string>& storage,
                             const std::string& peer) {
  auto store = std::make_unique<TieredStore>();
  store->settings = {
      .folders = folders, .peer = peer, .dest = dest, .dest_level = LevelFrom(level)};
  store->storage = storage;
  store->home = Unwrap(checkpoint::HomeFolder(store->settings));
  auto tiers = Released([&] { return checkpoint::OpenTiers(store->settings, storage); });
  if (!tiers.ok()) Raise(tiers.status());
  store->tiers = *std::move(tiers);
  return store.release();
}

std::unique_ptr<TieredReading> ReadChosen(TieredStore& store,
                                          const checkpoint::CheckpointChoice& choice, uint32_t rank,
                                          std::optional<double> timeout) {
  auto found = Released([&] {
    return checkpoint::FindCheckpoint(store.tiers, store.home, rank, choice, Within(timeout));
  });
  if (!found.ok()) Raise(found.status());
  auto reading = std::make_unique<TieredReading>();
  reading->entry = std::move(found->entry);
  reading->manifest = std::move(found->manifest);
  reading->memories = std::move(found->memories);
  reading->skipped = std::move(found->skipped);
  return reading;
}

std::unique_ptr<TieredReading> ReadTiered(TieredStore& store, std::optional<uint64_t> step,
                                          const std::string& level, uint32_t rank,
                                          std::optional<double> timeout) {
  return ReadChosen(store, {.level = LevelFrom(level), .step = step}, rank, timeout);
}

std::unique_ptr<TieredReading> ReadTieredFullBefore(TieredStore& store, const Reading& light,
                                                    const std::string& level, uint32_t rank,
                                                    std::optional<double> timeout) {
  return ReadChosen(store, {.level = LevelFrom(level), .full_before = light.entry.id}, rank,
                    timeout);
}

nb::dict RestoreTiered(TieredStore& store, const TieredReading& reading,
                       const std::vector<WantedTuple>& tuples, int threads, bool shared_whole) {
  const std::vector<checkpoint::WantedBox> wanted = WantedBoxes(tuples);
  checkpoint::TieredReport report;
  checkpoint::RestoreOptions options;
  options.threads = threads;
  options.shared_whole = shared_whole;
  Check(Released([&] {
    return checkpoint::RestoreFromTiers(store.tiers, reading.memories, reading.manifest, wanted,
                                        options, {}, &report);
  }));
  nb::dict dict, places, refused;
  for (const auto& place : report.places) {
    places[place.name.c_str()] = place.bytes;
    refused[place.name.c_str()] = place.refused;
  }
  nb::list skipped;
  for (const Status& status : reading.skipped) skipped.append(status.ToString());
  dict["wanted_bytes"] = report.wanted_bytes;
  dict["read_bytes"] = report.read_bytes;
  dict["from"] = places;
  dict["refused"] = refused;
  dict["skipped"] = skipped;
  return dict;
}

// Of each tier that lists the checkpoint, by its level.
nb::dict VerifyTiered(TieredStore& store, const TieredReading& reading, int threads) {
  nb::dict places;
  for (const auto& tier : store.tiers) {
    auto report = Released([&]() -> Result<std::optional<checkpoint::VerifyReport>> {
      HR_ASSIGN_OR_RETURN(const checkpoint::Catalog catalog, tier->store.Read({}));
      if (catalog.Find(reading.entry.id) == nullptr)
        return std::optional<checkpoint::VerifyReport>();
      checkpoint::VerifyProgress progress;
      HR_ASSIGN_OR_RETURN(
          checkpoint::VerifyReport found,
          checkpoint::VerifyFiles(tier->files.get(), reading.manifest, threads, {}, &progress));
      return std::optional(std::move(found));
    });
    if (!report.ok() && tier->spare) continue;  // a peer that cannot be asked
    if (!report.ok()) Raise(report.status());
    const std::string level(checkpoint::LevelName(tier->level));
    if (*report) places[level.c_str()] = VerifyDict(**report);
  }
  return places;
}

// Of each checkpoint what the farthest tier that lists it says. A peer that cannot be asked is left
// out.
nb::list TieredEntries(TieredStore& store) {
  auto catalogs = Released([&]() -> Result<std::vector<checkpoint::CatalogEntry>> {
    std::vector<checkpoint::CatalogEntry> all;
    for (const auto& tier : store.tiers) {
      auto catalog = tier->store.Read(checkpoint::ContextFor(*tier, {}));
      if (!catalog.ok() && tier->spare) continue;
      HR_RETURN_IF_ERROR(catalog.status());
      for (auto& entry : catalog->entries) {
        entry.level = tier->level;  // what it once was elsewhere it may be no more
        auto there = std::find_if(all.begin(), all.end(),
                                  [&entry](const auto& other) { return other.id == entry.id; });
        if (there == all.end()) {
          all.push_back(entry);
        } else {
          *there = entry;
        }
      }
    }
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return checkpoint::Newer(b.id, a.id); });
    return all;
  });
  if (!catalogs.ok()) Raise(catalogs.status());
  nb::list rows;
  for (const auto& entry : *catalogs) rows.append(EntryDict(entry));
  return rows;
}

Helper* ConnectHelper(const TieredStore& store, uint32_t rank) {
  auto client = Released([&] { return HelperClient::Connect(store.home, rank); });
  if (!client.ok()) Raise(client.status());
  auto helper = std::make_unique<Helper>();
  helper->client = *std::move(client);
  return helper.release();
}

void OpenHelper(Helper& helper, const TieredStore& store, uint32_t rank, uint64_t epoch,
                uint64_t arena_bytes, int threads, bool reuse, uint64_t keep_last,
                uint64_t keep_every, uint64_t drain_limit, double publish_timeout_s,
                double linger_s) {
  HelperSettings settings;
  settings.tiers = store.settings;
  settings.storage = store.storage;
  settings.rank = rank;
  settings.epoch = epoch;
  settings.arena_bytes = arena_bytes;
  settings.threads = helper.copy_threads = threads;
  settings.reuse = reuse;
  settings.keep_last = keep_last;
  settings.keep_every = keep_every;
  settings.drain_limit = drain_limit;
  settings.publish_timeout_ms = static_cast<uint64_t>(publish_timeout_s * 1000);
  settings.linger_ms = static_cast<uint64_t>(linger_s * 1000);
  TrainerReporter::Options reports;
  reports.look = [] {
    const auto time = agent::ProcessWatch::OfThisProcess().Loop();
    return checkpoint::LoopTime{time.input_wait_ns, time.between_batches_ns};
  };
  reports.ended = [](const KeptStatus& status) {
    const auto& report = status.report;
    agent::ProcessWatch::OfThisProcess().BookSave(
        {.step = status.id.step,
         .published = status.level > checkpoint::Level::kMemory,
         .queued_ns = status.queued_ns,
         .work_ns = report.hash_ns + report.write_ns + report.sync_ns + status.publish_ns,
         .publish_ns = status.publish_ns,
         .written_bytes = report.written_bytes});
  };
  Check(Released([&]() -> Status {
    helper.watched.reset();
    HR_RETURN_IF_ERROR(helper.client->Open(settings));
    HR_ASSIGN_OR_RETURN(helper.reporter,
                        TrainerReporter::Start(helper.client.get(), std::move(reports)));
    helper.watched =
        WatchPendingSaves([reporter = helper.reporter.get()] { return reporter->pending(); });
    return OkStatus();
  }));
}

nb::dict KeptDict(const KeptStatus& status) {
  nb::dict dict = SaveDict(status.id, status.report, status.queued_ns, status.publish_ns);
  std::string_view level = checkpoint::LevelName(status.level);
  dict["level"] = nb::str(level.data(), level.size());
  dict["published"] = status.level > checkpoint::Level::kMemory;
  return dict;
}

nb::dict WaitForLevel(Helper& helper, uint64_t number, const std::string& level,
                      std::optional<double> timeout) {
  const checkpoint::Level wanted = LevelFrom(level);
  auto status = Released([&] { return helper.client->Wait(number, wanted, Within(timeout)); });
  if (!status.ok()) Raise(status.status());
  return KeptDict(*status);
}

// Whether the level is reached. Raises when it never will be.
bool HasReached(Helper& helper, uint64_t number, const std::string& level) {
  const checkpoint::Level wanted = LevelFrom(level);
  auto status = Released([&] { return helper.client->Look(number); });
  if (!status.ok()) Raise(status.status());
  if (status->level >= wanted) return true;
  Check(status->failed);
  return false;
}

uint64_t SubmitToHelper(Helper& helper, const SavePlan& plan, HelperClient::Loan& loan,
                        const Addresses& addresses, const nb::dict& info) {
  checkpoint::RankSave save = FilledSave(plan, loan.bytes(), addresses, info, helper.copy_threads);
  return Unwrap(Released([&] {
    auto number = helper.client->Submit(std::move(save), std::move(loan));
    if (number.ok() && helper.reporter) helper.reporter->Saved(*number);
    return number;
  }));
}

// Serves until no trainer needs the helper any more. For a process of its own, which SIGTERM asks
// to end as soon as its work is done.
void RunHelper(const std::string& home, uint32_t rank) {
  checkpoint::HelperOptions options;
  options.leave = CancelOnInterrupt();
  Check(Released([&]() -> Status {
    HR_ASSIGN_OR_RETURN(auto helper, checkpoint::CheckpointHelper::Start(home, rank, options));
    return helper->Run({});
  }));
}

void BindHelper(nb::module_& m) {
  nb::class_<HelperClient::Loan>(m, "HelperLoan", "A part of a helper's arena.")
      .def(
          "view",
          [](nb::handle self, uint64_t offset, uint64_t bytes) {
            return LoanView(self, nb::cast<HelperClient::Loan&>(self).bytes(), offset, bytes);
          },
          "offset"_a, "bytes"_a)
      .def("give_back", [](HelperClient::Loan& loan) { Released([&] { loan.Return(); }); });
  nb::class_<Helper>(m, "CheckpointHelper",
                     "A helper process, as its trainer sees it. Thread-safe.")
      .def_static("connect", &ConnectHelper, "store"_a, "rank"_a, nb::rv_policy::take_ownership)
      .def(
          "settle",
          [](Helper& helper, std::optional<double> timeout) {
            Check(Released([&] { return helper.client->Settle(true, Within(timeout)); }));
          },
          "timeout"_a = nb::none())
      .def("open", &OpenHelper, "store"_a, "rank"_a, "epoch"_a, "arena_bytes"_a, "threads"_a,
           "reuse"_a, "keep_last"_a, "keep_every"_a, "drain_limit"_a, "publish_timeout_s"_a,
           "linger_s"_a)
      .def(
          "borrow",
          [](Helper& helper, uint64_t bytes, std::optional<double> timeout) {
            auto loan = Released([&] { return helper.client->Borrow(bytes, Within(timeout)); });
            return Unwrap(std::move(loan));
          },
          "bytes"_a, "timeout"_a = nb::none(), nb::keep_alive<0, 1>())
      .def("submit", &SubmitToHelper, "plan"_a, "loan"_a, "addresses"_a, "info"_a)
      .def("wait_for", &WaitForLevel, "number"_a, "level"_a, "timeout"_a = nb::none())
      .def("reached", &HasReached, "number"_a, "level"_a)
      .def("report_stall",
           [](Helper& helper, double share) {
             Check(Released([&] { return helper.client->ReportStall(share); }));
           })
      .def("set_deadline",
           [](Helper& helper, double seconds) {
             Check(Released([&] { return helper.client->SetDeadline(seconds); }));
             if (helper.reporter) helper.reporter->ExpectSave(seconds);
           })
      .def("status",
           [](Helper& helper) {
             auto hello = Released([&] { return helper.client->Hello(); });
             if (!hello.ok()) Raise(hello.status());
             return hello->Dump();
           })
      .def("bye",
           [](Helper& helper) {
             Check(Released([&] {
               helper.watched.reset();
               helper.reporter.reset();  // looks after the saves while there is somebody to ask
               return helper.client->Bye();
             }));
           })
      .def_prop_ro("arena_bytes", [](Helper& helper) { return helper.client->arena_bytes(); });
  m.def("run_checkpoint_helper", &RunHelper, "home"_a, "rank"_a);
}

}  // namespace

nb::dict VerifyDict(const checkpoint::VerifyReport& report) {
  nb::list faults;
  for (const checkpoint::VerifyFault& fault : report.faults) {
    nb::dict row;
    row["file"] = fault.file;
    row["tensors"] = fault.tensors;
    row["error"] = fault.status.ToString();
    faults.append(row);
  }
  nb::dict dict;
  dict["files"] = report.files;
  dict["bytes"] = report.bytes;
  dict["faults"] = faults;
  return dict;
}

void BindCheckpointTiers(nb::module_& m) {
  [[maybe_unused]] nb::class_<TieredReading, Reading> reading(m, "TieredReading",
                                                              "A checkpoint of any tier.");
  nb::class_<TieredStore>(m, "CheckpointTiers", "The tiers of a store. Thread-safe.")
      .def_static("open", &OpenTieredStore, "folders"_a, "dest"_a, "level"_a, "storage"_a,
                  "peer"_a = "", nb::rv_policy::take_ownership)
      .def_prop_ro("name", [](const TieredStore& s) { return s.tiers.back()->store.name(); })
      .def_prop_ro("home", [](const TieredStore& s) { return s.home; })
      .def_prop_ro("levels",
                   [](const TieredStore& s) {
                     std::vector<std::string> levels{"memory"};
                     for (const auto& tier : s.tiers)
                       levels.emplace_back(checkpoint::LevelName(tier->level));
                     return levels;
                   })
      .def("take_over",
           [](TieredStore& s, const std::string& owner) {
             auto epoch = Released([&] { return checkpoint::TakeOverTiers(s.tiers, owner, {}); });
             return Unwrap(std::move(epoch));
           })
      .def(
          "sweep",
          [](TieredStore& s, uint64_t epoch) {
            Check(Released([&] { return checkpoint::SweepTiers(s.tiers, epoch, {}); }));
          },
          "epoch"_a)
      .def("entries", &TieredEntries)
      .def("read", &ReadTiered, "step"_a = nb::none(), "level"_a = "memory", "rank"_a = 0,
           "timeout"_a = nb::none())
      .def("read_full_before", &ReadTieredFullBefore, "light"_a, "level"_a = "memory", "rank"_a = 0,
           "timeout"_a = nb::none())
      .def("restore", &RestoreTiered, "reading"_a, "wanted"_a, "threads"_a,
           "shared_whole"_a = false)
      .def("verify", &VerifyTiered, "reading"_a, "threads"_a)
      .def(
          "prune_plan",
          [](TieredStore& s, size_t keep_last, uint64_t keep_every) {
            checkpoint::Tier* tier = s.tiers.back().get();
            checkpoint::RetentionRules rules;
            rules.keep_last = keep_last;
            rules.keep_every = keep_every;
            rules.level = tier->level;
            auto plan = Released([&] { return checkpoint::PlanPrune(&tier->store, rules, {}); });
            if (!plan.ok()) Raise(plan.status());
            nb::list rows;
            for (const auto& row : plan->rows) {
              nb::dict dict = EntryDict(row.entry);
              dict["keep"] = row.keep;
              dict["why"] = row.why;
              rows.append(dict);
            }
            return rows;
          },
          "keep_last"_a, "keep_every"_a);
  BindHelper(m);
}

}  // namespace headrace::python
