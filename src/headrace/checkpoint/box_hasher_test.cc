#include "headrace/checkpoint/box_hasher.h"

#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/keyed_random.h"

namespace headrace::checkpoint {
namespace {

constexpr Hash128 kName{7, 9};

std::string RandomBytes(uint64_t seed, size_t size) {
  std::string bytes(size, '\0');
  KeyedRandom random(seed);
  for (char& c : bytes) c = static_cast<char>(random.Next());
  return bytes;
}

// Sizes around those of a chunk, and small ones.
rc::Gen<std::vector<uint64_t>> Sizes() {
  return rc::gen::container<std::vector<uint64_t>>(
      rc::gen::oneOf(rc::gen::inRange<uint64_t>(0, 300), rc::gen::inRange<uint64_t>(65'530, 65'545),
                     rc::gen::inRange<uint64_t>(131'000, 200'000)));
}

RC_GTEST_PROP(BoxHasher, IsWhatHashesAndChecksumsSay, (uint64_t seed, uint16_t head)) {
  const std::vector<uint64_t> sizes = *Sizes();
  const size_t cut = *rc::gen::inRange<size_t>(0, sizes.size() + 1);  // two threads' turns
  std::string file = RandomBytes(seed, head);
  ChunkSums::Builder builder;
  builder.Append(AsBytes(file));
  for (const auto& [first, last] : {std::pair(size_t{0}, cut), std::pair(cut, sizes.size())}) {
    BoxHasher hasher(file.size());
    for (size_t i = first; i < last; ++i) {
      const std::string box = RandomBytes(seed + i + 1, sizes[i]);
      const BoxSums sums = hasher.Add(AsBytes(box));
      RC_ASSERT(sums.hash == HashOf(AsBytes(box)));
      RC_ASSERT(sums.crc32c == Crc32c(AsBytes(box)));
      file += box;
    }
    builder.Append(hasher.part());
  }
  ChunkSums::Builder expected;
  expected.Append(AsBytes(file));
  const ChunkSums found = builder.Finish(kName);
  RC_ASSERT(found.Encode() == expected.Finish(kName).Encode());
  RC_ASSERT(found.WholeFile() == Crc32c(AsBytes(file)));
}

}  // namespace
}  // namespace headrace::checkpoint
