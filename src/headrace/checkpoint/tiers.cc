#include "headrace/checkpoint/tiers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/store_access.h"
#include "headrace/checkpoint/striped_store.h"
#include "headrace/object/url_settings.h"

namespace headrace::checkpoint {
namespace {

constexpr std::string_view kFormat = "headrace-checkpoint-tiers";
constexpr uint64_t kVersion = 1;
constexpr std::string_view kFile = "tiers.json";
constexpr uint64_t kMaxBytes = 1 << 20;
constexpr int kMaxTries = 20;  // of writers that take over from each other
constexpr std::string_view kPeerScheme = "peer://";

// How long it may take to look for what nobody names at a spare tier.
constexpr std::chrono::seconds kSpareSweep(30);

Status CheckPeer(const TierSettings& settings) {
  if (!settings.peer.starts_with(kPeerScheme))
    return Error(Code::kInvalidArgument, "{} is no peer: expected peer://ADDRESS:PORT/NAME",
                 EscapeText(settings.peer));
  if (!settings.folders.empty() && settings.dest_level > Level::kPeer) return OkStatus();
  return Error(
      Code::kInvalidArgument,
      "the peer {} comes behind a folder of this node and before a destination that reaches "
      "farther (level remote); it can be the destination itself",
      EscapeText(settings.peer));
}

Context Within(const Context& ctx, std::chrono::nanoseconds patience) {
  Context within = ctx;
  within.deadline = std::min(ctx.deadline, Context::Clock::now() + patience);
  return within;
}

}  // namespace

Context ContextFor(const Tier& tier, const Context& ctx) {
  return tier.spare ? Within(ctx, kSparePatience) : ctx;
}

Level LevelOfPlace(const std::string& where) {
  if (!IsUrl(where)) return Level::kLocal;
  return where.starts_with(kPeerScheme) ? Level::kPeer : Level::kRemote;
}

std::string TierSettings::ToJson() const {
  Json names = Json::MakeArray();
  for (const std::string& folder : folders) names.Append(EscapeText(folder));
  Json json = Json::MakeObject();
  json.Set("format", kFormat)
      .Set("format_version", kVersion)
      .Set("folders", std::move(names))
      .Set("dest", EscapeText(dest))
      .Set("dest_level", LevelName(dest_level));
  if (!peer.empty()) json.Set("peer", EscapeText(peer));
  return json.Dump(2);
}

Result<TierSettings> TierSettings::FromJson(std::string_view text, std::string_view name) {
  auto parsed = Json::Parse(text);
  if (!parsed.ok()) return Error(Code::kDataLoss, "{}: {}", name, parsed.status().message());
  const Json* version = parsed->Find("format_version");
  if (version != nullptr && version->AsUint() > kVersion)
    return Error(Code::kFailedPrecondition, "{} was written by a newer program", name);
  TierSettings settings;
  const Json* format = parsed->Find("format");
  const Json* dest = parsed->Find("dest");
  const Json* level = parsed->Find("dest_level");
  const Json* folders = parsed->Find("folders");
  auto named = level == nullptr ? std::nullopt : LevelNamed(level->AsString());
  if (format == nullptr || format->AsString() != kFormat || dest == nullptr || !named ||
      folders == nullptr)
    return Error(Code::kDataLoss, "{} is damaged: remove it; the next run writes it anew", name);
  settings.dest = dest->AsString();
  settings.dest_level = *named;
  if (const Json* peer = parsed->Find("peer")) settings.peer = peer->AsString();
  for (const Json& folder : folders->items()) settings.folders.emplace_back(folder.AsString());
  return settings;
}

Result<std::string> HomeFolder(const TierSettings& settings) {
  if (!settings.folders.empty()) return settings.folders.front();
  if (!IsUrl(settings.dest)) return settings.dest;
  return Error(Code::kInvalidArgument,
               "a helper for {} needs a folder of this node to live in: name one among the tiers",
               settings.dest);
}

Result<Tiers> OpenTiers(const TierSettings& settings,
                        const std::map<std::string, std::string>& storage) {
  HR_ASSIGN_OR_RETURN(object::UrlSettings read, object::ReadUrlSettings(storage));
  return OpenTiers(settings, read);
}

Result<Tiers> OpenTiers(const TierSettings& settings, const object::UrlSettings& storage) {
  Tiers tiers;
  FileSystem* fs = PosixFileSystem();
  for (const std::string& folder : settings.folders)
    if (IsUrl(folder) || folder == settings.dest)
      return Error(Code::kInvalidArgument, "{} cannot be a tier of this node before {}",
                   EscapeText(folder), EscapeText(settings.dest));
  if (!settings.folders.empty() && settings.dest_level <= Level::kLocal)
    return Error(Code::kInvalidArgument,
                 "behind folders of this node {} must reach farther than they do: level remote",
                 EscapeText(settings.dest));
  if (!settings.peer.empty()) HR_RETURN_IF_ERROR(CheckPeer(settings));
  if (!settings.folders.empty()) {
    HR_ASSIGN_OR_RETURN(StorePlace place, StoreInFolders(fs, settings.folders));
    tiers.push_back(std::make_unique<Tier>(Level::kLocal, std::move(place),
                                           FilesInFolders(fs, settings.folders)));
  }
  if (!settings.peer.empty()) {
    HR_ASSIGN_OR_RETURN(StoreAccess peer, OpenCheckpointStore(settings.peer, storage));
    tiers.push_back(
        std::make_unique<Tier>(Level::kPeer, std::move(peer.place), std::move(peer.files), true));
  }
  HR_ASSIGN_OR_RETURN(StoreAccess access, OpenCheckpointStore(settings.dest, storage));
  tiers.push_back(std::make_unique<Tier>(settings.dest_level, std::move(access.place),
                                         std::move(access.files)));
  return tiers;
}

Status RememberTiers(FileSystem* fs, const TierSettings& settings) {
  HR_ASSIGN_OR_RETURN(std::string home, HomeFolder(settings));
  HR_RETURN_IF_ERROR(fs->MakeDirectories(home));
  const std::string path = JoinPath(home, kFile), text = settings.ToJson();
  auto there = fs->ReadWhole(path, kMaxBytes);
  if (there.ok() && *there == text) return OkStatus();
  return fs->WriteAtomically(path, AsBytes(text));
}

Result<TierSettings> RecallTiers(FileSystem* fs, const std::string& home) {
  const std::string path = JoinPath(home, kFile);
  HR_ASSIGN_OR_RETURN(std::string text, fs->ReadWhole(path, kMaxBytes));
  return TierSettings::FromJson(text, path);
}

Result<Tiers> OpenTiersAt(FileSystem* fs, const std::string& where,
                          const object::UrlSettings& storage) {
  if (!IsUrl(where)) {
    auto settings = RecallTiers(fs, where);
    if (settings.ok()) return OpenTiers(*settings, storage);
    if (settings.status().code() != Code::kNotFound) return settings.status();
  }
  TierSettings plain;
  plain.dest = where;
  plain.dest_level = LevelOfPlace(where);
  return OpenTiers(plain, storage);
}

Result<uint64_t> TakeOverTiers(const Tiers& tiers, std::string_view owner, const Context& ctx) {
  uint64_t epoch = 1;
  // The farthest first: there writers of other nodes meet.
  std::vector<uint64_t> taken(tiers.size(), 0);
  std::vector<bool> left_out(tiers.size(), false);
  for (int tries = 0; tries < kMaxTries; ++tries) {
    bool equal = true;
    for (size_t i = tiers.size(); i-- > 0;) {
      if (taken[i] == epoch || left_out[i]) continue;
      auto took = tiers[i]->store.TakeOver(owner, ContextFor(*tiers[i], ctx), epoch);
      left_out[i] = !took.ok() && tiers[i]->spare && ctx.Check().ok();
      if (left_out[i]) continue;
      HR_ASSIGN_OR_RETURN(taken[i], std::move(took));
      epoch = std::max(epoch, taken[i]);
    }
    for (size_t i = 0; i < tiers.size(); ++i) equal = equal && (left_out[i] || taken[i] == epoch);
    if (equal) return epoch;
  }
  return Error(Code::kUnavailable, "other writers take over {} all the time",
               tiers.back()->store.name());
}

Status CatchUp(Tier* tier, uint64_t epoch, std::string_view owner, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(const StoreHead head, tier->store.ReadHead(ctx));
  if (head.epoch >= epoch) return tier->store.CheckEpoch(epoch, ctx);
  HR_RETURN_IF_ERROR(tier->store.TakeOver(owner, ctx, epoch).status());
  return tier->store.CheckEpoch(epoch, ctx);
}

Status SweepTiers(const Tiers& tiers, uint64_t epoch, const Context& ctx) {
  for (const auto& tier : tiers) {
    const auto grace = tier == tiers.front() ? std::chrono::hours(0) : std::chrono::hours(24);
    const Context within = tier->spare ? Within(ctx, kSpareSweep) : ctx;
    const Status swept = Sweep(&tier->store, epoch, grace, false, within).status();
    if (!swept.ok() && !(tier->spare && ctx.Check().ok())) return swept;
  }
  return OkStatus();
}

Result<FoundCheckpoint> FindNewest(const Tiers& tiers, const CheckpointChoice& choice,
                                   const Context& ctx, std::vector<Status>* skipped) {
  std::optional<FoundCheckpoint> found;
  size_t asked = 0;
  for (size_t i = 0; i < tiers.size(); ++i) {
    // What a near tier says of a far one may be true no more.
    if (tiers[i]->level < choice.level) continue;
    ++asked;
    auto catalog = tiers[i]->store.Read(ContextFor(*tiers[i], ctx));
    if (!catalog.ok()) {
      skipped->push_back(catalog.status());
      continue;
    }
    const CatalogEntry* entry = choice.full_before ? catalog->FullBefore(*choice.full_before)
                                                   : catalog->Latest(Level::kMemory, choice.step);
    if (entry != nullptr && (!found || Newer(entry->id, found->entry.id)))
      found = FoundCheckpoint{*entry, i};
  }
  if (found) return *found;
  if (asked > 0 && skipped->size() == asked) return skipped->back();
  if (choice.full_before)
    return Error(Code::kNotFound,
                 "{} holds no full checkpoint before {}, which holds only a part of the state",
                 tiers.back()->store.name(), choice.full_before->Text());
  return Error(Code::kNotFound, "{} holds no checkpoint{}", tiers.back()->store.name(),
               choice.step ? " of step " + std::to_string(*choice.step) : "");
}

}  // namespace headrace::checkpoint
