#include "headrace/checkpoint/parts_writer.h"

#include <algorithm>
#include <utility>

#include "headrace/checkpoint/publisher.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {

Result<PartsWriter> PartsWriter::Start(CatalogStore* store, DataFiles* files, What what,
                                       const Context& ctx) {
  PartsWriter writer(store, files, std::move(what));
  HR_RETURN_IF_ERROR(writer.Prepare(ctx));
  return writer;
}

// The newest checkpoint, whose files are named again where they hold the same, and the attempt.
Status PartsWriter::Prepare(const Context& ctx) {
  HR_RETURN_IF_ERROR(store_->CheckEpoch(what_.epoch, ctx));
  HR_ASSIGN_OR_RETURN(const Catalog catalog, store_->Read(ctx));
  info_.id = {what_.step, what_.epoch, 1};
  info_.world_size = std::max(what_.parts, 1u);
  info_.started_ns = WallClockNanos();
  info_.created_by = what_.created_by;
  for (const CatalogEntry& entry : catalog.entries)
    if (entry.id.step == what_.step && entry.id.epoch == what_.epoch)
      info_.id.attempt = std::max(info_.id.attempt, entry.id.attempt + 1);
  if (catalog.entries.empty()) return CheckRoom(ctx);
  HR_ASSIGN_OR_RETURN(before_, store_->ReadManifest(catalog.entries.back(), ctx));
  return OkStatus();
}

Status PartsWriter::CheckRoom(const Context& ctx) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < what_.tensors.size(); ++i)
    bytes +=
        BytesOf(what_.tensors.dtype(i), Volume(what_.tensors.shape(i)).value_or(0)).value_or(0);
  return files_->CheckRoom(bytes + bytes / 1024 + (uint64_t{1} << 20), ctx);
}

Status PartsWriter::Write(std::vector<SavedBox> boxes, const Context& ctx) {
  if (next_ >= info_.world_size)
    return Error(Code::kInvalidArgument, "{} parts were announced and another one comes",
                 info_.world_size);
  RankSave save;
  save.info = info_;
  save.rank = next_;
  save.tree = what_.tree;
  save.tensors = what_.tensors;
  save.boxes = std::move(boxes);
  WriteOptions options;
  options.threads = what_.threads;
  RankWriter writer(files_, options);
  HR_RETURN_IF_ERROR(writer.Write(save, before_ ? &*before_ : nullptr, ctx, &report_).status());
  ++next_;
  return OkStatus();
}

Status PartsWriter::Publish(const Context& ctx) {
  if (next_ != info_.world_size)
    return Error(Code::kInvalidArgument, "{} of {} parts were written", next_, info_.world_size);
  return PublishRanks(store_, info_, what_.level, ctx).status();
}

}  // namespace headrace::checkpoint
