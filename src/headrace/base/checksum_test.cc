// CRC32C and SHA-256 against their published values and their own definition.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "headrace/base/crc32c.h"
#include "headrace/base/crc32c_joiner.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"

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

RC_GTEST_PROP(Crc32c, AJoinerDoesTheSame, (uint32_t first, uint32_t second, uint16_t bytes)) {
  const Crc32cJoiner joiner(bytes);
  RC_ASSERT(joiner.Join(first, second) == JoinCrc32c(first, second, bytes));
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

TEST(Crc32c, OfWhatIsCopied) {
  std::string text(20'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i);
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{8191}, size_t{8192}, size_t{8193}, text.size()}) {
    std::string copy(size + 1, '?');
    Bytes part = AsBytes(text).first(size);
    EXPECT_EQ(CopyWithCrc32c(std::as_writable_bytes(std::span(copy)).data(), part, 5),
              Crc32c(part, 5));
    EXPECT_EQ(copy, text.substr(0, size) + "?");
  }
}

TEST(HmacSha256, PublishedVectors) {  // RFC 4231, cases 1, 2, 3, 6 and 7
  EXPECT_EQ(HexText(HmacSha256(AsBytes(std::string(20, '\x0b')), AsBytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(HexText(HmacSha256(AsBytes("Jefe"), AsBytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(HexText(HmacSha256(AsBytes(std::string(20, '\xaa')), AsBytes(std::string(50, '\xdd')))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string long_key(131, '\xaa');
  EXPECT_EQ(HexText(HmacSha256(AsBytes(long_key),
                               AsBytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(HexText(HmacSha256(
                AsBytes(long_key),
                AsBytes("This is a test using a larger than block-size key and a larger than "
                        "block-size data. The key needs to be hashed before being used by the "
                        "HMAC algorithm."))),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Md5, PublishedVectors) {  // RFC 1321, A.5
  EXPECT_EQ(HexText(Md5({})), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(HexText(Md5(AsBytes("message digest"))), "f96b697d7cb7938d525a2f31aaf161d0");
}

}  // namespace
}  // namespace headrace
