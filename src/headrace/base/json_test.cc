#include "headrace/base/json.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Json, RoundTrip) {
  Result<Json> value = Json::Parse(R"({"a": [1, -2, 1.5, true, null, "x\n"], "b": {}})");
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(value->Dump(), R"({"a": [1, -2, 1.5, true, null, "x\n"], "b": {}})");
}

}  // namespace
}  // namespace headrace
