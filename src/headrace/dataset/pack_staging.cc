#include "headrace/dataset/pack_staging.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/fault_point.h"
#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/pack_layout.h"

namespace headrace::dataset {
namespace {

constexpr std::string_view kLockName = "lock";
constexpr std::string_view kPlanName = "plan.json";
constexpr std::string_view kDoneSuffix = ".done";
constexpr uint64_t kRecordLimit = uint64_t{1} << 30;

Status OkIfNotFound(Status status) {
  return status.code() == Code::kNotFound ? OkStatus() : std::move(status);
}

// CRC32C of a whole file, which must have `size_bytes`.
Result<uint32_t> FileCrc32c(const RandomAccessFile& file, const Context& ctx) {
  AlignedBuffer buffer;
  constexpr size_t kPart = size_t{1} << 20;
  if (!buffer.Reserve(kPart)) return Status(Code::kResourceExhausted, "no memory for a buffer");
  uint32_t crc = 0;
  for (uint64_t offset = 0; offset < file.size(); offset += kPart) {
    HR_RETURN_IF_ERROR(ctx.Check());
    MutableBytes part(buffer.data(), std::min<uint64_t>(kPart, file.size() - offset));
    HR_RETURN_IF_ERROR(file.ReadAt(offset, part, ctx));
    crc = Crc32c(part, crc);
  }
  return crc;
}

}  // namespace

PackStaging::PackStaging(FileSystem* fs, std::string destination, bool overwrite, bool sync)
    : fs_(fs),
      destination_(std::move(destination)),
      staging_(JoinPath(destination_, kStagingFolder)),
      overwrite_(overwrite),
      sync_(sync) {}

PackStaging::~PackStaging() = default;

Result<std::unique_ptr<PackStaging>> PackStaging::Open(FileSystem* fs,
                                                       const std::string& destination,
                                                       bool overwrite, bool sync) {
  std::unique_ptr<PackStaging> staging(new PackStaging(fs, destination, overwrite, sync));
  HR_RETURN_IF_ERROR(staging->CheckFolder());
  // With remains of another pack, only the plan under the lock can tell what they are.
  if (!fs->Exists(staging->staging_)) HR_RETURN_IF_ERROR(staging->CheckFree());
  HR_RETURN_IF_ERROR(staging->MakeDestination());
  auto lock = fs->Lock(JoinPath(staging->staging_, kLockName));
  if (!lock.ok()) {
    if (lock.status().code() == Code::kFailedPrecondition)
      return Error(Code::kUnavailable,
                   "another pack is writing to '{}'; wait for it to end, or choose another folder",
                   EscapeText(destination));
    staging->RemoveEmptyFolders();
    return std::move(lock).status();
  }
  staging->lock_ = std::move(lock).value();
  Status checked = staging->CheckFolder();  // again, now that nobody else can change it
  if (checked.ok()) checked = staging->ReadPlan();
  if (checked.ok() && !staging->plan_) checked = staging->CheckFree();
  if (checked.ok()) return staging;
  (void)staging->Abandon(true);
  return checked;
}

Status PackStaging::CheckFolder() {
  auto info = fs_->Stat(destination_);
  if (!info.ok()) return OkIfNotFound(std::move(info).status());
  if (info->kind != FileKind::kDirectory)
    return Error(Code::kAlreadyExists, "'{}' is a file; name a folder to pack into",
                 EscapeText(destination_));
  return ReadCurrentManifest();
}

Status PackStaging::CheckFree() {
  if (current_ && !overwrite_)
    return Error(Code::kAlreadyExists,
                 "'{}' holds a data set already; choose another folder, or give --overwrite to "
                 "replace it",
                 EscapeText(destination_));
  if (current_ && current_->kind != "tar")
    return Error(Code::kAlreadyExists,
                 "'{}' is a folder of source files with an index, which a pack never replaces; "
                 "choose another folder",
                 EscapeText(destination_));
  if (current_) return OkStatus();
  auto entries = fs_->List(destination_);
  if (!entries.ok()) return OkIfNotFound(std::move(entries).status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name == kStagingFolder) continue;
    return Error(
        Code::kAlreadyExists,
        "'{}' holds files that are no data set, such as '{}'; choose a new or empty folder",
        EscapeText(destination_), EscapeText(entry.name));
  }
  return OkStatus();
}

