// How a list of samples is dealt to shards: a pure function of the list and the limits, so that the
// same input gives the same bytes whatever the number of threads. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/dataset/pack_list.h"

namespace headrace::dataset {

// One shard to be: samples [first, first + num) of the list.
struct PackSpan {
  uint64_t first_sample = 0;
  uint64_t num_samples = 0;
  uint64_t tar_bytes = 0;  // size of its file, headers, padding and end blocks included
};

// Cuts the list in its order: a shard is closed before the sample that would take it over
// `shard_bytes` (of tar file) or `shard_samples` (0 = no limit). A sample larger than `shard_bytes`
// gets a shard of its own.
std::vector<PackSpan> CutIntoShards(const PackList& list, uint64_t shard_bytes,
                                    uint64_t shard_samples);

// Mixes the samples with a permutation that depends on `seed` and their number only.
void ShuffleList(uint64_t seed, PackList* list);

// Appends the path of a member of the tar: "key.field".
void AppendMemberPath(std::string_view key, std::string_view field, std::string* out);

// "shard-000042.tar". An overwriting pack uses the other generation (1: "shard-b-000042.tar"), so
// that the files of the version before stay in place until the new one is published.
std::string ShardFileName(unsigned generation, uint64_t shard);

}  // namespace headrace::dataset
