#include "headrace/checkpoint/publisher.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "headrace/checkpoint/assemble.h"
#include "headrace/object/pause.h"

namespace headrace::checkpoint {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstWait{5}, kLongestWait{500};

// kNotFound while the rank has not handed it in.
Result<RankManifest> ReadRank(CatalogStore* store, const SaveId& id, uint32_t rank,
                              const Context& ctx) {
  const StorePlace& place = store->place();
  const std::string key = place.prefix + RankManifestKey(id, rank);
  HR_ASSIGN_OR_RETURN(object::ObjectInfo info, place.store->Head(key, ctx));
  std::string bytes(info.size_bytes, '\0');
  MutableBytes out(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
  HR_RETURN_IF_ERROR(
      place.store->Get({.key = key, .offset = 0, .out = out, .if_match = {}}, ctx).status());
  return DecodeRankManifest(AsBytes(bytes), store->name() + "/" + key);
}

std::string RankList(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < 20; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return ranks.size() > 20 ? text + ", ..." : text;
}

Status LateError(const SaveInfo& info, const std::vector<uint32_t>& missing) {
  return Error(Code::kDeadlineExceeded,
               "{}: {} of {} ranks have not finished writing, so the checkpoint is not published "
               "(the one before stays the newest): ranks {}",
               info.id.Text(), missing.size(), info.world_size, RankList(missing));
}

Status Collect(CatalogStore* store, const SaveInfo& info, const Context& ctx,
               Assembler* assembler) {
  milliseconds wait = kFirstWait;
  for (;;) {
    size_t before = assembler->MissingRanks().size();
    for (uint32_t rank : assembler->MissingRanks()) {
      auto manifest = ReadRank(store, info.id, rank, ctx);
      if (!manifest.ok() && manifest.status().code() == Code::kNotFound) continue;
      if (!manifest.ok() && manifest.status().code() == Code::kDeadlineExceeded) break;
      HR_RETURN_IF_ERROR(manifest.status());
      HR_RETURN_IF_ERROR(assembler->Add(*manifest));
    }
    std::vector<uint32_t> missing = assembler->MissingRanks();
    if (missing.empty()) return OkStatus();
    if (missing.size() < before) wait = kFirstWait;
    Status paused = object::PauseFor(wait, ctx);
    if (paused.code() == Code::kDeadlineExceeded) return LateError(info, missing);
    HR_RETURN_IF_ERROR(paused);
    // Who was shut out holds up nobody by waiting for ranks that may be dead.
    Status taken = store->CheckEpoch(info.id.epoch, ctx);
    if (taken.code() == Code::kFailedPrecondition) return taken;
    wait = std::min(wait * 2, kLongestWait);
  }
}

}  // namespace

Status WaitForPublish(CatalogStore* store, const SaveInfo& info, const Context& ctx) {
  milliseconds wait = kFirstWait;
  for (;;) {
    HR_ASSIGN_OR_RETURN(Catalog catalog, store->Read(ctx));
    if (catalog.Find(info.id) != nullptr) return OkStatus();
    HR_RETURN_IF_ERROR(store->CheckEpoch(info.id.epoch, ctx));
    Status paused = object::PauseFor(wait, ctx);
    if (paused.code() == Code::kDeadlineExceeded)
      return Error(
          Code::kDeadlineExceeded,
          "{}: this rank has written its part, but rank 0 has not published the checkpoint "
          "in time: it died, is slow, or waits for yet another rank",
          info.id.Text());
    HR_RETURN_IF_ERROR(paused);
    wait = std::min(wait * 2, kLongestWait);
  }
}

Result<Manifest> PublishRanks(CatalogStore* store, const SaveInfo& info, Level level,
                              const Context& ctx) {
  Assembler assembler(info.id, info.world_size);
  HR_RETURN_IF_ERROR(Collect(store, info, ctx, &assembler));
  HR_ASSIGN_OR_RETURN(Manifest manifest, assembler.Finish());
  manifest.info.stall_ns = info.stall_ns;
  manifest.info.restore_ns = info.restore_ns;
  HR_RETURN_IF_ERROR(store->Publish(info.id.epoch, manifest, level, ctx));
  // What is left of the attempt nobody needs; what cannot be removed now the sweep will.
  for (uint32_t rank = 0; rank < info.world_size; ++rank)
    (void)store->place().store->Delete(store->place().prefix + RankManifestKey(info.id, rank), ctx);
  return manifest;
}

}  // namespace headrace::checkpoint