Status PackStaging::MakeDestination() {
  for (std::string path = destination_; !fs_->Exists(path);) {
    made_.insert(made_.begin(), path);
    std::string above(DirectoryName(path));
    if (above == path || above.empty()) break;
    path = above;
  }
  Status made = fs_->MakeDirectories(staging_);
  for (const std::string& path : made_) {
    if (made.ok() && sync_) made = fs_->SyncDirectory(std::string(DirectoryName(path)));
  }
  if (!made.ok()) RemoveEmptyFolders();
  return made;
}

Status PackStaging::ReadCurrentManifest() {
  std::string path = JoinPath(destination_, kManifestName);
  current_.reset();
  auto text = fs_->ReadWhole(path, kRecordLimit);
  if (!text.ok()) return OkIfNotFound(std::move(text).status());
  auto manifest = Manifest::FromJson(*text, path);
  if (!manifest.ok())
    return std::move(manifest).status().Prefix("cannot replace the data set there");
  current_ = std::move(manifest).value();
  return OkStatus();
}

// A plan that cannot be read is as good as none: what it staged is written again.
Status PackStaging::ReadPlan() {
  plan_.reset();
  auto text = fs_->ReadWhole(JoinPath(staging_, kPlanName), kRecordLimit);
  if (!text.ok()) return OkIfNotFound(std::move(text).status());
  auto json = Json::Parse(*text);
  if (!json.ok()) return OkStatus();
  auto fingerprint = json->GetString("fingerprint");
  auto num_shards = json->GetUint("shards");
  auto generation = json->GetUint("generation");
  const Json* replaces = json->Find("replaces");
  if (!fingerprint.ok() || !num_shards.ok() || !generation.ok() || !replaces) return OkStatus();
  Plan plan{*fingerprint, *num_shards, static_cast<unsigned>(*generation), {}};
  for (const Json& name : replaces->items()) plan.replaces.emplace_back(name.AsString());
  plan_ = std::move(plan);
  return OkStatus();
}

// Replaces `path` in one step; without `sync_` one that no wait for the disk is part of.
Status PackStaging::WriteRecord(const std::string& path, const std::string& content) {
  if (sync_) return fs_->WriteAtomically(path, AsBytes(content));
  std::string name = fmt::format("{}record-{}", kTemporaryPrefix, BaseName(path));
  std::string temporary = JoinPath(DirectoryName(path), name);
  HR_ASSIGN_OR_RETURN(auto file, fs_->Create(temporary));
  Status written = file->Append(AsBytes(content));
  if (written.ok()) written = file->Close();
  if (written.ok()) written = fs_->Rename(temporary, path);
  if (!written.ok()) (void)fs_->Remove(temporary);
  return written;
}

Status PackStaging::WritePlan() {
  Json replaces = Json::MakeArray();
  for (const std::string& name : plan_->replaces) replaces.Append(name);
  Json json = Json::MakeObject()
                  .Set("fingerprint", plan_->fingerprint)
                  .Set("shards", plan_->num_shards)
                  .Set("generation", plan_->generation)
                  .Set("replaces", std::move(replaces));
  return WriteRecord(JoinPath(staging_, kPlanName), json.Dump(1));
}

bool PackStaging::CurrentNames(const std::string& file) const {
  if (!current_) return false;
  return std::any_of(
      current_->shards.begin(), current_->shards.end(),
      [&](const ManifestShard& shard) { return shard.name == file || shard.index == file; });
}

// What an atomic write of the manifest has left that was killed in the middle.
Status PackStaging::RemoveTemporaries() {
  for (const std::string& folder : {destination_, staging_}) {
    HR_ASSIGN_OR_RETURN(auto entries, fs_->List(folder));
    for (const DirectoryEntry& entry : entries) {
      if (entry.name.compare(0, kTemporaryPrefix.size(), kTemporaryPrefix) == 0)
        HR_RETURN_IF_ERROR(fs_->Remove(JoinPath(folder, entry.name)));
    }
  }
  return OkStatus();
}

