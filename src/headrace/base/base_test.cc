#include <gtest/gtest.h>

#include "headrace/base/crc32c.h"
#include "headrace/base/sha256.h"

namespace headrace {
namespace {

TEST(Crc32c, KnownValue) { EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xe3069283u); }

}  // namespace
}  // namespace headrace
