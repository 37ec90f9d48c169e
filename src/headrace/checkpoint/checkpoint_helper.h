// The helper process of a trainer: holds the arena, keeps saves in memory and drains them, and
// outlives the trainer. One for each rank and store; it listens in the store's home folder
// (HelperSocket). The process that runs it does nothing else.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace::checkpoint {

struct HelperOptions {
  // Without a trainer that opened it, it ends.
  std::chrono::milliseconds unopened{std::chrono::minutes(2)};
  // A drain that does not come to its end is given up so long after the last trainer went; the next
  // run, or `headrace ckpt drain`, goes on.
  std::chrono::milliseconds patience{std::chrono::hours(24)};
  // Once it is set nobody is waited for who may come: the helper ends when no trainer is connected
  // and all that it has is drained.
  const std::atomic<bool>* leave = nullptr;
};

class CheckpointHelper {
 public:
  // Listens.
  //   kAlreadyExists       the store's helper for this rank runs already.
  //   kFailedPrecondition  a tool drains this store just now.
  //   others               as LocalListener::Listen.
  static Result<std::unique_ptr<CheckpointHelper>> Start(const std::string& home, uint32_t rank,
                                                         const HelperOptions& options);
  ~CheckpointHelper();

  // Serves until no trainer needs it and all is drained. kCancelled from the context; what is in
  // memory only is lost then.
  Status Run(const Context& ctx);

 private:
  class Rep;
  explicit CheckpointHelper(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace headrace::checkpoint
