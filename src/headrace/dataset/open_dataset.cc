#include "headrace/dataset/open_dataset.h"

#include <algorithm>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/dataset/file_checksum.h"
#include "headrace/env/process.h"

namespace headrace::dataset {
namespace {

uint32_t OpenFileBudget(uint32_t wanted) {
  uint64_t allowed = std::max<uint64_t>(OpenFileLimit() / 4, 4);
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, allowed));
}

// Publishes `made` in `slot` unless another thread was faster; returns what is there then.
template <typename T>
T* PublishOnce(std::atomic<T*>* slot, std::unique_ptr<T> made) {
  T* expected = nullptr;
  if (slot->compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
    return made.release();
  return expected;
}

Location AtFile(std::string file) {
  return {.file = std::move(file), .offset = {}, .key = {}, .field = {}};
}

}  // namespace

OpenDataset::OpenDataset(Parts parts)
    : parts_(std::move(parts)),
      version_(parts_.manifest.ComputeVersion()),
      states_(parts_.manifest.shards.size()),
      learned_(parts_.manifest.shards.size()),
      identity_checked_(parts_.manifest.shards.size()),
      files_(static_cast<uint32_t>(parts_.manifest.shards.size()),
             {.open_files = OpenFileBudget(parts_.options.max_open_files),
              .memory_bytes = parts_.options.max_unpacked_bytes},
             [this](uint32_t shard) { return OpenChecked(shard); }) {
  first_sample_.push_back(0);
  for (const ManifestShard& shard : parts_.manifest.shards) {
    shards_.push_back({shard.name, shard.samples, shard.bytes});
    first_sample_.push_back(first_sample_.back() + shard.samples);
  }
}

Status OpenDataset::AdoptIndexes() {
  for (uint32_t shard = 0; shard < parts_.indexes.size(); ++shard) {
    HR_ASSIGN_OR_RETURN(auto state, MakeState(std::move(parts_.indexes[shard])));
    PublishOnce(&states_[shard], std::move(state));
  }
  parts_.indexes.clear();
  return OkStatus();
}

OpenDataset::~OpenDataset() {
  for (auto& state : states_) delete state.load();
  for (auto& learned : learned_) delete learned.load();
}

uint32_t OpenDataset::ShardOf(uint64_t sample) const {
  auto after = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample);
  return static_cast<uint32_t>(after - first_sample_.begin() - 1);
}

Result<FieldId> OpenDataset::FindField(std::string_view name) const {
  std::span<const std::string> names = fields();
  auto it = std::lower_bound(names.begin(), names.end(), name);
  if (it != names.end() && *it == name) return static_cast<FieldId>(it - names.begin());
  std::string known;
  for (const std::string& field : names.first(std::min<size_t>(names.size(), 50)))
    known += (known.empty() ? "'" : ", '") + EscapeText(field) + "'";
  return Error(Code::kNotFound, "the dataset {} has no field '{}'; it has {}", path(),
               EscapeText(name), known.empty() ? "none" : known);
}

Result<uint64_t> OpenDataset::FindKey(std::string_view key) const {
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    HR_ASSIGN_OR_RETURN(const ShardState* state, State(shard));
    Result<uint64_t> found = state->index->Find(key);
    if (found.ok()) return first_sample_[shard] + *found;
    if (found.status().code() != Code::kNotFound) return found;
  }
  return Error(Code::kNotFound, "the dataset {} has no sample with the key {}", path(),
               EscapeText(key.substr(0, 200)));
}

Result<const IndexReader*> OpenDataset::Index(size_t shard) const {
  HR_ASSIGN_OR_RETURN(const ShardState* state, State(static_cast<uint32_t>(shard)));
  return static_cast<const IndexReader*>(state->index.get());
}

Result<const OpenDataset::ShardState*> OpenDataset::State(uint32_t shard) const {
  if (const ShardState* state = states_[shard].load(std::memory_order_acquire)) return state;
  HR_ASSIGN_OR_RETURN(std::unique_ptr<ShardState> made, MakeState(shard));
  return static_cast<const ShardState*>(PublishOnce(&states_[shard], std::move(made)));
}

Status OpenDataset::CheckIndex(uint32_t shard, const IndexReader& index) const {
  const ManifestShard& entry = parts_.manifest.shards[shard];
  if (index.header_crc32c() == entry.index_header_crc32c && index.num_samples() == entry.samples)
    return OkStatus();
  return Error(Code::kFailedPrecondition,
               "index {} is not the one that the manifest names for shard '{}': it has {} samples "
               "and header CRC32C {:08x}, expected {} and {:08x}. Make manifest and indexes again "
               "with `headrace index`",
               index.name(), EscapeText(entry.name), index.num_samples(), index.header_crc32c(),
               entry.samples, entry.index_header_crc32c)
      .At(AtFile(index.name()));
}

