// CheckTiling. Boxes are parted by straight cuts: in some dimension into groups that share no
// coordinate, which must lie side by side without a gap. Each group is looked at again in the same
// way, until a group is one box that fills its region. What no straight cut parts is either boxes
// that overlap or an irregular cut (a pinwheel), and is looked at pair by pair.
#include <algorithm>
#include <tuple>

#include "headrace/checkpoint/box.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kMaxIrregular = 20'000;  // boxes that are looked at pair by pair

using Kind = TilingFault::Kind;

class Tiler {
 public:
  Tiler(Extents shape, std::span<const BoxView> boxes, size_t max_faults)
      : shape_(shape),
        boxes_(boxes),
        max_faults_(max_faults),
        work_left_(uint64_t{200} * (boxes.size() + 1) * (shape.size() + 1) + 400'000'000) {}

  std::vector<TilingFault> Run() {
    const Box whole = Box::Whole(shape_);
    if (!Volume(shape_)) return {{Kind::kTooIrregular, 0, 0, whole}};
    TakeIn();
    if (members_.empty()) {
      if (Volume(shape_) != 0) Add({Kind::kMissing, 0, 0, whole});
    } else {
      Enter(0, members_.size(), whole);
    }
    while (!tasks_.empty() && !full()) {
      const Task task = std::move(tasks_.back());
      tasks_.pop_back();
      Part(task);
    }
    std::sort(faults_.begin(), faults_.end(), [](const TilingFault& a, const TilingFault& b) {
      return std::tie(a.kind, a.first, a.second, a.region.offset) <
             std::tie(b.kind, b.first, b.second, b.region.offset);
    });
    return std::move(faults_);
  }

 private:
  struct Group {
    size_t begin, end;  // places in members_
    uint64_t from, to;  // what they hold of the dimension they were parted in
  };
  struct Task {
    size_t begin, end;
    Box region;  // all members lie in it
  };

  bool full() const { return faults_.size() >= max_faults_; }
  void Add(TilingFault fault) {
    if (!full()) faults_.push_back(std::move(fault));
  }
  // False when too much was done already.
  bool Spend(uint64_t work) {
    if (work > work_left_) return false;
    work_left_ -= work;
    return true;
  }
  uint64_t End(uint32_t box, size_t k) const {
    return boxes_[box].offset[k] + boxes_[box].length[k];
  }

  void TakeIn() {
    members_.reserve(boxes_.size());
    for (uint32_t i = 0; i < boxes_.size(); ++i) {
      if (!FitsInto(boxes_[i], shape_)) {
        Add({Kind::kOutside, i, i, Box(boxes_[i])});
      } else if (Volume(boxes_[i].length) != 0) {
        members_.push_back(i);
      }
    }
  }

  void Enter(size_t begin, size_t end, const Box& region) {
    if (end - begin == 1 && SameBox(boxes_[members_[begin]], region)) return;
    tasks_.push_back({begin, end, region});
  }

  void Part(const Task& task) {
    const size_t count = task.end - task.begin;
    for (size_t k = 0; k < shape_.size(); ++k) {
      if (!Spend(count)) return Add({Kind::kTooIrregular, 0, 0, task.region});
      if (PartAlong(task, k)) return;
    }
    if (count > 1) LookAtPairs(task);
  }

  // Returns false when no straight cut parts the members in dimension k and they reach from one
  // side of the region to the other.
  bool PartAlong(const Task& task, size_t k) {
    FindGroups(task, k);
    const uint64_t region_end = task.region.offset[k] + task.region.length[k];
    uint64_t at = task.region.offset[k];
    if (groups_.size() == 1 && groups_[0].from == at && groups_[0].to == region_end) return false;
    Box part = task.region;
    auto set = [&part, k](uint64_t from, uint64_t to) {
      part.offset[k] = from;
      part.length[k] = to - from;
    };
    for (const Group& group : groups_) {
      set(at, group.from);
      if (group.from > at) Add({Kind::kMissing, 0, 0, part});
      set(group.from, group.to);
      Enter(group.begin, group.end, part);
      at = group.to;
    }
    set(at, region_end);
    if (region_end > at) Add({Kind::kMissing, 0, 0, part});
    return true;
  }

  void FindGroups(const Task& task, size_t k) {
    const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(task.begin);
    const auto end = members_.begin() + static_cast<std::ptrdiff_t>(task.end);
    auto before = [this, k](uint32_t a, uint32_t b) {
      return boxes_[a].offset[k] < boxes_[b].offset[k];
    };
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
    groups_.clear();
    for (size_t i = task.begin; i < task.end; ++i) {
      const uint32_t box = members_[i];
      const uint64_t from = boxes_[box].offset[k], to = End(box, k);
      if (groups_.empty() || from >= groups_.back().to) groups_.push_back({i, i, from, to});
      groups_.back().end = i + 1;
      groups_.back().to = std::max(groups_.back().to, to);
    }
  }

  void LookAtPairs(const Task& task) {
    const size_t count = task.end - task.begin;
    if (count > kMaxIrregular || !Spend(count * count / 2))
      return Add({Kind::kTooIrregular, 0, 0, task.region});
    const bool sweep = !shape_.empty();
    if (sweep)
      std::sort(
          members_.begin() + static_cast<std::ptrdiff_t>(task.begin),
          members_.begin() + static_cast<std::ptrdiff_t>(task.end),
          [this](uint32_t a, uint32_t b) { return boxes_[a].offset[0] < boxes_[b].offset[0]; });
    unsigned __int128 volume = 0;
    for (size_t i = task.begin; i < task.end && !full(); ++i) {
      const uint32_t box = members_[i];
      volume += *Volume(boxes_[box].length);
      for (size_t j = i + 1; j < task.end && !full(); ++j) {
        if (sweep && boxes_[members_[j]].offset[0] >= End(box, 0)) break;
        LookAtPair(box, members_[j]);
      }
    }
    if (!full() && volume < *Volume(task.region.length)) Add({Kind::kMissing, 0, 0, task.region});
  }

  void LookAtPair(uint32_t a, uint32_t b) {
    std::optional<Box> shared = Overlap(boxes_[a], boxes_[b]);
    if (shared) Add({Kind::kOverlap, std::min(a, b), std::max(a, b), *std::move(shared)});
  }

  const Extents shape_;
  const std::span<const BoxView> boxes_;
  const size_t max_faults_;
  uint64_t work_left_;
  std::vector<uint32_t> members_;  // boxes with elements, in the order of the work
  std::vector<Task> tasks_;
  std::vector<Group> groups_;  // of the last PartAlong
  std::vector<TilingFault> faults_;
};

}  // namespace

std::vector<TilingFault> CheckTiling(Extents shape, std::span<const BoxView> boxes,
                                     size_t max_faults) {
  return Tiler(shape, boxes, max_faults).Run();
}

}  // namespace headrace::checkpoint
