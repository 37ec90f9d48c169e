// A run in a folder: takes over, saves states, prunes, sweeps, exports, imports, and looks whether
// all that is published is what was saved. For tests.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/checkpoint/export.h"
#include "headrace/checkpoint/import.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/publisher.h"
#include "headrace/checkpoint/safetensors.h"
#include "headrace/checkpoint/save_keeper.h"
#include "headrace/checkpoint/testing/random_state.h"
#include "headrace/checkpoint/tiers.h"

namespace headrace::checkpoint {

// What each step must hold.
using StatesByStep = std::map<uint64_t, TestState>;

class TestRun {
 public:
  // `fs` must outlive it.
  static Result<TestRun> Start(FileSystem* fs, const std::string& folder = "/a/ckpt") {
    HR_ASSIGN_OR_RETURN(StorePlace place, StoreInFolder(fs, folder));
    TestRun run(fs, folder, std::move(place));
    HR_ASSIGN_OR_RETURN(run.epoch_, run.store_.TakeOver("test", {}));
    HR_RETURN_IF_ERROR(run.SweepAll());
    return run;
  }

  CatalogStore* store() { return &store_; }
  DataFiles* files() { return files_.get(); }
  uint64_t epoch() const { return epoch_; }

  // By `world` ranks; what is unchanged since the newest is not written again.
  Status Save(const TestState& state, uint64_t step, uint32_t world = 2) {
    HR_ASSIGN_OR_RETURN(const SaveInfo info, Write(state, step, world));
    return PublishRanks(&store_, info, Level::kLocal, {}).status();
  }
  // The same without publishing it.
  Result<SaveInfo> Write(const TestState& state, uint64_t step, uint32_t world = 2) {
    SaveInfo info;
    HR_ASSIGN_OR_RETURN(std::optional<Manifest> before, Newest());
    for (uint32_t rank = 0; rank < world; ++rank) {
      TestRankSave made = SaveOf(state, rank, world, {step, epoch_, 1});
      info = made.save.info;
      WriteReport report;
      HR_RETURN_IF_ERROR(RankWriter(files_.get(), {.max_file_bytes = 2000, .threads = 1})
                             .Write(made.save, before ? &*before : nullptr, {}, &report)
                             .status());
    }
    return info;
  }

  // By one rank, through memory, as a helper does it.
  Status Keep(const TestState& state, uint64_t step) {
    HR_ASSIGN_OR_RETURN(StorePlace place, StoreInFolder(fs_, folder_));
    Tiers tiers;
    tiers.push_back(
        std::make_unique<Tier>(Level::kLocal, std::move(place), FilesInFolder(fs_, folder_)));
    KeeperOptions options;
    options.write.max_file_bytes = 2000;
    options.write.threads = 1;
    HR_ASSIGN_OR_RETURN(auto keeper, SaveKeeper::Start(std::move(tiers), options));
    HR_RETURN_IF_ERROR(keeper->MakeArena(BytesOf(state), 1));
    HR_RETURN_IF_ERROR(keeper->Begin(epoch_));
    HR_ASSIGN_OR_RETURN(Arena::Loan loan, keeper->Borrow(BytesOf(state)));
    RankSave save = SaveInLoan(state, 0, 1, {step, epoch_, 1}, loan.bytes());
    HR_ASSIGN_OR_RETURN(const uint64_t number,
                        keeper->Submit(std::move(save), std::move(loan), keeper->arena()));
    keeper->Finish();
    HR_ASSIGN_OR_RETURN(const KeptStatus status, keeper->Look(number));
    return status.failed;
  }

  // All that nothing names, however young.
  Status SweepAll() {
    return Sweep(&store_, epoch_, std::chrono::seconds(-3600), false, {}).status();
  }

  Status Prune(size_t keep_last) {
    HR_ASSIGN_OR_RETURN(PrunePlan plan, PlanPrune(&store_, {.keep_last = keep_last}, {}));
    return checkpoint::Prune(&store_, epoch_, plan, {});
  }