Result<PackStaging::Found> PackStaging::Begin(const std::string& fingerprint, uint64_t num_shards) {
  if (plan_) HR_RETURN_IF_ERROR(RemoveTemporaries());
  if (plan_ && plan_->num_shards > 0 && CurrentNames(ShardName(0))) {
    bool same = plan_->fingerprint == fingerprint;
    Status removed = RemoveReplacedFiles();
    if (same) {
      if (removed.ok()) (void)RemoveStaging();
      return Found::kPublished;
    }
    HR_RETURN_IF_ERROR(fs_->Remove(JoinPath(staging_, kPlanName)));
    plan_.reset();
  } else if (plan_ && plan_->fingerprint == fingerprint && plan_->num_shards == num_shards) {
    return Found::kUnfinished;
  }
  if (plan_) RemovePublishedFiles();
  plan_.reset();
  HR_ASSIGN_OR_RETURN(auto entries, fs_->List(staging_));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name != kLockName)
      HR_RETURN_IF_ERROR(fs_->RemoveTree(JoinPath(staging_, entry.name)));
  }
  HR_RETURN_IF_ERROR(CheckFree());
  plan_ = Plan{fingerprint, num_shards, 0, {}};
  if (CurrentNames(ShardName(0))) plan_->generation = 1;
  if (current_) {
    for (const ManifestShard& shard : current_->shards) {
      plan_->replaces.push_back(shard.name);
      plan_->replaces.push_back(shard.index);
      plan_->replaces.push_back(shard.name + std::string(kChecksumSuffix));
    }
  }
  HR_RETURN_IF_ERROR(WritePlan());
  return Found::kNothing;
}

std::string PackStaging::ShardName(uint64_t shard) const {
  return ShardFileName(plan_->generation, shard);
}
std::string PackStaging::TarPath(uint64_t shard) const {
  return JoinPath(staging_, ShardName(shard));
}
std::string PackStaging::IndexPath(uint64_t shard) const {
  return TarPath(shard) + std::string(kIndexSuffix);
}
std::string PackStaging::DonePath(uint64_t shard) const {
  return TarPath(shard) + std::string(kDoneSuffix);
}

std::optional<PackedShard> PackStaging::Reuse(uint64_t shard, const Context& ctx) {
  auto text = fs_->ReadWhole(DonePath(shard), kRecordLimit);
  if (!text.ok()) return std::nullopt;
  auto json = Json::Parse(*text);
  if (!json.ok()) return std::nullopt;
  auto packed = PackedShard::FromJson(*json);
  if (!packed.ok()) return std::nullopt;
  // A pack that was broken off in step 3 has moved some of the files already.
  std::string name = ShardName(shard), index_name = name + std::string(kIndexSuffix);
  std::string tar_path = TarPath(shard), index_path = IndexPath(shard);
  if (!fs_->Exists(tar_path)) tar_path = JoinPath(destination_, name);
  if (!fs_->Exists(index_path)) index_path = JoinPath(destination_, index_name);
  auto tar = fs_->OpenForRead(tar_path);
  if (!tar.ok() || (*tar)->size() != packed->bytes) return std::nullopt;
  auto crc = FileCrc32c(**tar, ctx);
  if (!crc.ok() || *crc != packed->crc32c) return std::nullopt;
  auto index_bytes = fs_->ReadWhole(index_path, kRecordLimit);
  if (!index_bytes.ok()) return std::nullopt;
  auto index = IndexReader::FromBytes(std::move(index_bytes).value(), index_path);
  if (!index.ok() || (*index)->header_crc32c() != packed->index_header_crc32c ||
      !(*index)->VerifyAll().ok())
    return std::nullopt;
  if (!packed->Describe(**index).ok()) return std::nullopt;
  return std::move(packed).value();
}

Status PackStaging::Finish(uint64_t shard, const PackedShard& packed) {
  HR_RETURN_IF_ERROR(FaultPoint("pack.shard.before_record"));
  return WriteRecord(DonePath(shard), packed.ToJson().Dump(1));
}

// A file that is not here any more was moved by the pack that this one goes on from.
Status PackStaging::MoveIn(const std::string& from, const std::string& to) {
  Status moved = fs_->Rename(from, to);
  if (moved.code() != Code::kNotFound) return moved;
  return fs_->Stat(to).ok() ? OkStatus() : std::move(moved);
}

