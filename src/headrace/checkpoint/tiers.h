// The durable tiers of one checkpoint store, from the nearest to the farthest: the node's folders
// (level local), perhaps another node (peer), and the destination (remote), or the destination
// alone. Each is a whole store, with a head of its own, and their epochs are kept equal, so that
// "newest" means the same everywhere. A Tier is thread-safe; Tiers has one owner.
//
// A peer before the destination is a spare: where it cannot be asked, things go on without it, and
// whoever brings something there later takes it over then. No call waits for it longer than
// kSparePatience.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/object/url_settings.h"

namespace headrace::checkpoint {

struct Tier {
  Level level = Level::kLocal;
  CatalogStore store;
  std::unique_ptr<DataFiles> files;
  bool spare = false;

  Tier(Level durable, StorePlace place, std::unique_ptr<DataFiles> data, bool is_spare = false)
      : level(durable), store(std::move(place)), files(std::move(data)), spare(is_spare) {}
};
using Tiers = std::vector<std::unique_ptr<Tier>>;

inline constexpr std::chrono::seconds kSparePatience{10};
// The same context; of a spare tier for no longer than its patience.
Context ContextFor(const Tier& tier, const Context& ctx);

struct TierSettings {
  std::vector<std::string> folders;  // of this node, striped; empty: the destination alone
  std::string peer;                  // peer://ADDRESS:PORT/NAME; empty: none
  std::string dest;                  // a folder or URL
  Level dest_level = Level::kRemote;

  // What the first folder remembers, so that tools find the rest: `tiers.json`.
  std::string ToJson() const;
  // kDataLoss, kFailedPrecondition (a newer program's). `name` is for messages.
  static Result<TierSettings> FromJson(std::string_view text, std::string_view name);

  bool operator==(const TierSettings&) const = default;
};

// How safe a place is that somebody names: a folder is local, a peer is one, other URLs are remote.
Level LevelOfPlace(const std::string& where);

// The folder where a helper of this store listens and locks: the first of the node's, or the
// destination when that is a folder. kInvalidArgument when neither is one.
Result<std::string> HomeFolder(const TierSettings& settings);

// Opens all. Failures are those of OpenCheckpointStore. kInvalidArgument: a folder of the node is
// also the destination, or the peer is none or does not lie between folders and a destination.
Result<Tiers> OpenTiers(const TierSettings& settings,
                        const std::map<std::string, std::string>& storage);
Result<Tiers> OpenTiers(const TierSettings& settings, const object::UrlSettings& storage);
// Writes and reads tiers.json in the home folder. kNotFound when none was written.
Status RememberTiers(FileSystem* fs, const TierSettings& settings);
Result<TierSettings> RecallTiers(FileSystem* fs, const std::string& home);

// Opens the store at `where`: with all its tiers when it is a home folder, else alone, and then of
// LevelOfPlace. Failures are those of OpenTiers and of
// RecallTiers, but kNotFound.
Result<Tiers> OpenTiersAt(FileSystem* fs, const std::string& where,
                          const object::UrlSettings& storage);

// Takes over every tier, and returns the epoch that all have now, but for spares that cannot be
// asked.
Result<uint64_t> TakeOverTiers(const Tiers& tiers, std::string_view owner, const Context& ctx);
// Takes a tier over for a writer who has this epoch elsewhere, where the tier has not heard of it
// yet. kFailedPrecondition: it has heard of a later one.
Status CatchUp(Tier* tier, uint64_t epoch, std::string_view owner, const Context& ctx);

// Removes what no checkpoint names. Only right after taking over, before anything is written with
// the new epoch: until then nobody can publish. At far tiers what is younger than a day stays: a
// drain may have copied it and not yet published.
Status SweepTiers(const Tiers& tiers, uint64_t epoch, const Context& ctx);

// Where a checkpoint was found.
struct FoundCheckpoint {
  CatalogEntry entry;
  size_t tier = 0;  // the nearest that lists it
};
// Which checkpoint is wanted: the newest that
struct CheckpointChoice {
  Level level = Level::kMemory;            // is safe at least at this level,
  std::optional<uint64_t> step = {};       // is of this step,
  std::optional<SaveId> full_before = {};  // and is a full one, older than this
};
// Looks at all tiers that give the level. One that cannot be read is left out, and told in
// `skipped`.
//   kNotFound  there is none.
//   others     no tier could be read: those of the last one.
Result<FoundCheckpoint> FindNewest(const Tiers& tiers, const CheckpointChoice& choice,
                                   const Context& ctx, std::vector<Status>* skipped);

}  // namespace headrace::checkpoint
