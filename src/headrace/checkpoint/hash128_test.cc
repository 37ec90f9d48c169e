#include "headrace/checkpoint/hash128.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::checkpoint {
namespace {

TEST(Hash128, IsXxh3) {
  // Values of Python's xxhash.xxh3_128.
  EXPECT_EQ(HashOf({}).Hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(HashOf(AsBytes("123456789")).Hex(), "33119477ede5dcd5e9716427681d5860");
}

TEST(Hash128, Hex) {
  const Hash128 hash{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(hash.Hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Hash128::FromHex(hash.Hex()), hash);
  for (std::string_view wrong :
       {"", "0123456789abcdeffedcba987654321", "0123456789ABCDEFFEDCBA9876543210",
        "0123456789abcdeffedcba98765432100", "g123456789abcdeffedcba9876543210"})
    EXPECT_EQ(Hash128::FromHex(wrong), std::nullopt) << wrong;
}

RC_GTEST_PROP(Hash128Property, PiecesGiveTheHashOfTheWhole,
              (const std::vector<std::string>& pieces)) {
  HashStream stream;
  stream.Update(AsBytes("forgotten"));
  stream.Reset();
  std::string whole;
  for (const std::string& piece : pieces) {
    stream.Update(AsBytes(piece));
    whole += piece;
    RC_ASSERT(stream.Get() == HashOf(AsBytes(whole)));
  }
}

TEST(NameOfDataFile, DependsOnHeaderAndEntriesInOrder) {
  const Hash128 a{1, 2}, b{3, 4};
  const std::vector<Hash128> ab = {a, b}, ba = {b, a};
  const Hash128 name = NameOfDataFile(AsBytes("header"), ab);
  EXPECT_NE(name, NameOfDataFile(AsBytes("header"), ba));
  EXPECT_NE(name, NameOfDataFile(AsBytes("headers"), ab));
  // The header, then for each entry its low and high half.
  std::string all = "header";
  for (uint64_t half : {2, 1, 4, 3}) all.append(reinterpret_cast<const char*>(&half), 8);
  EXPECT_EQ(name, HashOf(AsBytes(all)));
}

}  // namespace
}  // namespace headrace::checkpoint
