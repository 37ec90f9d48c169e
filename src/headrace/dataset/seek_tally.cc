#include "headrace/dataset/seek_tally.h"

#include <numeric>

namespace headrace::dataset {
namespace {

using codec::SeekRefusal;

SeekRefusal RefusalOf(Bytes record) {
  auto info = codec::ReadSeekRecordInfo(record);
  if (info.ok()) return info->refusal;
  return info.status().code() == Code::kFailedPrecondition ? SeekRefusal::kRecordUnknown
                                                           : SeekRefusal::kRecordForeign;
}

}  // namespace

uint64_t SeekTally::num_images() const {
  return std::accumulate(images.begin(), images.end(), uint64_t{0});
}

uint64_t SeekTally::num_with_points() const {
  return images[static_cast<size_t>(SeekRefusal::kNone)];
}

void SeekTally::Add(const SeekTally& other) {
  for (size_t i = 0; i < images.size(); ++i) images[i] += other.images[i];
  image_bytes += other.image_bytes;
  record_bytes += other.record_bytes;
}

Json SeekTally::ToJson() const {
  return Json::MakeObject()
      .Set("images", num_images())
      .Set("with_points", num_with_points())
      .Set("without", RefusalsJson(images))
      .Set("image_bytes", image_bytes)
      .Set("record_bytes", record_bytes);
}

Json RefusalsJson(const codec::DecodeCounts& images) {
  Json json = Json::MakeObject();
  for (size_t i = 1; i < images.size(); ++i)
    if (images[i] != 0)
      json.Set(std::string(codec::SeekRefusalName(static_cast<SeekRefusal>(i))), images[i]);
  return json;
}

Result<SeekTally> TallySeekPoints(const IndexReader& index) {
  SeekTally tally;
  if (!index.has_seek_points()) return tally;
  IndexSample sample;
  for (uint64_t i = 0; i < index.num_samples(); ++i) {
    uint64_t ordinal = 0;
    HR_RETURN_IF_ERROR(index.Get(i, &sample, &ordinal));
    for (const IndexField& field : sample.fields) {
      HR_ASSIGN_OR_RETURN(Bytes record, index.SeekPoints(ordinal++));
      if (record.empty()) continue;
      ++tally.images[static_cast<size_t>(RefusalOf(record))];
      tally.image_bytes += field.length;
      tally.record_bytes += record.size();
    }
  }
  return tally;
}

}  // namespace headrace::dataset
