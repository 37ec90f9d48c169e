// Writes a checkpoint in parts, one after the other, each as one rank of a job would write it: for
// imports, whose tensors need not all be in memory at once. One thread at a time.
//
//   HR_ASSIGN_OR_RETURN(PartsWriter writer, PartsWriter::Start(&store, &files, what, ctx));
//   while (...) HR_RETURN_IF_ERROR(writer.Write(boxes, ctx));  // what.parts times
//   HR_ASSIGN_OR_RETURN(SaveId id, writer.Publish(ctx));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/rank_writer.h"

namespace headrace::checkpoint {

class PartsWriter {
 public:
  struct What {
    uint64_t epoch = 0;   // the writer's (CatalogStore::TakeOver)
    uint64_t step = 0;    // its attempt is the next free one of this epoch
    uint32_t parts = 1;   // how often Write will be called; >= 1
    TensorTable tensors;  // all of the checkpoint
    std::string tree;     // JSON of the state's structure
    std::string created_by;
    Level level = Level::kLocal;  // what durable in this store means
    int threads = 2;              // hash; >= 1
  };

  // Both must outlive it. kFailedPrecondition when another writer has taken over;
  // kResourceExhausted when there is no room for all tensors, and nothing in the store that they
  // could share.
  static Result<PartsWriter> Start(CatalogStore* store, DataFiles* files, What what,
                                   const Context& ctx);

  const SaveId& id() const { return info_.id; }
  // The next part; the boxes of all parts together must be all tensors. What the newest checkpoint
  // holds is not written again. Failures are those of RankWriter.
  Status Write(std::vector<SavedBox> boxes, const Context& ctx);
  // After the last part. Failures are those of PublishRanks.
  Status Publish(const Context& ctx);
  uint64_t reused_bytes() const { return report_.reused_bytes; }  // so far

 private:
  PartsWriter(CatalogStore* store, DataFiles* files, What what)
      : store_(store), files_(files), what_(std::move(what)) {}
  Status Prepare(const Context& ctx);
  Status CheckRoom(const Context& ctx);

  CatalogStore* store_;
  DataFiles* files_;
  What what_;
  SaveInfo info_;
  std::optional<Manifest> before_;
  uint32_t next_ = 0;
  WriteReport report_;
};

}  // namespace headrace::checkpoint