Result<std::unique_ptr<OpenDataset::ShardState>> OpenDataset::MakeState(uint32_t shard) const {
  const ManifestShard& entry = parts_.manifest.shards[shard];
  if (parts_.mds && entry.index.empty()) {
    HR_ASSIGN_OR_RETURN(auto built, BuildIndex(shard));
    return MakeState(std::move(built));
  }
  std::string index_path = JoinPath(parts_.index_folder, entry.index);
  auto mapped = parts_.fs->Map(index_path);
  if (!mapped.ok())
    return std::move(mapped)
        .status()
        .Prefix(fmt::format("the index of shard '{}'", EscapeText(entry.name)))
        .At(AtFile(index_path));
  HR_ASSIGN_OR_RETURN(auto index, IndexReader::Open(*std::move(mapped), index_path));
  HR_RETURN_IF_ERROR(CheckIndex(shard, *index));
  return MakeState(std::move(index));
}

Result<std::unique_ptr<OpenDataset::ShardState>> OpenDataset::MakeState(
    std::unique_ptr<IndexReader> index) const {
  auto state = std::make_unique<ShardState>();
  state->index = std::move(index);
  for (const std::string& name : state->index->field_names()) {
    auto id = FindField(name);
    if (!id.ok())
      return Error(Code::kFailedPrecondition,
                   "index {} has the field '{}' that the manifest does not name; make them again "
                   "with `headrace index`",
                   state->index->name(), EscapeText(name))
          .At(AtFile(state->index->name()));
    state->field_ids.push_back(*id);
  }
  return state;
}

Result<std::unique_ptr<IndexReader>> OpenDataset::BuildIndex(uint32_t shard) const {
  HR_ASSIGN_OR_RETURN(ShardFiles::File file, File(shard));
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildMdsIndex(*file, parts_.mds->index().shards[shard],
                                                      BuildOptions(), Context()));
  return IndexReader::FromBytes(std::move(built.bytes), file->path() + " (headers)");
}

Result<Dataset::ShardFile> OpenDataset::FileOfShard(size_t shard) const {
  if (kind() == "folder" || kind() == "list")
    return Error(Code::kUnimplemented, "the samples of {} are files of their own", parts_.path);
  return ShardFile{parts_.fs, parts_.mds ? parts_.mds->FilePath(shard)
                                         : JoinPath(parts_.data_folder, shards_[shard].name)};
}

LearnedChecksums* OpenDataset::Learned(uint32_t shard, const ShardState& state) const {
  if (LearnedChecksums* learned = learned_[shard].load(std::memory_order_acquire)) return learned;
  const ManifestShard& entry = parts_.manifest.shards[shard];
  std::string path;
  if (!entry.index.empty()) {
    std::string_view stem = entry.index;
    if (stem.ends_with(kIndexSuffix)) stem.remove_suffix(kIndexSuffix.size());
    path = JoinPath(parts_.index_folder, stem) + std::string(kChecksumSuffix);
  }
  return PublishOnce(&learned_[shard],
                     LearnedChecksums::Open(parts_.fs, path, state.index->num_fields(),
                                            state.index->header_crc32c()));
}

Result<std::unique_ptr<RandomAccessFile>> OpenDataset::OpenContent(uint32_t shard,
                                                                   const Context& ctx) const {
  auto file = parts_.mds
                  ? parts_.mds->OpenShard(shard, ctx)
                  : parts_.fs->OpenForRead(JoinPath(parts_.data_folder, shards_[shard].name));
  if (!file.ok()) return std::move(file).status().At(AtFile(shards_[shard].name));
  return file;
}

Result<ShardFiles::Opened> OpenDataset::OpenChecked(uint32_t shard) const {
  ShardFiles::Opened opened;
  HR_ASSIGN_OR_RETURN(opened.file, OpenContent(shard, Context()));
  if (parts_.mds && parts_.mds->is_packed(shard)) opened.memory_bytes = opened.file->size();
  // An index that is not there yet is going to be made of this file.
  const bool has_index = !parts_.manifest.shards[shard].index.empty() || IndexIfMapped(shard);
  const uint64_t version = FileVersion(opened.file->info());
  const bool checked =
      version != 0 && identity_checked_[shard].load(std::memory_order_relaxed) == version;
  if (has_index && !checked) {
    HR_RETURN_IF_ERROR(CheckIdentity(shard, *opened.file));
    identity_checked_[shard].store(version, std::memory_order_relaxed);
  }
  return opened;
}

Result<ShardFiles::File> OpenDataset::Reopen(uint32_t shard, const ShardFiles::File& stale) const {
  files_.Forget(shard, stale);
  return File(shard);
}

