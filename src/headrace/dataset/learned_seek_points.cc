#include "headrace/dataset/learned_seek_points.h"

#include <fmt/format.h>

#include <utility>

#include "headrace/base/crc32c.h"
#include "headrace/base/stage_timer.h"
#include "headrace/codec/image.h"

namespace headrace::dataset {
namespace {

// What is kept for a JPEG: its CRC32C, its size, and the record of its seek points.
constexpr size_t kHead = 8;

// After a failure so many JPEGs pass before it is tried again.
constexpr uint32_t kPause = 1024;

bool BelongsTo(Bytes kept, Bytes data, uint32_t crc32c) {
  return kept.size() > kHead && LoadLittle<uint32_t>(kept.data()) == crc32c &&
         LoadLittle<uint32_t>(kept.data() + 4) == data.size();
}

}  // namespace

LearnedSeekPoints::LearnedSeekPoints(cache::SidePlace place, const Dataset* dataset,
                                     std::shared_ptr<SeekPointCounters> counters)
    : place_(std::move(place)),
      dataset_(dataset),
      counters_(std::move(counters)),
      kept_(dataset->fields().size()) {}

bool LearnedSeekPoints::Open(FieldId field, Kept* kept) {
  if (kept->file && kept->file->usable()) return true;
  kept->file.reset();
  if (kept->until_open > 0) {
    --kept->until_open;
    return false;
  }
  const cache::ObjectId id =
      cache::IdentifySideFile({fmt::format("seek points 1 every {}", kLearnedSpacing),
                               dataset_->version(), dataset_->fields()[field]});
  auto opened = cache::SideFile::Open(place_, id, dataset_->num_samples());
  if (opened.ok()) {
    kept->file = *std::move(opened);
  } else {
    kept->until_open = kPause;
  }
  return kept->file != nullptr;
}

Bytes LearnedSeekPoints::Build(uint64_t sample, Bytes data, uint32_t crc32c, Kept* kept) {
  if (kept->until_build > 0) {
    --kept->until_build;
    return {};
  }
  const uint64_t start = NowNanos();
  builder_.Build(data, crc32c, kLearnedSpacing, &built_);
  if (built_.empty()) return {};  // no memory: perhaps another time
  kept->record.resize(kHead);
  StoreLittle<uint32_t>(kept->record.data(), crc32c);
  StoreLittle<uint32_t>(kept->record.data() + 4, static_cast<uint32_t>(data.size()));
  kept->record.append(built_);
  if (kept->file->Add(sample, AsBytes(kept->record))) {
    counters_->added.fetch_add(1, std::memory_order_relaxed);
  } else {
    kept->until_build = kPause;
  }
  counters_->build_ns.fetch_add(NowNanos() - start, std::memory_order_relaxed);
  return AsBytes(kept->record).subspan(kHead);
}

Bytes LearnedSeekPoints::Get(FieldId field, uint64_t sample, Bytes data,
                             std::optional<uint32_t>* crc32c) {
  last_ns_ = 0;
  if (data.size() > kMaxLearnedJpegBytes ||
      codec::DetectImageFormat(data) != codec::ImageFormat::kJpeg)
    return {};
  const uint64_t start = NowNanos();
  Kept& kept = kept_[field];
  Bytes found;
  if (Open(field, &kept)) {
    if (!*crc32c) *crc32c = Crc32c(data);
    std::optional<Bytes> record = kept.file->Find(sample);
    if (record && BelongsTo(*record, data, **crc32c)) {
      counters_->used.fetch_add(1, std::memory_order_relaxed);
      found = record->subspan(kHead);
    } else {
      found = Build(sample, data, **crc32c, &kept);
    }
  }
  last_ns_ = NowNanos() - start;
  return found;
}

uint64_t LearnedSeekPoints::memory_bytes() const {
  uint64_t bytes = builder_.memory_bytes() + built_.capacity() + kept_.capacity() * sizeof(Kept);
  for (const Kept& kept : kept_)
    bytes += kept.record.capacity() + (kept.file ? kept.file->memory_bytes() : 0);
  return bytes;
}

}  // namespace headrace::dataset
