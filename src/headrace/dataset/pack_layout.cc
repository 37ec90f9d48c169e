#include "headrace/dataset/pack_layout.h"

#include <fmt/core.h>

#include <utility>

#include "headrace/base/keyed_random.h"
#include "headrace/dataset/tar.h"

namespace headrace::dataset {

std::vector<PackSpan> CutIntoShards(const PackList& list, uint64_t shard_bytes,
                                    uint64_t shard_samples) {
  std::vector<PackSpan> spans;
  std::string member;
  for (size_t i = 0; i < list.num_samples(); ++i) {
    uint64_t bytes = 0;
    for (const PackField& field : list.fields(i)) {
      member.clear();
      AppendMemberPath(list.key(i), list.name(field), &member);
      bytes += TarHeaderBytes(member, field.size_bytes) + TarPaddedBytes(field.size_bytes);
    }
    bool full = spans.empty() || spans.back().tar_bytes + bytes > shard_bytes ||
                (shard_samples != 0 && spans.back().num_samples >= shard_samples);
    if (full) spans.push_back({i, 0, kTarEndBytes});
    ++spans.back().num_samples;
    spans.back().tar_bytes += bytes;
  }
  return spans;
}

void ShuffleList(uint64_t seed, PackList* list) {
  std::vector<uint64_t> order(list->num_samples());
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = i;
  constexpr uint64_t kPackShuffle = 0x7061636b;  // "pack": draws of their own, whatever the seed
  KeyedRandom random(HashKey(kPackShuffle, seed));
  for (uint64_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.NextBelow(i)]);
  list->Reorder(order);
}

void AppendMemberPath(std::string_view key, std::string_view field, std::string* out) {
  out->append(key).push_back('.');
  out->append(field);
}

std::string ShardFileName(unsigned generation, uint64_t shard) {
  return fmt::format("shard-{}{:06}.tar", generation == 0 ? "" : "b-", shard);
}

}  // namespace headrace::dataset
