// A near tier in memory and a far one in a bucket in memory, both of which fail when a test says
// so, and what saves states there. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/checkpoint/publisher.h"
#include "headrace/checkpoint/testing/random_state.h"
#include "headrace/checkpoint/tiers.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::checkpoint {

struct TestPlaces {
  MemoryFileSystem memory;
  FaultyFileSystem disk{&memory};
  std::shared_ptr<object::FaultyStore> bucket =
      std::make_shared<object::FaultyStore>(object::MakeMemoryStore());
  std::shared_ptr<object::FaultyStore> peer =
      std::make_shared<object::FaultyStore>(object::MakeMemoryStore());

  // Objects of their own each time, as another process has.
  Tiers Open() {
    Tiers tiers;
    tiers.push_back(FolderTier(&disk, "/near", Level::kLocal));
    tiers.push_back(BucketTier(bucket, Level::kRemote));
    return tiers;
  }
  // The same with a peer between.
  Tiers OpenWithPeer() {
    Tiers tiers = Open();
    tiers.insert(tiers.begin() + 1, BucketTier(peer, Level::kPeer));
    tiers[1]->spare = true;
    return tiers;
  }
  // From now on the peer cannot be reached.
  void LosePeer() const {
    for (size_t operation = 0; operation < object::kNumStoreOperations; ++operation)
      peer->FailNth(static_cast<object::StoreOperation>(operation), 1,
                    Status(Code::kUnavailable, "the peer is gone"), 1'000'000'000);
  }
  static std::unique_ptr<Tier> BucketTier(const std::shared_ptr<object::ObjectStore>& store,
                                          Level level) {
    auto place = StoreInBucket(store, "run");
    EXPECT_TRUE(place.ok()) << place.status().ToString();
    return std::make_unique<Tier>(level, *std::move(place), FilesInBucket(store, "run/"));
  }
  static std::unique_ptr<Tier> FolderTier(FileSystem* fs, const std::string& folder, Level level) {
    auto place = StoreInFolder(fs, folder);
    EXPECT_TRUE(place.ok()) << place.status().ToString();
    return std::make_unique<Tier>(level, *std::move(place), FilesInFolder(fs, folder));
  }
};

// A state of a few tensors, some of which differ from one `version` to the next.
inline TestState StateOf(uint64_t version, uint64_t largest = 24) {
  TestState state = RandomState(4, 1, largest, 7);
  std::mt19937_64 random(version);
  TestTensor& changed = state.tensors[version % state.tensors.size()];
  changed.bytes = RandomBytes(changed.bytes.size(), &random);
  return state;
}

// Writes and publishes a state at a tier, as one rank.
inline Status SaveAt(Tier* tier, uint64_t epoch, const TestState& state, uint64_t step) {
  HR_ASSIGN_OR_RETURN(Catalog catalog, tier->store.Read({}));
  std::optional<Manifest> before;
  if (!catalog.entries.empty()) {
    HR_ASSIGN_OR_RETURN(before, tier->store.ReadManifest(catalog.entries.back(), {}));
  }
  TestRankSave made = SaveOf(state, 0, 1, {step, epoch, 1});
  WriteReport report;
  HR_RETURN_IF_ERROR(RankWriter(tier->files.get(), {.max_file_bytes = 2000, .threads = 1})
                         .Write(made.save, before ? &*before : nullptr, {}, &report)
                         .status());
  return PublishRanks(&tier->store, made.save.info, tier->level, {}).status();
}

// Reads a published checkpoint back from one tier and compares it.
inline Status CompareAt(Tier* tier, const CatalogEntry& entry, const TestState& state) {
  HR_ASSIGN_OR_RETURN(Manifest manifest, tier->store.ReadManifest(entry, {}));
  DataFiles* place = tier->files.get();
  RestoreReport report;
  HR_ASSIGN_OR_RETURN(size_t wrong, CountWrong(state, {&place, 1}, manifest, entry.id.step, &report,
                                               {.threads = 1}));
  if (wrong > 0) return Error(Code::kDataLoss, "{}: {} tensors differ", entry.id.Text(), wrong);
  return OkStatus();
}
// All that the tier lists, by step.
inline Status CompareAll(Tier* tier, const std::map<uint64_t, TestState>& states) {
  HR_ASSIGN_OR_RETURN(Catalog catalog, tier->store.Read({}));
  for (const CatalogEntry& entry : catalog.entries)
    HR_RETURN_IF_ERROR(CompareAt(tier, entry, states.at(entry.id.step)));
  return OkStatus();
}

}  // namespace headrace::checkpoint