  // The newest one, to a file.
  Status Export(const std::string& path) {
    HR_ASSIGN_OR_RETURN(const std::optional<Manifest> newest, Newest());
    if (!newest) return Status(Code::kNotFound, "nothing was saved");
    ExportProgress progress;
    const ExportOptions options{.below = "", .memory_bytes = 500, .threads = 1};
    return ExportSafetensors(files_.get(), *newest, options, fs_, path, {}, &progress).status();
  }

  Result<ImportReport> Import(const std::string& path, uint64_t step, uint64_t memory_bytes = 500) {
    HR_ASSIGN_OR_RETURN(const ImportSource source, FindImportSource(fs_, path));
    ImportProgress progress;
    ImportOptions options;
    options.step = step;
    options.memory_bytes = memory_bytes;
    options.threads = 1;
    return ImportSafetensors(&store_, files_.get(), epoch_, fs_, source, options, {}, &progress);
  }

  Result<std::optional<Manifest>> Newest() {
    HR_ASSIGN_OR_RETURN(Catalog catalog, store_.Read({}));
    std::optional<Manifest> newest;
    if (!catalog.entries.empty()) {
      HR_ASSIGN_OR_RETURN(newest, store_.ReadManifest(catalog.entries.back(), {}));
    }
    return newest;
  }

  // The step of the newest one, after all on the list were read and compared. 0: there is none.
  Result<uint64_t> Check(const StatesByStep& states) {
    HR_ASSIGN_OR_RETURN(Catalog catalog, store_.Read({}));
    DataFiles* place = files_.get();
    for (const CatalogEntry& entry : catalog.entries) {
      HR_ASSIGN_OR_RETURN(Manifest manifest, store_.ReadManifest(entry, {}));
      RestoreReport report;
      HR_ASSIGN_OR_RETURN(size_t wrong, CountWrong(states.at(entry.id.step), {&place, 1}, manifest,
                                                   entry.id.step, &report, {.threads = 1}));
      if (wrong > 0) return Error(Code::kDataLoss, "{} differs", entry.id.Text());
    }
    return catalog.entries.empty() ? uint64_t{0} : catalog.entries.back().id.step;
  }

 private:
  TestRun(FileSystem* fs, std::string folder, StorePlace place)
      : fs_(fs),
        folder_(std::move(folder)),
        store_(std::move(place)),
        files_(FilesInFolder(fs, folder_)) {}

  FileSystem* fs_;
  std::string folder_;
  CatalogStore store_;
  std::unique_ptr<DataFiles> files_;
  uint64_t epoch_ = 0;
};

// Writes the tensors as another tool would, named by their paths without "/model/". Durable.
inline Status WriteForeignFile(FileSystem* fs, const std::string& path,
                               const std::vector<TestTensor>& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const TestTensor& tensor : tensors)
    specs.push_back({std::string_view(tensor.path).substr(7), tensor.dtype, tensor.shape});
  HR_ASSIGN_OR_RETURN(const WrittenHeader header, WriteSafetensorsHeader(specs));
  HR_ASSIGN_OR_RETURN(auto file, fs->Create(path));
  HR_RETURN_IF_ERROR(file->Append(AsBytes(header.bytes)));
  for (const TestTensor& tensor : tensors) HR_RETURN_IF_ERROR(file->Append(tensor.bytes));
  HR_RETURN_IF_ERROR(file->Sync());
  HR_RETURN_IF_ERROR(file->Close());
  return fs->SyncDirectory(std::string(DirectoryName(path)));
}

// A state whose tensors are all in "/model", each held by one rank.
inline TestState ModelState(size_t tensors, uint64_t largest, uint64_t seed) {
  std::mt19937_64 random(seed);
  TestState state;
  for (size_t i = 0; i < tensors; ++i) {
    state.tensors.push_back(RandomTensor("/model/layer." + std::to_string(i), largest, &random));
    state.cuts.push_back({{Box::Whole(state.tensors.back().shape), 0}});
  }
  return state;
}

}  // namespace headrace::checkpoint
