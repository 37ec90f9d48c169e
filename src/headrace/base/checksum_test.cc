// CRC32C and SHA-256 against their published values and their own definition.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "headrace/base/crc32c.h"
#include "headrace/base/sha256.h"

namespace headrace {
namespace {

// The definition: one bit at a time, reflected polynomial 0x82f63b78.
uint32_t SlowCrc32c(std::string_view text) {
  uint32_t crc = ~0u;
  for (char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

std::string Sha256Of(std::string_view text) {
  Sha256 sha;
  sha.Update(text);
  return sha.Finish();
}

RC_GTEST_PROP(Crc32c, OfJoinedPartsIsThatOfBoth, (const std::string& a, const std::string& b)) {
  RC_ASSERT(JoinCrc32c(Crc32c(AsBytes(a)), Crc32c(AsBytes(b)), b.size()) == Crc32c(AsBytes(a + b)));
}

TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
  // RFC 3720, B.4.
  std::array<std::byte, 32> data{};
  EXPECT_EQ(Crc32c(data), 0x8a9136aau);
  data.fill(std::byte{0xff});
  EXPECT_EQ(Crc32c(data), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) data[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(data), 0x46dd794eu);
}

RC_GTEST_PROP(Crc32c, IsTheDefinition, (const std::string& text)) {
  RC_ASSERT(Crc32c(AsBytes(text)) == SlowCrc32c(text));
}

RC_GTEST_PROP(Crc32c, JoinsParts, (const std::string& one, const std::string& two)) {
  RC_ASSERT(Crc32c(AsBytes(two), Crc32c(AsBytes(one))) == Crc32c(AsBytes(one + two)));
}

TEST(Sha256, PublishedVectors) {  // FIPS 180-2 and its examples
  EXPECT_EQ(Sha256Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PartsMakeTheWhole) {
  Sha256 sha;
  sha.Update("a");
  sha.Update("");
  sha.Update(AsBytes("bc"));
  EXPECT_EQ(sha.Finish(), Sha256Of("abc"));
}

}  // namespace
}  // namespace headrace
