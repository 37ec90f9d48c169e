// Publishes a checkpoint once all ranks have written theirs. Runs on one side only (rank 0's);
// ranks meet in the store and nowhere else. Any thread; one publish of a save at a time.
#pragma once

#include <cstdint>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

// Waits until the rank manifests of `info.id` are all in the store, checks that together they make
// a whole checkpoint, and publishes it. Removes the rank manifests afterwards.
//   kDeadlineExceeded    some ranks have not handed theirs in: names them.
//   kFailedPrecondition  they do not make a whole, with a list of what is wrong; or another writer
//                        has taken over.
//   kCancelled           from the context.
//   others               those of the store.
Result<Manifest> PublishRanks(CatalogStore* store, const SaveInfo& info, Level level,
                              const Context& ctx);

// The side of the other ranks: waits until the checkpoint is on the list.
//   kDeadlineExceeded    rank 0 has not published it.
//   kFailedPrecondition  another writer has taken over.
//   kCancelled           from the context.
//   others               those of the store.
Status WaitForPublish(CatalogStore* store, const SaveInfo& info, const Context& ctx);

}  // namespace headrace::checkpoint
