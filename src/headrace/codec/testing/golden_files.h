// The golden files of tests/compat/codec, for tests that define HEADRACE_GOLDEN_DIR. Test code
// only.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace headrace::codec {

inline std::string ReadGolden(const std::string& name) {
  std::string path = HEADRACE_GOLDEN_DIR;
  path.append("/").append(name);
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace headrace::codec
