// What each save of a run consists of, worked out once: tensors, boxes, and where in the arena each
// box goes. Immutable once made: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/arena.h"
#include "headrace/checkpoint/rank_writer.h"

namespace headrace::checkpoint {

class SavePlan {
 public:
  // A tensor of which this rank has one box.
  struct Item {
    std::string path;   // tensor_path.h
    std::string dtype;  // safetensors' name
    std::vector<uint64_t> shape;
    std::vector<uint64_t> offset, length;  // both empty: all of it
    bool replica = false;
  };

  // How boxes lie in the arena.
  enum class Layout : uint8_t {
    kAsFiles,  // as they do in the data files, so that these are written from there without a copy
    kAsGiven,  // in the order of the items, each at the next multiple of 64
  };

  // kInvalidArgument: a type that is not known, a box outside its tensor, a path that is there
  // twice with different types or shapes. Names the path.
  static Result<std::shared_ptr<const SavePlan>> Create(std::span<const Item> items,
                                                        Layout layout = Layout::kAsFiles);

  size_t size() const { return bytes_.size(); }
  // Of the arena.
  uint64_t total_bytes() const { return total_; }
  // Where the box of an item starts in a loan, and its bytes.
  uint64_t offset(size_t item) const { return offsets_[item]; }
  uint64_t bytes(size_t item) const { return bytes_[item]; }

  // Copies the items' bytes into a loan of at least total_bytes(). An address of 0 is left out: the
  // caller has put these there. addresses.size() == size().
  void CopyIn(std::span<const uint64_t> addresses, MutableBytes loan, int threads) const;
  // The save of what lies in a loan, boxes in the order in which they lie there. Without info,
  // rank, tree and loader state.
  RankSave Make(MutableBytes loan) const;

 private:
  SavePlan() = default;
  Status LayOutAsFiles();
  void LayOutGroup(std::vector<size_t> items);
  void LayOutAsGiven();
  TensorTable tensors_;
  std::vector<uint32_t> tensor_;
  std::vector<Box> boxes_;
  std::vector<bool> replica_;
  std::vector<uint64_t> offsets_, bytes_;
  std::vector<size_t> order_;  // items as they lie in the arena
  uint64_t total_ = 0;
};

}  // namespace headrace::checkpoint
