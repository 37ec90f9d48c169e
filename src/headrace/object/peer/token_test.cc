#include "headrace/object/peer/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Token, IsReadWithoutTheEndOfItsLine) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.WriteAtomically("/token", AsBytes("a secret of some length\r\n")).ok());
  auto token = ReadTokenFile(&files, "/token");
  ASSERT_TRUE(token.ok()) << token.status().ToString();
  EXPECT_EQ(*token, "a secret of some length");
  ASSERT_TRUE(files.WriteAtomically("/empty", AsBytes("\n")).ok());
  EXPECT_EQ(ReadTokenFile(&files, "/empty").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ReadTokenFile(&files, "/none").status().code(), Code::kNotFound);
  ASSERT_TRUE(files.WriteAtomically("/long", AsBytes(std::string(5000, 'x'))).ok());
  const Status refused = ReadTokenFile(&files, "/long").status();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.ToString(), Not(HasSubstr("xxx")));
}

TEST(Token, IsProvenForOneNonceOnly) {
  const std::string proof = TokenProof("sixteen letters.", "nonce");
  EXPECT_EQ(proof.size(), 32u);
  EXPECT_TRUE(IsTokenProof(proof, "sixteen letters.", "nonce"));
  EXPECT_FALSE(IsTokenProof(proof, "sixteen letters.", "nonces"));
  EXPECT_FALSE(IsTokenProof(proof, "sixteen letters!", "nonce"));
  EXPECT_FALSE(IsTokenProof(proof.substr(1), "sixteen letters.", "nonce"));
  EXPECT_FALSE(IsTokenProof(proof + "x", "sixteen letters.", "nonce"));
  EXPECT_FALSE(IsTokenProof("", "sixteen letters.", "nonce"));
}

}  // namespace
}  // namespace headrace::object