bool OpenDataset::Distrust(uint32_t shard, const IndexSample& sample) const {
  if (!IsUrl(parts_.data_folder)) return false;
  auto forget_all = [this](const std::string& path) {
    auto file = parts_.fs->OpenForRead(path);
    if (file.ok()) (*file)->Distrust(0, (*file)->size());
  };
  const IndexReader* index = IndexIfMapped(shard);
  auto file = File(shard);
  if (index && index->kind() == ShardKind::kFiles) {
    for (const IndexField& field : sample.fields)
      if (!field.in_index) forget_all(JoinPath(parts_.data_folder, field.value));
  } else if (file.ok() && parts_.mds && parts_.mds->is_packed(shard)) {
    forget_all(parts_.mds->FilePath(shard));
    files_.Forget(shard, *file);
  } else if (file.ok()) {
    (*file)->Distrust(sample.record.offset, sample.record.length);
    for (const IndexField& field : sample.fields)
      if (!field.in_index) (*file)->Distrust(field.offset, field.length);
  }
  return true;
}

namespace {

// True when a few fields, spread over the shard, are where the index says: then other bytes at the
// shard's ends are damage of what lies there, which each sample's own checksum finds.
bool SomeSampleFits(const IndexReader& index, const RandomAccessFile& file) {
  constexpr uint64_t kProbes = 8, kMaxFieldBytes = uint64_t{16} << 20;
  IndexSample sample;
  std::vector<std::byte> bytes;
  auto fits = [&](uint64_t offset, uint64_t length, uint32_t crc32c) {
    if (length == 0 || length > kMaxFieldBytes) return false;
    bytes.resize(length);
    return file.ReadAt(offset, bytes, Context()).ok() && Crc32c(bytes) == crc32c;
  };
  for (uint64_t probe = 0; probe < kProbes; ++probe) {
    uint64_t i = index.num_samples() * (2 * probe + 1) / (2 * kProbes);
    if (i >= index.num_samples() || !index.Get(i, &sample).ok()) continue;
    const RecordRange& record = sample.record;
    if (fits(record.offset, record.length, record.crc32c)) return true;
    for (const IndexField& field : sample.fields)
      if (!field.in_index && field.crc32c && fits(field.offset, field.length, *field.crc32c))
        return true;
  }
  return false;
}

}  // namespace

Status OpenDataset::CheckIdentity(uint32_t shard, const RandomAccessFile& file) const {
  HR_ASSIGN_OR_RETURN(const ShardState* state, State(shard));
  const ShardIdentity& expected = state->index->identity();
  const std::string& name = state->index->name();
  if (file.size() < expected.size_bytes)
    return Error(
               Code::kDataLoss,
               "shard {} has {} bytes, its index {} says {}: the shard was cut short. Get a whole "
               "copy of it",
               file.path(), file.size(), name, expected.size_bytes)
        .At({.file = file.path(), .offset = file.size(), .key = {}, .field = {}});
  HR_ASSIGN_OR_RETURN(ShardIdentity found, IdentifyShard(file, Context()));
  if (found == expected) return OkStatus();
  if (found.size_bytes == expected.size_bytes && SomeSampleFits(*state->index, file))
    return OkStatus();
  return Error(
             Code::kFailedPrecondition,
             "{} is the index of another shard than {}: it was made of {} bytes that begin and end "
             "with CRC32C {:08x} and {:08x}; found {} bytes with {:08x} and {:08x}. Make the index "
             "again with `headrace index`",
             name, file.path(), expected.size_bytes, expected.head_crc32c, expected.tail_crc32c,
             found.size_bytes, found.head_crc32c, found.tail_crc32c)
      .At(AtFile(file.path()));
}

Status OpenDataset::CheckShard(size_t shard, const Context& ctx) const {
  HR_RETURN_IF_ERROR(ctx.Check());
  HR_ASSIGN_OR_RETURN(const ShardState* state, State(static_cast<uint32_t>(shard)));
  if (state->index->kind() == ShardKind::kFiles) return OkStatus();
  if (parts_.mds && parts_.mds->is_packed(shard))  // unpacked once, and then checked already
    return File(static_cast<uint32_t>(shard)).status();
  HR_ASSIGN_OR_RETURN(auto file, OpenContent(static_cast<uint32_t>(shard), ctx));
  return CheckIdentity(static_cast<uint32_t>(shard), *file);
}

Status OpenDataset::CheckWholeShard(size_t shard, const Context& ctx) const {
  const ManifestShard& entry = parts_.manifest.shards[shard];
  if (parts_.mds) HR_RETURN_IF_ERROR(parts_.mds->CheckHashes(shard, ctx));
  if (!entry.crc32c || kind() == "folder" || kind() == "list") return OkStatus();
  HR_ASSIGN_OR_RETURN(auto file, OpenContent(static_cast<uint32_t>(shard), ctx));
  HR_ASSIGN_OR_RETURN(uint32_t crc, ChecksumOfFile(*file, ctx));
  if (crc == *entry.crc32c) return OkStatus();
  return Error(Code::kDataLoss,
               "the fields are right, but the file around them has CRC32C {:08x}, expected {:08x}: "
               "what stands between them is damaged; get a good copy of it",
               crc, *entry.crc32c)
      .At(AtFile(entry.name));
}

}  // namespace headrace::dataset
