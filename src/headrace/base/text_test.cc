#include "headrace/base/text.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Text, EscapeThenUnescape) {
  std::string bytes("a\\\n\t\x01\xff\xc2\x9b caf\xc3\xa9", 14);
  EXPECT_EQ(EscapeText(bytes), "a\\\\\\n\\t\\x01\\xff\\xc2\\x9b caf\xc3\xa9");
  EXPECT_EQ(*UnescapeText(EscapeText(bytes)), bytes);
}

}  // namespace
}  // namespace headrace
