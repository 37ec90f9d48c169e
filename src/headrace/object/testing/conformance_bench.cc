#include "headrace/object/testing/conformance_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "headrace/env/process.h"

namespace headrace::object {

Result<std::string> Bench::TryWrite(const std::string& key, const std::string& content) const {
  if (can().write) return t_.store->Put(key, AsBytes(content), {}, Context());
  HR_RETURN_IF_ERROR(t_.put(key, content));
  return std::string();
}

std::string Bench::Write(const std::string& key, const std::string& content) const {
  auto etag = TryWrite(key, content);
  EXPECT_TRUE(etag.ok()) << etag.status().ToString();
  return etag.ok() ? *etag : "";
}

Status Bench::Remove(const std::string& key) const {
  return can().write ? t_.store->Delete(key, Context()) : t_.remove(key);
}

std::string Bench::Read(const std::string& key) const {
  auto error = [](const Status& status) {
    return "error: " + std::string(CodeName(status.code()));
  };
  auto info = t_.store->Head(key, Context());
  if (!info.ok()) return error(info.status());
  auto content = ReadRange(key, 0, info->size_bytes);
  return content.ok() ? *content : error(content.status());
}

Result<std::string> Bench::ReadRange(const std::string& key, uint64_t offset, size_t bytes,
                                     const std::string& if_match) const {
  std::string content(bytes, '?');
  auto info = t_.store->Get(
      {.key = key, .offset = offset, .out = Writable(&content), .if_match = if_match}, Context());
  if (!info.ok()) return std::move(info).status();
  return content;
}

std::vector<std::string> Bench::Keys(const std::string& prefix, uint32_t max) const {
  auto names = Names({.prefix = prefix, .delimiter = {}, .after = {}, .token = {}, .max = max});
  if (!names.ok()) return {names.status().ToString()};
  return *std::move(names);
}

Result<std::vector<std::string>> Bench::Names(ListRequest request) const {
  constexpr int kMaxPages = 100'000;
  std::vector<std::string> names;
  for (int pages = 0; pages < kMaxPages; ++pages) {
    HR_ASSIGN_OR_RETURN(ListPage page, t_.store->List(request, Context()));
    EXPECT_LE(page.objects.size() + page.prefixes.size(), request.max);
    for (const ObjectInfo& info : page.objects) names.push_back(info.key);
    for (const std::string& prefix : page.prefixes) names.push_back(prefix);
    if (page.next.empty()) {
      // Objects and prefixes of a page are two lists; together they are in order.
      if (!request.delimiter.empty() || !can().ordered_list) std::sort(names.begin(), names.end());
      return names;
    }
    request.token = page.next;
  }
  return Status(Code::kInternal, "the listing has no end");
}

std::string Pattern(size_t bytes, uint32_t seed) {
  std::string content(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    content[i] = static_cast<char>(((i + seed) * 2654435761u) >> 13);
  return content;
}

void RunInThreads(uint32_t n, const std::function<void(uint32_t)>& run) {
  std::vector<std::unique_ptr<Thread>> threads;
  for (uint32_t i = 0; i < n; ++i) {
    auto thread = Thread::Start("conformance", [&run, i] { run(i); });
    ASSERT_TRUE(thread.ok()) << thread.status().ToString();
    threads.push_back(*std::move(thread));
  }
}

MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

namespace {

class SuiteTest : public ::testing::Test {
 public:
  SuiteTest(void (*run)(const Bench&), const ConformanceOptions& options)
      : run_(run), options_(options) {}
  void TestBody() override {
    StoreUnderTest under_test = options_.open();
    if (::testing::Test::HasFatalFailure() || ::testing::Test::IsSkipped()) return;
    ASSERT_NE(under_test.store, nullptr) << "no store to test";
    run_(Bench(options_, std::move(under_test)));
  }

 private:
  void (*run_)(const Bench&);
  const ConformanceOptions options_;
};

}  // namespace

bool RegisterObjectStoreSuite(const std::string& name, const ConformanceOptions& options) {
  std::string suite = "ObjectStoreSuite/" + name;
  for (std::span<const NamedTest> tests : {ReadAndWriteTests(), KeyTests(), UploadTests()}) {
    for (const NamedTest& test : tests) {
      if (test.applies && !test.applies(options.abilities)) continue;
      ::testing::RegisterTest(
          suite.c_str(), test.name, nullptr, nullptr, __FILE__, __LINE__,
          [run = test.run, options]() -> ::testing::Test* { return new SuiteTest(run, options); });
    }
  }
  return true;
}

}  // namespace headrace::object
