#include "headrace/checkpoint/drain.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/parallel.h"
#include "headrace/object/pause.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kRememberedDamage = 64;

uint64_t Now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Context::Clock::now().time_since_epoch())
          .count());
}

// The bytes of a manifest as they lie at a tier.
Result<std::string> ManifestBytes(Tier* tier, const CatalogEntry& entry, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(auto file, tier->files->Open(entry.manifest, entry.manifest_bytes, ctx));
  std::string bytes(entry.manifest_bytes, '\0');
  HR_RETURN_IF_ERROR(
      file->Read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}, ctx));
  if (HashOf(AsBytes(bytes)) != entry.manifest_hash)
    return Error(Code::kDataLoss, "{} in {} is damaged", entry.manifest, tier->files->name());
  return bytes;
}

}  // namespace

// A file that is copied.
struct Drain::Job {
  const FileEntry& file;
  std::unique_ptr<DataFile> data;
  ChunkSums sums;
  std::vector<std::byte> buffer;
  uint64_t offset = 0;
};

Drain::Drain(Tier* from, Tier* to, const DrainOptions& options)
    : from_(from), to_(to), options_(options), rate_(options.rate, Now()) {}

DrainProgress Drain::progress() {
  MutexLock lock(&mu_);
  DrainProgress copy = progress_;
  copy.rate = std::isinf(rate_.rate()) ? 0 : rate_.rate();
  return copy;
}

bool Drain::InUse(const SaveId& id) {
  MutexLock lock(&mu_);
  return progress_.now == id;
}

std::optional<Status> Drain::Damaged(const SaveId& id) {
  MutexLock lock(&mu_);
  for (const auto& [damaged, status] : damaged_)
    if (damaged == id) return status;
  return std::nullopt;
}

void Drain::ReportStall(double share) {
  MutexLock lock(&mu_);
  progress_.input_stall = share;
  if (progress_.now) {
    rate_.ReportStall(Now(), share);
  } else {
    rate_.ReportIdleStall(share);
  }
}

void Drain::SetDeadline(double seconds) {
  const uint64_t now = Now();
  MutexLock lock(&mu_);
  const uint64_t left = progress_.total_bytes - std::min(progress_.bytes, progress_.total_bytes);
  rate_.SetDeadline(now, left, seconds > 0 ? now + static_cast<uint64_t>(seconds * 1e9) : 0);
}

Result<std::optional<CatalogEntry>> Drain::Choose(const Context& ctx) {
  HR_ASSIGN_OR_RETURN(Catalog here, from_->store.Read(ctx));
  HR_ASSIGN_OR_RETURN(Catalog there, to_->store.Read(ctx));
  const CatalogEntry* newest = there.entries.empty() ? nullptr : &there.entries.back();
  std::vector<CatalogEntry> wanted;
  MutexLock lock(&mu_);
  for (const CatalogEntry& entry : here.entries) {
    const bool is_there = there.Find(entry.id) != nullptr;
    // A farther tier may have been faster than a spare one.
    if (entry.level >= to_->level && (is_there || !to_->spare)) continue;
    // What is older than all that is there was removed there, or left out since something newer
    // came first. But one that is there and is not yet known to be here still wants its level.
    if (newest != nullptr && Newer(newest->id, entry.id) && !is_there) continue;
    const bool damaged = std::any_of(damaged_.begin(), damaged_.end(),
                                     [&entry](const auto& one) { return one.first == entry.id; });
    if (!damaged) wanted.push_back(entry);
  }
  progress_.waiting = wanted.empty() ? 0 : wanted.size() - 1;
  if (wanted.empty()) return std::optional<CatalogEntry>();
  progress_.now = wanted.front().id;
  progress_.files = progress_.total_files = progress_.bytes = progress_.total_bytes = 0;
  return std::optional<CatalogEntry>(wanted.front());
}

Result<std::optional<SaveId>> Drain::Next(uint64_t epoch, const Context& ctx) {
  auto chosen = Choose(ctx);
  Status done = chosen.status();
  if (done.ok() && *chosen) done = Copy(**chosen, epoch, ctx);
  MutexLock lock(&mu_);
  const bool damaged = std::exchange(damaged_here_, false);
  progress_.now.reset();
  progress_.last = done;
  if (!done.ok()) {
    if (damaged && chosen.ok()) {
      damaged_.emplace_back((*chosen)->id, done);
      if (damaged_.size() > kRememberedDamage) damaged_.erase(damaged_.begin());
    }
    return done;
  }
  if (!*chosen) return std::optional<SaveId>();
  ++progress_.drained;
  return std::optional<SaveId>((*chosen)->id);
}

