// How libcurl comes into the process. In a program of its own, where no other test has loaded it.
#include "headrace/net/curl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "headrace/env/file.h"

namespace headrace::net {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is mapped into this process.
std::string Mapped() { return PosixFileSystem()->ReadWhole("/proc/self/maps", 64 << 20).value(); }

TEST(CurlLibrary, IsLoadedWhenItIsFirstAskedFor) {
  EXPECT_THAT(Mapped(), Not(HasSubstr("libcurl")));
  auto library = LoadCurl();
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_THAT(Mapped(), HasSubstr("libcurl"));
  EXPECT_FALSE((*library)->version.empty());
  EXPECT_EQ((*library)->easy_strerror(CURLE_OK), std::string("No error"));
  EXPECT_EQ(*LoadCurl(), *library);
}

TEST(CurlLibrary, SaysWhatToInstall) {
  auto library = LoadCurlFrom("libheadrace-is-not-there.so.9");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::kUnimplemented);
  EXPECT_THAT(library.status().ToString(), HasSubstr("apt-get install libcurl4"));
  EXPECT_THAT(library.status().ToString(), HasSubstr("libheadrace-is-not-there.so.9"));
}

TEST(CurlLibrary, NamesAFunctionThatIsMissing) {
  auto library = LoadCurlFrom("libc.so.6");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::kUnimplemented);
  EXPECT_THAT(library.status().ToString(), HasSubstr("has no curl_"));
}

}  // namespace
}  // namespace headrace::net
