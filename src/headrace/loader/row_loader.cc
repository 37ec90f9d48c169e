#include "headrace/loader/row_loader.h"

#include <algorithm>
#include <array>

#include "headrace/base/text.h"

namespace headrace::loader {

RowLoader::RowLoader(std::shared_ptr<const RowPlan> plan, StageRecorder* recorder)
    : plan_(std::move(plan)),
      recorder_(recorder),
      reader_(dataset::SampleReader::Create(plan_->dataset, plan_->read)),
      scratch_(recorder) {
  for (size_t c = 0; c < plan_->columns.size(); ++c) {
    dataset::FieldId field = plan_->column_fields[c];
    if (!plan_->columns[c].transform)
      has_values_ = true;
    else if (std::find(tensor_fields_.begin(), tensor_fields_.end(), field) == tensor_fields_.end())
      tensor_fields_.push_back(field);  // once, however many views of it there are
  }
}

// The index entries of a group lie anywhere in memory: their waits for it overlap.
void RowLoader::Measure(std::span<BatchRow> rows) {
  constexpr size_t kGroup = 64;
  std::array<uint64_t, kGroup> ids;
  while (!rows.empty()) {
    std::span<BatchRow> group = rows.first(std::min(rows.size(), kGroup));
    for (size_t i = 0; i < group.size(); ++i) ids[i] = group[i].sample_id;
    if (has_values_) reader_->Prefetch(std::span(ids).first(group.size()));
    for (BatchRow& row : group) MeasureRow(&row);
    rows = rows.subspan(group.size());
  }
}

void RowLoader::MeasureRow(BatchRow* row) {
  std::fill(row->value_sizes.begin(), row->value_sizes.end(), 0);
  if (!has_values_) return;
  Result<dataset::SampleView> sample = reader_->Locate(row->sample_id);
  if (!sample.ok()) return;
  size_t v = 0;
  for (size_t c = 0; c < plan_->columns.size(); ++c) {
    if (plan_->columns[c].transform) continue;
    const dataset::FieldEntry* entry = sample->FindEntry(plan_->column_fields[c]);
    row->value_sizes[v++] = entry ? entry->length : 0;
  }
}

Status RowLoader::Load(Batch* batch, uint64_t r, uint64_t seed, std::vector<BadSample>* bad,
                       const Context& ctx) {
  BatchRow& row = batch->rows[r];
  Status status = LoadSample(batch, r, row.sample_id, seed, /*planned=*/true, ctx);
  if (status.ok()) {
    row.state = BatchRow::State::kLoaded;
    return status;
  }
  if (!IsSampleFault(status)) {
    row.state = BatchRow::State::kFailed;
    return status;
  }
  return LoadSubstitute(batch, r, seed, std::move(status), bad, ctx);
}

Status RowLoader::LoadSubstitute(Batch* batch, uint64_t r, uint64_t seed, Status reason,
                                 std::vector<BadSample>* bad, const Context& ctx) {
  BatchRow& row = batch->rows[r];
  auto book = [&](std::optional<uint64_t> substitute) {
    bad->push_back({batch->epoch, row.position, row.sample_id, substitute, reason});
  };
  if (plan_->on_error != OnError::kReplace) {
    book(std::nullopt);
    bool skip = plan_->on_error == OnError::kSkip;
    row.state = skip ? BatchRow::State::kSkipped : BatchRow::State::kFailed;
    return skip ? OkStatus() : std::move(reason);
  }
  Context anywhere = ctx;
  anywhere.caching = Caching::kPass;  // one sample of its neighbours: not worth a block
  while (row.attempts < kMaxSubstitutes) {
    uint64_t id = plan_->order->Substitute(batch->epoch, row.position, row.attempts++);
    book(id);
    row.sample_id = id;
    Status status = LoadSample(batch, r, id, seed, /*planned=*/false, anywhere);
    row.state = status.ok() ? BatchRow::State::kLoaded : BatchRow::State::kFailed;
    if (status.ok() || !IsSampleFault(status)) return status;
    reason = std::move(status);
  }
  book(std::nullopt);
  row.state = BatchRow::State::kFailed;
  return std::move(reason).Prefix(
      fmt::format("{} substitutes in a row were bad as well; the last one", kMaxSubstitutes));
}

Status RowLoader::LoadSample(Batch* batch, uint64_t r, uint64_t sample_id, uint64_t seed,
                             bool planned, const Context& ctx) {
  if (!tensor_fields_.empty() || !has_values_)
    HR_RETURN_IF_ERROR(LoadTensors(batch, r, sample_id, seed, ctx));
  if (has_values_) HR_RETURN_IF_ERROR(LoadValues(batch, r, sample_id, planned, ctx));
  return OkStatus();
}

void RowLoader::WillLoad(const BatchRow& row, Caching caching) {
  if (plan_->column_fields.empty()) return;  // keys only
  Context ctx;
  ctx.caching = caching;
  reader_->WillRead(row.sample_id, plan_->column_fields, ctx);
}

void RowLoader::BookReadCost() {
  if (!recorder_) return;
  const dataset::SampleReader::Cost& cost = reader_->last_cost();
  // For a trace: as if one came after the other, in this order.
  const uint64_t end = TraceIsOn() ? NowNanos() : 0;
  const uint64_t checked = end - std::min(end, cost.seek_points_ns);
  const uint64_t read = checked - std::min(checked, cost.checksum_ns);
  recorder_->Busy(Stage::kRead, cost.read_ns, cost.bytes, read);
  if (cost.checksum_ns > 0)
    recorder_->Busy(Stage::kChecksum, cost.checksum_ns, cost.bytes, checked);
  if (cost.seek_points_ns > 0) recorder_->Busy(Stage::kDecode, cost.seek_points_ns, 0, end);
}

Status RowLoader::MissingField(const dataset::SampleView& sample, size_t column) const {
  std::string found;
  for (const dataset::FieldEntry& entry : sample.entries)
    found += (found.empty() ? "" : ", ") + plan_->dataset->fields()[entry.field];
  const std::string& name = plan_->columns[column].field;
  return Error(Code::kNotFound, "the sample has no field '{}'; it has: {}", name, found)
      .At({std::string(sample.shard), std::nullopt, std::string(sample.key), name});
}

Location RowLoader::Where(uint64_t sample_id, std::string_view field) {
  Result<dataset::SampleView> sample = reader_->Locate(sample_id);
  if (!sample.ok()) return sample.status().location();
  for (const dataset::FieldEntry& entry : sample->entries)
    if (plan_->dataset->fields()[entry.field] == field) return reader_->Where(entry);
  return {std::string(sample->shard), std::nullopt, std::string(sample->key), std::string(field)};
}

Status RowLoader::LoadTensors(Batch* batch, uint64_t r, uint64_t sample_id, uint64_t seed,
                              const Context& ctx) {
  if (tensor_fields_.empty()) {  // keys only
    HR_ASSIGN_OR_RETURN(dataset::SampleView sample, reader_->Locate(sample_id));
    batch->rows[r].key.assign(sample.key);
    return OkStatus();
  }
  HR_ASSIGN_OR_RETURN(dataset::SampleView sample, reader_->Read(sample_id, tensor_fields_, ctx));
  BookReadCost();
  batch->rows[r].key.assign(sample.key);
  codec::DrawKey draw{seed, batch->epoch, sample_id};
  for (size_t c = 0; c < plan_->columns.size(); ++c) {
    if (!plan_->columns[c].transform) continue;
    const dataset::FieldView* field = sample.Find(plan_->column_fields[c]);
    if (!field) return MissingField(sample, c);
    codec::DecodeHints hints{.seek_points = field->seek_points, .crc32c = field->crc32c};
    Status status = plan_->columns[c].transform->Apply(field->data, hints, draw, &scratch_,
                                                       batch->TensorRow(c, r));
    if (status.ok()) continue;
    Status placed = reader_->AtField(status, sample, plan_->column_fields[c]);
    if (placed.code() != Code::kResourceExhausted) return placed;
    // An image over a limit is a bad sample.
    return Status(Code::kDataLoss, std::string(placed.message())).At(placed.location());
  }
  return OkStatus();
}

Status RowLoader::LoadValues(Batch* batch, uint64_t r, uint64_t sample_id, bool planned,
                             const Context& ctx) {
  BatchRow& row = batch->rows[r];
  uint64_t total = 0;
  if (!planned) {
    BatchRow probe;
    probe.sample_id = sample_id;
    probe.value_sizes.resize(row.value_sizes.size());
    MeasureRow(&probe);
    for (uint64_t size : probe.value_sizes) total += size;
    row.value_sizes = probe.value_sizes;
    if (!row.overflow.Reserve(std::max<uint64_t>(total, 1)))
      return Error(Code::kResourceExhausted, "no memory for a sample of {} bytes", total);
  }
  HR_ASSIGN_OR_RETURN(dataset::SampleView sample, reader_->Locate(sample_id));
  row.key.assign(sample.key);
  uint64_t used = 0;
  size_t v = 0;
  for (size_t c = 0; c < plan_->columns.size(); ++c) {
    if (plan_->columns[c].transform) continue;
    const dataset::FieldEntry* entry = sample.FindEntry(plan_->column_fields[c]);
    if (!entry && plan_->required[c]) return MissingField(sample, c);
    if (entry) {
      std::byte* to = planned ? row.value_places[v] : row.overflow.data() + used;
      HR_RETURN_IF_ERROR(reader_->ReadField(*entry, {to, entry->length}, ctx));
      BookReadCost();
      row.values[v] = {to, entry->length};
      used += entry->length;
    } else {
      row.values[v] = Bytes();
    }
    ++v;
  }
  return OkStatus();
}

}  // namespace headrace::loader