Status Drain::Copy(const CatalogEntry& entry, uint64_t epoch, const Context& ctx) {
  HR_RETURN_IF_ERROR(to_->spare ? CatchUp(to_, epoch, "a drain", ctx)
                                : to_->store.CheckEpoch(epoch, ctx));
  auto read = ManifestBytes(from_, entry, ctx);
  if (!read.ok()) return Found(read.status());
  const std::string bytes = *std::move(read);
  HR_ASSIGN_OR_RETURN(Manifest manifest, DecodeManifest(AsBytes(bytes), entry.manifest));
  {
    MutexLock lock(&mu_);
    progress_.total_files = manifest.files.size();
    for (const FileEntry& file : manifest.files) progress_.total_bytes += file.bytes;
  }
  uint64_t new_bytes = 0;
  for (const FileEntry& file : manifest.files) new_bytes += file.carried ? 0 : file.bytes;
  HR_RETURN_IF_ERROR(to_->files->CheckRoom(new_bytes, ctx));
  HR_RETURN_IF_ERROR(ForEach(manifest.files.size(), options_.threads,
                             [&](size_t i) { return CopyFile(manifest.files[i], ctx); }));
  HR_RETURN_IF_ERROR(to_->files->Sync(ctx));
  HR_RETURN_IF_ERROR(to_->store.PublishCopy(epoch, entry, AsBytes(bytes), to_->level, ctx));
  return from_->store.RaiseLevel(epoch, entry.id, to_->level, ctx);
}

Status Drain::CopyFile(const FileEntry& file, const Context& ctx) {
  // Whole and of this length: it came with a checkpoint before, or with a try before.
  const bool there = to_->files->Open(file.DataKey(), file.bytes, ctx).ok() &&
                     to_->files->Open(file.SumsKey(), ChunkSumsBytes(file.bytes), ctx).ok();
  uint64_t sent = 0;
  if (there) {
    // That try may not have come to its sync.
    HR_RETURN_IF_ERROR(Touch(file.DataKey(), file.bytes, ctx));
    HR_RETURN_IF_ERROR(Touch(file.SumsKey(), ChunkSumsBytes(file.bytes), ctx));
  } else {
    auto sums = ReadSums(from_->files.get(), file, ctx);
    if (!sums.ok()) return Found(sums.status());
    auto data = from_->files->Open(file.DataKey(), file.bytes, ctx);
    if (!data.ok()) return Found(data.status());
    Job job{file, std::move(*data), std::move(*sums), {}, 0};
    const auto next = [&](uint64_t bytes) { return NextPiece(&job, bytes, ctx); };
    HR_RETURN_IF_ERROR(to_->files->WriteFrom(file.DataKey(), file.bytes, next, ctx).status());
    const std::string encoded = job.sums.Encode();
    Bytes part = AsBytes(encoded);
    HR_RETURN_IF_ERROR(to_->files->Write(file.SumsKey(), {&part, 1}, ctx).status());
    sent = job.offset;
  }
  MutexLock lock(&mu_);
  progress_.bytes += file.bytes - sent;  // what was there already was not sent
  ++progress_.files;
  return OkStatus();
}

// Lets the next Sync make a file durable that is there already.
Status Drain::Touch(const std::string& key, uint64_t bytes, const Context& ctx) {
  const auto gone = [&key](uint64_t) -> Result<Bytes> {
    return Error(Code::kUnavailable, "{} was removed while it was drained", key);
  };
  return to_->files->WriteFrom(key, bytes, gone, ctx).status();
}

// A fault of the near tier.
Status Drain::Found(Status fault) {
  if (fault.code() != Code::kDataLoss) return fault;
  MutexLock lock(&mu_);
  damaged_here_ = true;
  return fault;
}

Result<Bytes> Drain::NextPiece(Job* job, uint64_t bytes, const Context& ctx) {
  HR_RETURN_IF_ERROR(TakeTurn(bytes, ctx));
  job->buffer.resize(std::max<size_t>(job->buffer.size(), bytes));
  MutableBytes piece(job->buffer.data(), bytes);
  Status read = job->data->Read(job->offset, piece, ctx);
  if (read.ok())
    read = job->sums.Check(job->offset, piece, from_->files->name() + "/" + job->file.DataKey());
  if (!read.ok()) return Found(std::move(read));
  job->offset += bytes;
  MutexLock lock(&mu_);
  progress_.bytes += bytes;
  progress_.sent_bytes += bytes;
  return Bytes(piece);
}

Status Drain::TakeTurn(uint64_t bytes, const Context& ctx) {
  for (;;) {
    uint64_t wait = 0;
    {
      MutexLock lock(&mu_);
      const uint64_t now = Now();
      wait = rate_.WaitNs(now, bytes);
      if (wait == 0) rate_.Take(now, bytes);
    }
    if (wait == 0) return ctx.Check();
    // Not all at once: the rate may rise meanwhile.
    wait = std::min<uint64_t>(wait, 200'000'000);
    HR_RETURN_IF_ERROR(object::PauseFor(std::chrono::nanoseconds(wait), ctx));
  }
}

}  // namespace headrace::checkpoint
