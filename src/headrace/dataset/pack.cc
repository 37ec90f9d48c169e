#include "headrace/dataset/pack.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <set>

#include "headrace/base/sha256.h"
#include "headrace/base/text.h"
#include "headrace/dataset/crew.h"
#include "headrace/dataset/pack_layout.h"
#include "headrace/dataset/pack_source.h"
#include "headrace/dataset/pack_staging.h"

namespace headrace::dataset {
namespace {

// Changes when the same input would give other bytes than before, so that shards of an older
// program are not mixed with new ones.
constexpr int kLayoutVersion = 2;

// Writes the shards of one pack with several threads.
class ShardCrew {
 public:
  ShardCrew(FileSystem* fs, const PackList* list, const std::vector<PackSpan>* spans,
            PackStaging* staging, const PackOptions& options, const Context& ctx)
      : fs_(fs),
        list_(list),
        spans_(spans),
        staging_(staging),
        options_(options),
        ctx_(ctx),
        packed_(spans->size()),
        crew_("hr-pack", options.threads, spans->size()) {}

  Status Run(bool resume) {
    resume_ = resume;
    return crew_.Run([this] { return WriteShards(); });
  }

  const std::vector<PackedShard>& packed() const { return packed_; }
  uint64_t num_reused() const { return num_reused_.load(); }
  // Tar bytes of the shards that are done.
  uint64_t bytes_done() const { return bytes_done_.load(); }

 private:
  Status WriteShards() {
    ShardWriterOptions writer_options;
    writer_options.sync = options_.sync;
    writer_options.skip_unreadable = options_.skip_unreadable;
    writer_options.seek_spacing = options_.seek_spacing;
    writer_options.jpeg = options_.jpeg;
    writer_options.stop = &crew_.stop();
    writer_options.progress = options_.progress;
    HR_ASSIGN_OR_RETURN(auto writer, ShardWriter::Create(fs_, list_, writer_options));
    while (auto shard = crew_.Take()) {
      HR_RETURN_IF_ERROR(WriteOne(*shard, writer.get()));
      bytes_done_.fetch_add((*spans_)[*shard].tar_bytes);
      if (options_.progress) options_.progress->shards.fetch_add(1);
    }
    return OkStatus();
  }

  Status WriteOne(uint64_t shard, ShardWriter* writer) {
    const PackSpan& span = (*spans_)[shard];
    if (resume_) {
      if (auto reused = staging_->Reuse(shard, ctx_)) {
        packed_[shard] = std::move(*reused);
        num_reused_.fetch_add(1);
        if (options_.progress) {
          options_.progress->samples.fetch_add(span.num_samples);
          options_.progress->bytes.fetch_add(span.tar_bytes);
        }
        return OkStatus();
      }
      HR_RETURN_IF_ERROR(ctx_.Check());
    }
    HR_ASSIGN_OR_RETURN(packed_[shard], writer->WriteShard(span, staging_->TarPath(shard),
                                                           staging_->IndexPath(shard), ctx_));
    return staging_->Finish(shard, packed_[shard]);
  }

  FileSystem* fs_;
  const PackList* list_;
  const std::vector<PackSpan>* spans_;
  PackStaging* staging_;
  const PackOptions& options_;
  const Context& ctx_;
  bool resume_ = false;
  std::vector<PackedShard> packed_;  // each element is written by the one thread that took it
  std::atomic<uint64_t> num_reused_{0}, bytes_done_{0};
  Crew crew_;
};

std::string FingerprintOf(const PackList& list, const PackOptions& options) {
  Sha256 hash;
  hash.Update(fmt::format("pack {} {} {} {} {}\n", kLayoutVersion, options.shard_bytes,
                          options.shard_samples, options.shuffle_seed ? 1 : 0,
                          options.shuffle_seed.value_or(0)));
  hash.Update(fmt::format("{} {} {} {} {}\n", options.skip_unreadable, options.seek_spacing,
                          static_cast<int>(options.jpeg), EscapeText(options.message),
                          list.Fingerprint()));
  return hash.Finish();
}

// A destination inside a source would be packed by the next run.
Status CheckNotInside(FileSystem* fs, const std::vector<std::string>& sources,
                      const std::string& destination) {
  for (std::string path = destination;;) {
    auto info = fs->Stat(path);
    for (const std::string& source : sources) {
      if (!info.ok()) break;
      HR_ASSIGN_OR_RETURN(FileInfo other, fs->Stat(source));
      if (other.kind == FileKind::kDirectory && other.device == info->device &&
          other.inode == info->inode)
        return Error(Code::kInvalidArgument,
                     "the destination '{}' lies in the source '{}'; choose a folder outside it",
                     EscapeText(destination), EscapeText(source));
    }
    std::string above(DirectoryName(path));
    if (above == path) return OkStatus();
    path = above;
  }
}

Status CheckOptions(const std::vector<std::string>& sources, const PackOptions& options) {
  if (sources.empty()) return Status(Code::kInvalidArgument, "nothing to pack: name a source");
  if (options.shard_bytes == 0)
    return Status(Code::kInvalidArgument, "a shard size of 0; give for example 256MiB");
  uint32_t spacing = options.seek_spacing;
  if (spacing != 0 && spacing != 4 && spacing != 8)
    return Error(Code::kInvalidArgument, "seek points every {} MCUs; expected 4, 8 or 0 for none",
                 spacing);
  return OkStatus();
}

// One run, from the lock to the published version.
class PackRun {
 public:
  PackRun(FileSystem* fs, const std::vector<std::string>& sources, const std::string& destination,
          const PackOptions& options, const Context& ctx, PackStaging* staging)
      : fs_(fs),
        sources_(sources),
        destination_(destination),
        options_(options),
        ctx_(ctx),
        staging_(staging) {}

