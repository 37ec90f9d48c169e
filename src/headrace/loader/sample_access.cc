#include "headrace/loader/sample_access.h"

#include <cstring>

#include "headrace/object/url_file_system.h"

namespace headrace::loader {

Result<std::unique_ptr<SampleAccess>> SampleAccess::Open(const std::string& url,
                                                         const object::UrlSettings& storage,
                                                         const dataset::OpenOptions& options,
                                                         bool verify_checksums) {
  HR_ASSIGN_OR_RETURN(object::Place place, object::LocateUrl(url, storage));
  HR_ASSIGN_OR_RETURN(auto dataset, dataset::Dataset::Open(place.fs, place.path, options));
  return std::make_unique<SampleAccess>(std::move(dataset), verify_checksums);
}

SampleAccess::SampleAccess(std::shared_ptr<const dataset::Dataset> dataset, bool verify_checksums)
    : dataset_(std::move(dataset)), verify_checksums_(verify_checksums) {}

SampleAccess::~SampleAccess() {
  delete spare_.exchange(nullptr);
  delete spare_decoder_.exchange(nullptr);
}

std::unique_ptr<dataset::SampleReader> SampleAccess::TakeReader() const {
  std::unique_ptr<dataset::SampleReader> reader(spare_.exchange(nullptr));
  if (reader) return reader;
  dataset::ReadOptions options;
  options.verify_checksums = verify_checksums_;
  return dataset::SampleReader::Create(dataset_, options);
}

void SampleAccess::GiveReader(std::unique_ptr<dataset::SampleReader> reader) const {
  delete spare_.exchange(reader.release());
}

SampleAccess::Sample::~Sample() {
  if (owner) owner->GiveReader(std::move(reader));
}

Status SampleAccess::Read(uint64_t id, const std::vector<std::string>& wanted, const Context& ctx,
                          Sample* out) const {
  std::vector<dataset::FieldId> ids;
  for (const std::string& name : wanted) {
    HR_ASSIGN_OR_RETURN(dataset::FieldId field, dataset_->FindField(name));
    ids.push_back(field);
  }
  out->owner = this;
  out->reader = TakeReader();
  HR_ASSIGN_OR_RETURN(out->view, out->reader->Read(id, ids, ctx));
  for (const dataset::FieldView& field : out->view.fields)
    out->fields.emplace_back(dataset_->fields()[field.field], field.data);
  if (wanted.empty() || out->fields.size() == wanted.size()) return OkStatus();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (out->view.Find(ids[i])) continue;
    return Error(Code::kNotFound, "the sample has no field '{}'", wanted[i])
        .At({std::string(out->view.shard), std::nullopt, std::string(out->view.key), wanted[i]});
  }
  return OkStatus();
}

std::unique_ptr<SampleAccess::Decoder> SampleAccess::TakeDecoder() const {
  std::unique_ptr<Decoder> decoder(spare_decoder_.exchange(nullptr));
  if (decoder) return decoder;
  decoder = std::make_unique<Decoder>();
  dataset::ReadOptions options;
  options.verify_checksums = verify_checksums_;
  options.seek_points = true;
  options.learn_seek_points = std::make_shared<dataset::SeekPointCounters>();
  decoder->reader = dataset::SampleReader::Create(dataset_, options);
  return decoder;
}

Status SampleAccess::ReadRegion(uint64_t id, const std::string& field, const codec::Rect& region,
                                uint32_t channels, const Context& ctx, Pixels* out) const {
  HR_ASSIGN_OR_RETURN(dataset::FieldId wanted, dataset_->FindField(field));
  std::unique_ptr<Decoder> decoder = TakeDecoder();
  Status status = DecodeField(decoder.get(), id, wanted, region, channels, ctx, out);
  delete spare_decoder_.exchange(decoder.release());
  return status;
}

Status SampleAccess::DecodeField(Decoder* decoder, uint64_t id, dataset::FieldId field,
                                 const codec::Rect& region, uint32_t channels, const Context& ctx,
                                 Pixels* out) const {
  constexpr uint64_t kMaxPixels = 178956970;
  HR_ASSIGN_OR_RETURN(dataset::SampleView sample,
                      decoder->reader->Read(id, std::span(&field, 1), ctx));
  const dataset::FieldView* found = sample.Find(field);
  if (!found)
    return Error(Code::kNotFound, "the sample has no field '{}'", dataset_->fields()[field])
        .At({std::string(sample.shard), {}, std::string(sample.key), dataset_->fields()[field]});
  auto view = codec::DecodeRegion(found->data, region, channels, kMaxPixels,
                                  {found->seek_points, found->crc32c}, &decoder->scratch);
  if (!view.ok()) {
    Status fault = decoder->reader->AtField(view.status(), sample, field);
    if (fault.code() != Code::kOutOfRange) return fault;
    return Status(Code::kInvalidArgument, std::string(fault.message())).At(fault.location());
  }
  const size_t row_bytes = size_t{view->width} * view->channels;
  if (!out->memory.Reserve(row_bytes * view->height))
    return Error(Code::kResourceExhausted, "no memory for {} x {} pixels", view->width,
                 view->height);
  for (uint32_t y = 0; y < view->height; ++y)
    std::memcpy(out->memory.data() + y * row_bytes, view->data + y * view->stride, row_bytes);
  out->width = view->width;
  out->height = view->height;
  out->channels = view->channels;
  return OkStatus();
}

Status SampleAccess::Key(uint64_t id, std::string* key) const {
  std::unique_ptr<dataset::SampleReader> reader = TakeReader();
  Result<dataset::SampleView> sample = reader->Locate(id);
  if (sample.ok()) key->assign(sample->key);
  Status status = sample.status();
  GiveReader(std::move(reader));
  return status;
}

}  // namespace headrace::loader
