// What the tests of the conformance suite share: a store with the shortest way to its objects.
// Internal to object/testing. One test owns it; its calls are as thread-safe as the store.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/object/testing/conformance.h"

namespace headrace::object {

#define EXPECT_CODE(expression, expected)                                                         \
  [](const ::headrace::Status& got) {                                                             \
    EXPECT_EQ(::headrace::CodeName(got.code()), ::headrace::CodeName(::headrace::Code::expected)) \
        << got.ToString();                                                                        \
  }(expression)

class Bench {
 public:
  Bench(const ConformanceOptions& options, StoreUnderTest under_test)
      : options_(options), t_(std::move(under_test)) {}

  const ConformanceOptions& options() const { return options_; }
  const Abilities& can() const { return options_.abilities; }
  ObjectStore* operator->() const { return t_.store.get(); }
  ObjectStore& store() const { return *t_.store; }

  // Makes an object, by another way where the store cannot write. Returns its etag if known.
  Result<std::string> TryWrite(const std::string& key, const std::string& content) const;
  // The same; a failure fails the test.
  std::string Write(const std::string& key, const std::string& content) const;
  Status Remove(const std::string& key) const;
  // The whole content, or "error: not found" and the like.
  std::string Read(const std::string& key) const;
  Result<std::string> ReadRange(const std::string& key, uint64_t offset, size_t bytes,
                                const std::string& if_match = "") const;
  // Keys below `prefix`, over all pages of `max`.
  std::vector<std::string> Keys(const std::string& prefix = "", uint32_t max = 1000) const;
  // The same with all parts of the request; "x/" for a common prefix.
  Result<std::vector<std::string>> Names(ListRequest request) const;

 private:
  const ConformanceOptions& options_;
  StoreUnderTest t_;
};

// Bytes that differ at each place and for each seed.
std::string Pattern(size_t bytes, uint32_t seed);
// Runs `run` with 0..n-1 in as many threads and waits for them.
void RunInThreads(uint32_t n, const std::function<void(uint32_t)>& run);
MutableBytes Writable(std::string* text);

struct NamedTest {
  const char* name;
  void (*run)(const Bench&);
  bool (*applies)(const Abilities&);  // null: always
};
std::span<const NamedTest> ReadAndWriteTests();
std::span<const NamedTest> KeyTests();
std::span<const NamedTest> UploadTests();

}  // namespace headrace::object
