// The driver s3 against a real server, which the environment names: the variables that AWS tools
// read, HEADRACE_TEST_S3_BUCKET and HEADRACE_S3_DIALECT. It leaves objects in the bucket. Run by
// tests/integration/test_s3_servers.py, which starts servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/env/process.h"
#include "headrace/object/ref.h"
#include "headrace/object/retrying_store.h"
#include "headrace/object/s3/s3_store.h"
#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/patient_client.h"
#include "headrace/object/testing/prefix_store.h"
#include "headrace/object/testing/ref_suite.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Bucket() { return EnvironmentVariable("HEADRACE_TEST_S3_BUCKET").value_or("none"); }

S3Options Options() {
  S3Options options;
  options.dialect = EnvironmentVariable("HEADRACE_S3_DIALECT").value_or("s3");
  return options;
}

std::shared_ptr<ObjectStore> Open(const S3Options& options = Options(),
                                  const std::string& bucket = Bucket()) {
  auto store = OpenS3Store(bucket, options, PatientClient());
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? *std::move(store) : nullptr;
}

// The part of the bucket below a new prefix. As programs use it: a busy server may fail a request
// that races with another.
StoreUnderTest OpenEmpty() {
  static const int64_t start = WallClockNanos();
  static int number = 0;
  StoreUnderTest test;
  if (auto store = Open())
    test.store = MakePrefixStore(MakeRetryingStore(store),
                                 std::to_string(start) + "-" + std::to_string(++number) + "/");
  return test;
}

Abilities Claimed() {
  auto dialect = FindS3Dialect(Options().dialect);
  Abilities can;
  can.list = can.write = can.upload = can.get_if_match = can.put_mark = true;
  can.put_if_absent = dialect.ok() && dialect->put_if_absent;
  can.put_if_match = dialect.ok() && dialect->put_if_match;
  can.strict_keys = dialect.ok() && dialect->strict_keys;
  can.ordered_list = dialect.ok() && dialect->ordered_list;
  can.min_part_bytes = 5 << 20;
  return can;
}

// Keys in S3 are UTF-8; control characters have a test of their own. Prefixes take some of the
// length.
const bool kRegistered = RegisterObjectStoreSuite(
    "s3_server",
    {.abilities = Claimed(), .open = OpenEmpty, .text_keys_only = true, .max_key_bytes = 1000});

// What is published in a bucket turns on this.
RefUnderTest OpenRef() {
  std::shared_ptr<ObjectStore> store = OpenEmpty().store;
  return {[store] {
            auto ref = MakeObjectRef(store, "ref");
            EXPECT_TRUE(ref.ok()) << ref.status().ToString();
            return ref.ok() ? *std::move(ref) : nullptr;
          },
          store, /*answers_may_be_lost=*/true};
}
const bool kRefRegistered = RegisterRefSuite("s3_server", OpenRef);

TEST(S3Server, TakesControlCharactersInKeys) {
  StoreUnderTest test = OpenEmpty();
  for (const std::string key : {"a\nb", "a\tb", "a\rb", "\x01", "\x7f", "a\x1f/\x02"}) {
    auto etag = test.store->Put(key, AsBytes(key), {}, Context());
    ASSERT_TRUE(etag.ok()) << etag.status().ToString();
    EXPECT_EQ(test.store->Head(key, Context())->size_bytes, key.size());
  }
  auto page = test.store->List({}, Context());
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  EXPECT_EQ(page->objects.size(), 6u);
  Status refused = test.store->Put("caf\xe9", AsBytes("x"), {}, Context()).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused.ToString();
}

TEST(S3Server, RefusesOthersAndSaysWhy) {
  S3Options options = Options();
  options.access_key_id = EnvironmentVariable("AWS_ACCESS_KEY_ID").value_or("");
  options.secret_access_key = "wrongandsecret";
  Status wrong = Open(options)->Head("key", Context()).status();
  EXPECT_EQ(wrong.code(), Code::kPermissionDenied);
  EXPECT_THAT(wrong.ToString(), HasSubstr("secret access key does not belong"));
  EXPECT_THAT(wrong.ToString(), Not(HasSubstr("wrongandsecret")));
  options.access_key_id = "nobody";
  Status unknown = Open(options)->Head("key", Context()).status();
  EXPECT_EQ(unknown.code(), Code::kPermissionDenied);
  EXPECT_THAT(unknown.ToString(), HasSubstr("does not know"));
  options = Options();
  options.anonymous = true;
  EXPECT_EQ(Open(options)->Head("key", Context()).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(Open(options)->List({}, Context()).status().code(), Code::kPermissionDenied);
}

TEST(S3Server, SaysThatThereIsNoBucket) {
  auto store = Open(Options(), "headrace-no-such-bucket");
  for (const Status& status :
       {store->Head("key", Context()).status(), store->List({}, Context()).status()}) {
    EXPECT_EQ(status.code(), Code::kNotFound) << status.ToString();
    EXPECT_THAT(status.ToString(), HasSubstr("no bucket 'headrace-no-such-bucket'"));
  }
}

TEST(S3Server, ReadsALargeObjectInManyParts) {
  constexpr size_t kBytes = 24 << 20, kPart = 1 << 20;
  StoreUnderTest test = OpenEmpty();
  std::string content(kBytes, '\0');
  uint64_t value = 1;
  for (char& c : content) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(value >> 56);
  }
  auto etag = test.store->Put("large", AsBytes(content), {}, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  std::string out(kBytes, '?');
  std::vector<GetRequest> requests;
  std::vector<ObjectStore::GetDone> dones;
  Mutex mu;
  CondVar finished;
  size_t num_done = 0, num_right = 0;
  for (size_t at = 0; at < kBytes; at += kPart) {
    requests.push_back({.key = "large",
                        .offset = at,
                        .out = {reinterpret_cast<std::byte*>(out.data()) + at, kPart},
                        .if_match = *etag});
    dones.emplace_back([&](const Result<ObjectInfo>& result) {
      MutexLock lock(&mu);
      if (result.ok() && result->size_bytes == kBytes) ++num_right;
      if (++num_done == kBytes / kPart) finished.NotifyOne();
    });
  }
  test.store->SubmitGets(std::move(requests), std::move(dones), Context());
  MutexLock lock(&mu);
  while (num_done < kBytes / kPart) finished.Wait(&mu);
  EXPECT_EQ(num_right, kBytes / kPart);
  EXPECT_TRUE(out == content);
}

}  // namespace
}  // namespace headrace::object