Status PackStaging::Publish(const std::vector<PackedShard>& shards, Manifest* manifest) {
  manifest->shards.clear();
  HR_RETURN_IF_ERROR(FaultPoint("pack.publish.begin"));
  for (uint64_t i = 0; i < shards.size(); ++i) {
    ManifestShard& entry = manifest->shards.emplace_back();
    entry.name = ShardName(i);
    entry.index = entry.name + std::string(kIndexSuffix);
    entry.samples = shards[i].samples;
    entry.bytes = shards[i].bytes;
    entry.crc32c = shards[i].crc32c;
    entry.index_header_crc32c = shards[i].index_header_crc32c;
    entry.samples_crc32c = shards[i].samples_crc32c;
    HR_RETURN_IF_ERROR(MoveIn(IndexPath(i), JoinPath(destination_, entry.index)));
    HR_RETURN_IF_ERROR(FaultPoint("pack.publish.between_renames"));
    HR_RETURN_IF_ERROR(MoveIn(TarPath(i), JoinPath(destination_, entry.name)));
  }
  if (sync_) HR_RETURN_IF_ERROR(fs_->SyncDirectory(destination_));
  HR_RETURN_IF_ERROR(FaultPoint("pack.publish.before_manifest"));
  std::string path = JoinPath(destination_, kManifestName);
  Status written = WriteRecord(path, manifest->ToJson());
  if (!written.ok()) {
    // Its last step, the sync of the folder, can fail after the new version became visible.
    if (ReadCurrentManifest().ok() && CurrentNames(ShardName(0)))
      return std::move(written).Prefix("the data set is in place but may not survive a power cut");
    return written;
  }
  current_ = *manifest;
  HR_RETURN_IF_ERROR(FaultPoint("pack.publish.after_manifest"));
  // What cannot be removed now fails nothing: the plan stays, and the next pack tries again.
  if (RemoveReplacedFiles().ok()) (void)RemoveStaging();
  return OkStatus();
}

Status PackStaging::RemoveReplacedFiles() {
  Status first;
  for (const std::string& name : plan_->replaces) {
    if (CurrentNames(name)) continue;
    Status removed = OkIfNotFound(fs_->Remove(JoinPath(destination_, name)));
    if (first.ok()) first = std::move(removed);
  }
  return first;
}

void PackStaging::RemovePublishedFiles() {
  for (uint64_t i = 0; i < plan_->num_shards; ++i) {
    std::string name = ShardName(i), index = name + std::string(kIndexSuffix);
    if (!CurrentNames(name)) (void)fs_->Remove(JoinPath(destination_, name));
    if (!CurrentNames(index)) (void)fs_->Remove(JoinPath(destination_, index));
  }
}

// The plan goes last: as long as it is there, the next pack knows what to tidy.
Status PackStaging::RemoveStaging() {
  auto entries = fs_->List(staging_);
  if (!entries.ok()) return OkIfNotFound(std::move(entries).status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name == kPlanName || entry.name == kLockName) continue;
    HR_RETURN_IF_ERROR(fs_->RemoveTree(JoinPath(staging_, entry.name)));
  }
  plan_.reset();
  HR_RETURN_IF_ERROR(OkIfNotFound(fs_->Remove(JoinPath(staging_, kPlanName))));
  return fs_->RemoveTree(staging_);
}

// Takes back what step 3 has moved, so that the destination holds nothing half-published.
void PackStaging::MoveBack(uint64_t shard) {
  std::string name = ShardName(shard), index = name + std::string(kIndexSuffix);
  if (!CurrentNames(index) && !fs_->Exists(IndexPath(shard)))
    (void)fs_->Rename(JoinPath(destination_, index), IndexPath(shard));
  if (!CurrentNames(name) && !fs_->Exists(TarPath(shard)))
    (void)fs_->Rename(JoinPath(destination_, name), TarPath(shard));
}

void PackStaging::RemoveEmptyFolders() {
  (void)fs_->Remove(staging_);
  for (size_t i = made_.size(); i > 0; --i) {
    if (!fs_->Remove(made_[i - 1]).ok()) break;
  }
}

bool PackStaging::Abandon(bool keep_finished) {
  bool published = plan_ && plan_->num_shards > 0 && CurrentNames(ShardName(0));
  if (published) return false;
  bool any = false;
  for (uint64_t i = 0; plan_ && i < plan_->num_shards; ++i) {
    if (keep_finished && fs_->Exists(DonePath(i))) {
      MoveBack(i);
      any = true;
      continue;
    }
    (void)fs_->Remove(TarPath(i));
    (void)fs_->Remove(IndexPath(i));
  }
  if (any) return true;
  if (plan_) RemovePublishedFiles();
  (void)RemoveStaging();
  RemoveEmptyFolders();
  return false;
}

}  // namespace headrace::dataset
