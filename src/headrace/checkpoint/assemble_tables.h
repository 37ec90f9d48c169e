// What an Assembler looks things up in while ranks come in. One owner at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/checkpoint/hash128.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

struct NameHash {
  size_t operator()(const Hash128& name) const { return name.low ^ name.high; }
};
struct TextHash {
  size_t operator()(std::string_view text) const { return HashOf(AsBytes(text)).low; }
};

// The numbers of tensors by path: open addressing over the table, without a copy of any path.
class PathIndex {
 public:
  // The number of the tensor with the path; where it would be put in `slot` when there is none.
  std::optional<uint32_t> Find(const TensorTable& tensors, std::string_view path, size_t* slot) {
    if (tensors.size() * 2 >= slots_.size()) Grow(tensors, slots_.size() * 2);
    for (*slot = SlotOf(path); slots_[*slot] != kFree; *slot = (*slot + 1) & (slots_.size() - 1))
      if (tensors.path(slots_[*slot]) == path) return slots_[*slot];
    return std::nullopt;
  }
  void Put(size_t slot, uint32_t tensor) { slots_[slot] = tensor; }
  // Makes room for so many tensors at once.
  void Reserve(const TensorTable& tensors, size_t count) {
    if (count * 2 > slots_.size()) Grow(tensors, count * 2);
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  size_t SlotOf(std::string_view path) const {
    return HashOf(AsBytes(path)).low & (slots_.size() - 1);
  }
  void Grow(const TensorTable& tensors, size_t slots) {
    slots_.assign(std::bit_ceil(std::max<size_t>(slots, 1024)), kFree);
    for (uint32_t i = 0; i < tensors.size(); ++i) {
      size_t slot = SlotOf(tensors.path(i));
      while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = i;
    }
  }

  std::vector<uint32_t> slots_;
};

// A text from each rank, where most have the same.
class TextsOfRanks {
 public:
  explicit TextsOfRanks(uint32_t world_size) : of_rank_(world_size) {}
  void Set(uint32_t rank, const std::string& text) {
    const auto place = places_.try_emplace(text, static_cast<uint32_t>(places_.size())).first;
    of_rank_[rank] = place->second;
  }
  // Numbers them anew by the first rank that has each.
  RankTexts Finish() {
    std::vector<const std::string*> by_place(places_.size());
    for (const auto& [text, place] : places_) by_place[place] = &text;
    std::vector<uint32_t> renumbered(places_.size(), UINT32_MAX);
    RankTexts texts;
    for (uint32_t place : of_rank_) {
      if (renumbered[place] == UINT32_MAX) {
        renumbered[place] = static_cast<uint32_t>(texts.texts.size());
        texts.texts.push_back(*by_place[place]);
      }
      texts.of_rank.push_back(renumbered[place]);
    }
    return texts;
  }

 private:
  std::unordered_map<std::string, uint32_t, TextHash> places_;
  std::vector<uint32_t> of_rank_;
};

}  // namespace headrace::checkpoint