  Result<PackReport> Run() {
    HR_ASSIGN_OR_RETURN(list_, ListSources(fs_, sources_, options_.skip_unreadable, ctx_));
    if (options_.shuffle_seed) ShuffleList(*options_.shuffle_seed, &list_);
    spans_ = CutIntoShards(list_, options_.shard_bytes, options_.shard_samples);
    for (const PackSpan& span : spans_) total_bytes_ += span.tar_bytes;
    if (options_.progress) {
      options_.progress->total_samples = list_.num_samples();
      options_.progress->total_bytes = total_bytes_;
      options_.progress->total_shards = spans_.size();
    }
    HR_ASSIGN_OR_RETURN(auto found, staging_->Begin(FingerprintOf(list_, options_), spans_.size()));
    if (found == PackStaging::Found::kPublished) return ReportPublished();
    ShardCrew crew(fs_, &list_, &spans_, staging_, options_, ctx_);
    Status status = crew.Run(found == PackStaging::Found::kUnfinished);
    if (status.ok()) status = ctx_.Check();
    if (!status.ok()) return ExplainFullDisk(std::move(status), crew.bytes_done());
    return PublishAndReport(crew);
  }

 private:
  Result<PackReport> PublishAndReport(const ShardCrew& crew) {
    Manifest manifest;
    manifest.kind = "tar";
    manifest.classes = list_.classes;
    manifest.message = options_.message;
    manifest.created_by = fmt::format("headrace {}", HEADRACE_VERSION);
    std::set<std::string> fields;
    for (const PackedShard& shard : crew.packed())
      fields.insert(shard.fields.begin(), shard.fields.end());
    manifest.fields.assign(fields.begin(), fields.end());
    Status published = staging_->Publish(crew.packed(), &manifest);
    if (!published.ok()) return ExplainFullDisk(std::move(published), crew.bytes_done());
    PackReport report;
    report.reused_shards = crew.num_reused();
    for (const PackedShard& shard : crew.packed())
      report.skipped.insert(report.skipped.end(), shard.skipped.begin(), shard.skipped.end());
    for (const PackedShard& shard : crew.packed()) {
      report.seek.Add(shard.seek);
      report.jpeg.Add(shard.jpeg);
    }
    FillReport(manifest, &report);
    return report;
  }

  Result<PackReport> ReportPublished() {
    HR_ASSIGN_OR_RETURN(Manifest manifest,
                        Manifest::Load(fs_, JoinPath(destination_, kManifestName)));
    PackReport report;
    report.reused_shards = manifest.shards.size();
    for (const ManifestShard& shard : manifest.shards) {
      std::string path = JoinPath(destination_, shard.index);
      HR_ASSIGN_OR_RETURN(auto mapped, fs_->Map(path));
      HR_ASSIGN_OR_RETURN(auto index, IndexReader::Open(std::move(mapped), path));
      HR_ASSIGN_OR_RETURN(SeekTally seek, TallySeekPoints(*index));
      report.seek.Add(seek);
    }
    FillReport(manifest, &report);
    return report;
  }

  void FillReport(const Manifest& manifest, PackReport* report) {
    report->version = manifest.ComputeVersion();
    report->shards = manifest.shards.size();
    for (const ManifestShard& shard : manifest.shards) {
      report->samples += shard.samples;
      report->bytes += shard.bytes;
    }
    report->left_out = list_.left_out;
  }

  Status ExplainFullDisk(Status status, uint64_t bytes_done) const {
    const std::string& file = status.location().file;
    bool writing = file.compare(0, destination_.size(), destination_) == 0;
    if (status.code() != Code::kResourceExhausted || !writing) return status;
    return std::move(status).Prefix(
        fmt::format("packing stopped with {} of {} written, at least {} more are needed",
                    FormatSize(bytes_done), FormatSize(total_bytes_),
                    FormatSize(total_bytes_ - std::min(bytes_done, total_bytes_))));
  }

  FileSystem* fs_;
  const std::vector<std::string>& sources_;
  const std::string& destination_;
  const PackOptions& options_;
  const Context& ctx_;
  PackStaging* staging_;
  PackList list_;
  std::vector<PackSpan> spans_;
  uint64_t total_bytes_ = 0;
};

}  // namespace

Result<PackReport> Pack(FileSystem* fs, const std::vector<std::string>& sources,
                        const std::string& destination, const PackOptions& options,
                        const Context& ctx) {
  HR_RETURN_IF_ERROR(CheckOptions(sources, options));
  HR_RETURN_IF_ERROR(CheckNotInside(fs, sources, destination));
  HR_ASSIGN_OR_RETURN(auto staging,
                      PackStaging::Open(fs, destination, options.overwrite, options.sync));
  Result<PackReport> report = [&]() -> Result<PackReport> {
    try {
      return PackRun(fs, sources, destination, options, ctx, staging.get()).Run();
    } catch (const std::bad_alloc&) {  // from the standard library's containers
      return Status(Code::kResourceExhausted, "out of memory; raise the limit (ulimit -v)");
    }
  }();
  if (report.ok()) return report;
  // A full disk is given back at once; otherwise what is finished waits for the next try.
  bool keep = report.status().code() != Code::kResourceExhausted;
  if (!staging->Abandon(keep)) return report;
  return Error(
             report.status().code(),
             "{}; finished shards are kept, so that the same command goes on from here (or remove "
             "'{}/.headrace-pack')",
             report.status().message(), EscapeText(destination))
      .At(report.status().location());
}

}  // namespace headrace::dataset
