#include "headrace/env/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(DynamicLibrary, FindsWhatALibraryHas) {
  auto library = DynamicLibrary::Open("libc.so.6");
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  auto* to_upper = reinterpret_cast<int (*)(int)>(library->Find("toupper"));
  ASSERT_NE(to_upper, nullptr);
  EXPECT_EQ(to_upper('h'), 'H');
  EXPECT_EQ(library->Find("headrace_has_no_such_function"), nullptr);
}

TEST(DynamicLibrary, NamesTheLibraryThatIsNotThere) {
  auto library = DynamicLibrary::Open("libheadrace-is-not-there.so.9");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::kNotFound);
  EXPECT_THAT(library.status().ToString(), HasSubstr("libheadrace-is-not-there.so.9"));
}

}  // namespace
}  // namespace headrace
