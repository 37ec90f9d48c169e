// The driver s3 against a bucket in memory behind a real server, with and without faults.
#include "headrace/object/s3/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/fake_s3.h"
#include "headrace/object/testing/fake_surroundings.h"
#include "headrace/object/testing/patient_client.h"

namespace headrace::object {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Abilities Everything() {
  Abilities can;
  can.list = can.write = can.upload = true;
  can.put_if_absent = can.put_if_match = can.get_if_match = can.put_mark = true;
  can.min_part_bytes = 5 << 20;
  return can;
}

StoreUnderTest OpenFake() {
  auto fake = std::make_shared<FakeS3>();
  FakeSurroundings world;
  auto settings = ReadS3Settings(fake->Options(), world.Get());
  settings->surroundings = S3Surroundings::Real();
  StoreUnderTest test;
  test.store = *OpenS3Store("bucket", *settings, PatientClient());
  test.owner = fake;
  return test;
}

const bool kRegistered =
    RegisterObjectStoreSuite("s3", {.abilities = Everything(), .open = OpenFake});

class S3StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ObjectStore> Open(const S3Options& options,
                                    const std::string& bucket = "bucket") {
    auto settings = ReadS3Settings(options, world_.Get());
    EXPECT_TRUE(settings.ok()) << settings.status().ToString();
    auto store = OpenS3Store(bucket, *settings, PatientClient());
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return *std::move(store);
  }
  std::unique_ptr<ObjectStore> Open() { return Open(fake_.Options()); }

  std::string Read(ObjectStore& store, const std::string& key, size_t bytes, uint64_t offset = 0) {
    std::string out(bytes, '?');
    auto got = store.Get({.key = key,
                          .offset = offset,
                          .out = {reinterpret_cast<std::byte*>(out.data()), out.size()},
                          .if_match = {}},
                         Context());
    return got.ok() ? out : got.status().ToString();
  }
  void Put(ObjectStore& store, const std::string& key, std::string_view content) {
    auto etag = store.Put(key, AsBytes(content), {}, Context());
    ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  }
  Result<ListPage> List(ObjectStore& store) { return store.List({}, Context()); }

  net::FaultServer& server() { return fake_.server(); }

  FakeSurroundings world_;
  FakeS3 fake_;
};

// Answers of requests for objects, but not those of others.
bool IsGet(const net::ServerRequest& request) { return request.method == "GET"; }

net::Fault AnswerWith(const net::ServerAnswer& answer) {
  return [answer](const net::ServerRequest&, net::ServerAnswer& given) { given = answer; };
}

TEST_F(S3StoreTest, SendsKeysAsTheyAre) {
  auto store = Open();
  for (const char* key : {"a/../b", "//a/./b/", "/", "a+b %~?&=#"}) Put(*store, key, key);
  EXPECT_EQ(server().requests()[0].path(), "/bucket/a/../b");
  EXPECT_EQ(server().requests()[1].path(), "/bucket///a/./b/");
  EXPECT_EQ(server().requests()[2].path(), "/bucket//");
  EXPECT_EQ(server().requests()[3].path(), "/bucket/a%2Bb%20%25~%3F%26%3D%23");
  EXPECT_EQ(Read(*store, "a/../b", 6), "a/../b");
}

TEST_F(S3StoreTest, SignsNothingWhenToldSo) {
  S3Options options = fake_.Options();
  options.anonymous = true;
  auto store = Open(options);
  Status status = store->Head("key", Context()).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("nothing was signed"));
  for (const auto& request : server().requests()) EXPECT_EQ(request.Header("authorization"), "");
}

TEST_F(S3StoreTest, NamesStoreAndKey) {
  auto store = Open();
  Status status = store->Head("some/ke\ny", Context()).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("s3://bucket/some/ke\\ny"));
}

TEST_F(S3StoreTest, SaysThatThereIsNoBucket) {
  auto store = Open(fake_.Options(), "nobucket");
  for (const Status& status :
       {store->Head("key", Context()).status(), List(*store).status(),
        store->Put("key", AsBytes("x"), {}, Context()).status(), store->Delete("key", Context())}) {
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.ToString(), HasSubstr("no bucket 'nobucket'"));
  }
  EXPECT_EQ(OpenS3Store("a/b", S3Settings(), PatientClient()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(OpenS3Store("", S3Settings(), PatientClient()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenS3Store("..", S3Settings(), PatientClient()).status().code(),
            Code::kInvalidArgument);
}

TEST_F(S3StoreTest, ANewKeyCostsOneHeadOnceTheBucketIsSeen) {
  auto store = Open();
  EXPECT_EQ(store->Head("a", Context()).status().code(), Code::kNotFound);
  EXPECT_EQ(server().num_requests(), 2u) << "the first also asks whether there is a bucket";
  EXPECT_EQ(store->Head("b", Context()).status().code(), Code::kNotFound);
  EXPECT_EQ(server().num_requests(), 3u);
}

TEST_F(S3StoreTest, BusyServersAreNeverAMissingKey) {
  auto store = Open();
  Put(*store, "key", "content");
  for (int status : {503, 429, 500, 502, 504}) {
    server().Inject(net::StatusFault(status, "3"), 1);
    Status head = store->Head("key", Context()).status();
    EXPECT_EQ(head.code(), Code::kUnavailable) << head.ToString();
    EXPECT_THAT(head.ToString(), HasSubstr("wait for 3 s"));
    server().Inject(net::StatusFault(status), 1);
    EXPECT_THAT(Read(*store, "key", 7), HasSubstr("unavailable"));
    server().Inject(net::StatusFault(status), 1);
    EXPECT_EQ(List(*store).status().code(), Code::kUnavailable);
  }
  EXPECT_EQ(Read(*store, "key", 7), "content") << "no retries here, and none needed now";
}

TEST_F(S3StoreTest, TakesNoWrongBytes) {
  auto store = Open();
  Put(*store, "key", std::string(1000, 'a') + std::string(1000, 'b'));
  server().Inject(net::WrongRangeFault(), 1);
  EXPECT_THAT(Read(*store, "key", 500, 700), HasSubstr("data loss"));
  server().Inject(net::ShortBodyFault(3), 1);
  EXPECT_THAT(Read(*store, "key", 500, 700), HasSubstr("unavailable")) << "so that it is retried";
  server().Inject(net::CutFault(100), 1);
  EXPECT_THAT(Read(*store, "key", 500, 700), HasSubstr("unavailable"));
  server().Inject([](const auto&, net::ServerAnswer& answer) { answer.status = 200; }, 1);
  EXPECT_THAT(Read(*store, "key", 500, 700), HasSubstr("range requests"));
  server().Inject(
      [](const auto&, net::ServerAnswer& answer) {
        answer.body.resize(100);
        answer.headers = {{"Content-Range", "bytes 700-799/2000"}};
      },
      1);
  EXPECT_THAT(Read(*store, "key", 500, 700), HasSubstr("data loss"));
  EXPECT_EQ(Read(*store, "key", 500, 700), std::string(300, 'a') + std::string(200, 'b'));
}

TEST_F(S3StoreTest, AsksForTheSizeThatARefusedRangeLacks) {
  auto store = Open();
  Put(*store, "key", std::string(12345, 'x'));
  server().Inject(AnswerWith(FakeS3::Failure(416, "InvalidRange")), 1);
  std::string failure = Read(*store, "key", 10, 99999);
  EXPECT_THAT(failure, HasSubstr("out of range"));
  EXPECT_THAT(failure, HasSubstr("12345 bytes"));
}

TEST_F(S3StoreTest, ACompletionMayTellNoEtag) {
  auto store = Open();
  auto upload = *store->StartUpload("key", Context());
  ASSERT_TRUE(upload->PutPart(1, AsBytes("x"), Context()).ok());
  server().Inject(
      [](const auto&, net::ServerAnswer& answer) {
        answer.body = "<CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>";
      },
      1);
  auto etag = upload->Complete(1, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_EQ(*etag, store->Head("key", Context())->etag);
}

TEST_F(S3StoreTest, NeverMixesTwoVersions) {
  auto store = Open();
  Put(*store, "key", "0123456789");
  std::string etag = store->Head("key", Context())->etag;
  // A server that knows no If-Match.
  Put(*store, "key", "abcdefghij");
  server().SetHandler([](const net::ServerRequest& request) {
    return net::AnswerRange(request, "abcdefghij", "other");
  });
  std::string out(5, '?');
  for (size_t bytes : {5, 0}) {
    auto got = store->Get({.key = "key",
                           .offset = 0,
                           .out = {reinterpret_cast<std::byte*>(out.data()), bytes},
                           .if_match = etag},
                          Context());
    EXPECT_EQ(got.status().code(), Code::kFailedPrecondition) << got.status().ToString();
  }
}

TEST_F(S3StoreTest, LearnsTheRegion) {
  fake_.SetRegion("eu-central-9");
  auto store = Open();
  Put(*store, "key", "content");
  EXPECT_EQ(server().num_requests(), 2u);
  EXPECT_EQ(Read(*store, "key", 7), "content");
  EXPECT_EQ(server().num_requests(), 3u) << "it is known from then on";
  auto other = Open();
  EXPECT_TRUE(other->Head("key", Context()).ok()) << "HEAD has no body that tells the region";
}

TEST_F(S3StoreTest, LearnsTheRegionFromARedirect) {
  auto store = Open();
  net::ServerAnswer moved = FakeS3::Failure(301, "PermanentRedirect");
  moved.headers.push_back({"x-amz-bucket-region", "eu-west-9"});
  server().Inject(AnswerWith(moved), 1);
  Put(*store, "key", "content");
  EXPECT_THAT(std::string(server().requests().back().Header("authorization")),
              HasSubstr("/eu-west-9/s3/"));
}

TEST_F(S3StoreTest, SaysWhichRegionWhenItCannotFollow) {
  auto store = Open();
  net::ServerAnswer moved = FakeS3::Failure(301, "PermanentRedirect");
  moved.headers.push_back({"x-amz-bucket-region", "eu-west-9"});
  server().Inject(AnswerWith(moved), 2);
  Status status = store->Put("key", AsBytes("x"), {}, Context()).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("eu-west-9"));
  server().Heal();
  moved.headers.back().value = "evil.example/";
  server().Inject(AnswerWith(moved), 1);
  EXPECT_FALSE(store->Put("key", AsBytes("x"), {}, Context()).ok()) << "not the name of a region";
  EXPECT_EQ(server().num_requests(), 3u);
}

TEST_F(S3StoreTest, FollowsATemporaryRedirect) {
  auto store = Open();
  Put(*store, "a key", "content");
  std::string there = server().url() + "/bucket/a%20key";
  server().Inject(net::RedirectFault(there), 1);
  EXPECT_EQ(Read(*store, "a key", 7), "content");
  uint64_t before = server().num_requests();
  server().Inject(net::RedirectFault(there), 100);
  EXPECT_THAT(Read(*store, "a key", 7), HasSubstr("failed precondition")) << "once only";
  EXPECT_EQ(server().num_requests(), before + 2);
  server().Heal();
  server().Inject(net::RedirectFault(server().url() + "/bucket/another"), 1);
  EXPECT_THAT(Read(*store, "a key", 7), HasSubstr("failed precondition"));
}

TEST_F(S3StoreTest, SignsNothingForAnotherHost) {
  auto store = Open();
  Put(*store, "key", "content");
  net::FaultServer other(
      [](const net::ServerRequest& request) { return net::AnswerRange(request, "content"); });
  server().Inject(net::RedirectFault(other.url() + "/bucket/key"), 1);
  std::string failure = Read(*store, "key", 7);
  EXPECT_THAT(failure, HasSubstr("failed precondition"));
  EXPECT_THAT(failure, HasSubstr(other.url())) << "names where it was sent";
  EXPECT_EQ(other.num_requests(), 0u);
  // Without credentials there is nothing to lose.
  S3Options options = fake_.Options();
  options.anonymous = true;
  server().Inject(net::RedirectFault(other.url() + "/bucket/key"), 1);
  EXPECT_EQ(Read(*Open(options), "key", 7), "content");
  EXPECT_EQ(other.requests().back().Header("authorization"), "");
}

TEST_F(S3StoreTest, LearnsTheServersTime) {
  auto store = Open();
  net::ServerAnswer skewed = FakeS3::Failure(403, "RequestTimeTooSkewed");
  skewed.headers.push_back({"Date", "Fri, 24 May 2013 00:00:00 GMT"});
  server().Inject(AnswerWith(skewed), 1);
  Put(*store, "key", "content");
  EXPECT_EQ(server().requests().back().Header("x-amz-date"), "20130524T000000Z");
  server().Inject(AnswerWith(skewed), 2);
  Status status = store->Put("key", AsBytes("x"), {}, Context()).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("clock"));
}

class S3RenewalTest : public S3StoreTest {
 protected:
  // A store whose keys come from a profile.
  std::unique_ptr<ObjectStore> OpenWithProfile() {
    WriteKeys(FakeS3::Credentials());
    S3Options options = fake_.Options();
    options.access_key_id = options.secret_access_key = "";
    return Open(options);
  }
  void WriteKeys(const S3Credentials& keys) {
    world_.WriteFile("/home/me/.aws/credentials",
                     "[default]\naws_access_key_id = " + keys.access_key_id +
                         "\naws_secret_access_key = " + keys.secret_access_key +
                         "\naws_session_token = " + keys.session_token + "\n");
  }
  const S3Credentials next_{"NEXT", "nextverysecret", "nexttokensecret", 0};
};

TEST_F(S3RenewalTest, RenewsInTheMiddleOfReading) {
  auto store = OpenWithProfile();
  Put(*store, "key", "content");
  fake_.SetCredentials(next_);
  WriteKeys(next_);
  std::vector<std::string> outs(50, std::string(7, '?'));
  std::vector<GetRequest> requests;
  std::vector<ObjectStore::GetDone> dones;
  Mutex mu;
  CondVar finished;
  size_t num_done = 0;
  std::vector<std::string> failures;
  for (std::string& out : outs) {
    requests.push_back({.key = "key",
                        .offset = 0,
                        .out = {reinterpret_cast<std::byte*>(out.data()), out.size()},
                        .if_match = {}});
    dones.emplace_back([&](const Result<ObjectInfo>& result) {
      MutexLock lock(&mu);
      if (!result.ok()) failures.push_back(result.status().ToString());
      if (++num_done == outs.size()) finished.NotifyOne();
    });
  }
  store->SubmitGets(std::move(requests), std::move(dones), Context());
  {
    MutexLock lock(&mu);
    while (num_done < outs.size()) finished.Wait(&mu);
    EXPECT_THAT(failures, ElementsAre());
  }
  for (const std::string& out : outs) EXPECT_EQ(out, "content");
  EXPECT_TRUE(store->Head("key", Context()).ok());
}

TEST_F(S3RenewalTest, RenewsForAHeadToo) {
  auto store = OpenWithProfile();
  Put(*store, "key", "content");
  fake_.SetCredentials(next_);
  WriteKeys(next_);
  auto info = store->Head("key", Context());
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->size_bytes, 7u);
  EXPECT_TRUE(store->Head("key", Context()).ok());
}

TEST_F(S3RenewalTest, SaysThatTheyExpiredWhenThereAreNoOthers) {
  auto store = OpenWithProfile();
  Put(*store, "key", "content");
  fake_.SetCredentials(next_);
  std::string failure = Read(*store, "key", 7);
  EXPECT_THAT(failure, HasSubstr("permission denied"));
  EXPECT_THAT(failure, HasSubstr("expired"));
  EXPECT_THAT(failure, HasSubstr("profile 'default' (/home/me/.aws/credentials)"));
}

TEST_F(S3RenewalTest, PutsNoSecretIntoAMessage) {
  fake_.SetCredentials(next_);
  WriteKeys(next_);
  S3Options options = fake_.Options();
  options.access_key_id = options.secret_access_key = "";
  auto store = Open(options);
  std::string echo = "<Error><Code>SignatureDoesNotMatch</Code><Message>you sent " +
                     next_.session_token + " and " + next_.secret_access_key +
                     "</Message><StringToSign>" + next_.session_token + "</StringToSign></Error>";
  net::ServerAnswer told = FakeS3::Failure(403, "");
  told.body = echo;
  server().Inject(AnswerWith(told), 1);
  Status refused = store->Put("key", AsBytes("x"), {}, Context()).status();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  server().Inject(net::DropFault(), 1);
  Status cut = store->Put("key", AsBytes("x"), {}, Context()).status();
  EXPECT_EQ(cut.code(), Code::kUnavailable);
  for (const Status& status : {refused, cut})
    for (const std::string& secret : {next_.secret_access_key, next_.session_token})
      EXPECT_THAT(status.ToString(), Not(HasSubstr(secret)));
}

TEST_F(S3RenewalTest, SaysWhichCredentialsCouldNotBeHad) {
  S3Options options = fake_.Options();
  options.access_key_id = options.secret_access_key = "";
  world_.WriteFile("/home/me/.aws/config", "[default]\ncredential_process = get\n");
  world_.run_command = [](const auto&) -> Result<CommandOutput> {
    return Error(Code::kNotFound, "gone");
  };
  auto store = Open(options);
  Status status = store->Head("key", Context()).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("credential_process of profile 'default'"));
  EXPECT_EQ(server().num_requests(), 0u);
}

TEST_F(S3StoreTest, AsksForTheReasonOfAHead) {
  auto store = Open();
  Put(*store, "key", "content");
  server().Inject(AnswerWith(FakeS3::Failure(403, "RequestTimeTooSkewed")), 2);
  Status status = store->Head("key", Context()).status();
  EXPECT_THAT(status.ToString(), HasSubstr("clock"));
  // May be read, may not be looked at: then reading tells as much.
  server().Inject(AnswerWith(FakeS3::Failure(403, "AccessDenied")), 1);
  auto info = store->Head("key", Context());
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->size_bytes, 7u);
  Put(*store, "empty", "");
  server().Inject(AnswerWith(FakeS3::Failure(403, "AccessDenied")), 1);
  info = store->Head("empty", Context());
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->size_bytes, 0u);
}

TEST_F(S3StoreTest, MayListAndNotReadOrTheReverse) {
  auto store = Open();
  Put(*store, "key", "content");
  auto denied = AnswerWith(FakeS3::Failure(403, "AccessDenied"));
  auto is_list = [](const net::ServerRequest& request) {
    return request.Query("list-type") == "2";
  };
  server().Inject(denied, 1, is_list);
  Status list = List(*store).status();
  EXPECT_EQ(list.code(), Code::kPermissionDenied);
  EXPECT_THAT(list.ToString(), HasSubstr("s3:ListBucket"));
  EXPECT_EQ(Read(*store, "key", 7), "content");
  server().Inject(denied, 1, IsGet);
  EXPECT_THAT(Read(*store, "key", 7), HasSubstr("s3:GetObject"));
  EXPECT_TRUE(List(*store).ok());
}

TEST_F(S3StoreTest, ListsAllHoweverShortThePagesAre) {
  auto store = Open();
  std::vector<std::string> keys, listed;
  for (int i = 0; i < 25; ++i) keys.push_back("k " + std::to_string(100 + i));
  for (const std::string& key : keys) Put(*store, key, "x");
  fake_.SetPageLimit(3);
  ListRequest request;
  do {
    auto page = store->List(request, Context());
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    for (const ObjectInfo& info : page->objects) listed.push_back(info.key);
    request.token = page->next;
  } while (!request.token.empty());
  EXPECT_EQ(listed, keys);
}

TEST_F(S3StoreTest, DoesNotTrustAListingThatWasCut) {
  auto store = Open();
  Put(*store, "a", "x");
  Put(*store, "b", "x");
  server().Inject(
      [](const auto&, net::ServerAnswer& answer) {
        answer.body.resize(answer.body.find("</Contents>") + 11);
      },
      1);
  EXPECT_EQ(List(*store).status().code(), Code::kDataLoss);
  server().Inject(
      [](const auto&, net::ServerAnswer& answer) {
        size_t at = answer.body.find("<Key>b");
        answer.body.replace(at, 6, "<Key>a");
      },
      1);
  Status twice = List(*store).status();
  EXPECT_EQ(twice.code(), Code::kDataLoss);
  EXPECT_THAT(twice.ToString(), HasSubstr("s3://bucket"));
  EXPECT_THAT(twice.ToString(), HasSubstr("'a' twice"));
  EXPECT_EQ(store->List({.prefix = {}, .delimiter = {}, .after = {}, .token = "x"}, Context())
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST_F(S3StoreTest, FindsAllUploadsThatWereLeft) {
  auto store = Open();
  std::vector<std::unique_ptr<Upload>> uploads;
  for (int i = 0; i < 7; ++i)
    uploads.push_back(*store->StartUpload("k" + std::to_string(i % 3), Context()));
  fake_.SetPageLimit(2);
  auto pending = store->ListUploads("", Context());
  ASSERT_TRUE(pending.ok()) << pending.status().ToString();
  EXPECT_EQ(pending->size(), 7u);
  EXPECT_GT((*pending)[0].started_ns, 0);
  EXPECT_EQ(store->ListUploads("k1", Context())->size(), 2u);
  uploads.clear();
  EXPECT_EQ(store->ListUploads("", Context())->size(), 0u);
}

TEST_F(S3StoreTest, ACompletionCanFailAfterItsStatus) {
  auto store = Open();
  auto upload = *store->StartUpload("key", Context());
  ASSERT_TRUE(upload->PutPart(1, AsBytes("x"), Context()).ok());
  net::ServerAnswer late = FakeS3::Failure(200, "InternalError");
  late.body = "  \n" + late.body;
  server().Enqueue({late});
  Status status = upload->Complete(1, Context()).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
  EXPECT_THAT(status.ToString(), HasSubstr("InternalError"));
  EXPECT_TRUE(upload->Complete(1, Context()).ok());
}

TEST_F(S3StoreTest, ACompletionOfWhatIsGoneEnds) {
  auto store = Open();
  auto upload = *store->StartUpload("key", Context());
  ASSERT_TRUE(upload->PutPart(1, AsBytes("x"), Context()).ok());
  auto is_post = [](const net::ServerRequest& request) { return request.method == "POST"; };
  server().Inject(net::DropFault(), 1, is_post);  // done, and its answer lost
  EXPECT_EQ(upload->Complete(1, Context()).status().code(), Code::kUnavailable);
  server().Inject(net::StatusFault(500), 100, is_post);
  EXPECT_EQ(upload->Complete(1, Context()).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Read(*store, "key", 1), "x");
}

TEST_F(S3StoreTest, GuardsBodiesAsTheDialectSays) {
  S3Options options = fake_.Options();
  auto md5 = Open(options);
  Put(*md5, "key", "message digest");
  EXPECT_EQ(server().requests().back().Header("content-md5"), "+WtpfXy3k41SWi8xqvFh0A==");
  options.dialect = "aws";
  auto crc = Open(options);
  Put(*crc, "key", "123456789");
  EXPECT_EQ(server().requests().back().Header("x-amz-checksum-crc32c"), "4waSgw==");
  EXPECT_EQ(server().requests().back().Header("content-md5"), "");
}

TEST_F(S3StoreTest, QuotesEtagsAsTheDialectSays) {
  S3Options options = fake_.Options();
  options.dialect = "ceph";
  auto store = Open(options);
  (void)store->Put("key", AsBytes("x"), {.if_absent = false, .if_match = "e"}, Context());
  EXPECT_EQ(server().requests().back().Header("if-match"), "e");
  (void)Open()->Put("key", AsBytes("x"), {.if_absent = false, .if_match = "e"}, Context());
  EXPECT_EQ(server().requests().back().Header("if-match"), "\"e\"");
  EXPECT_EQ(store->Put("key", AsBytes("x"), {.if_absent = true, .if_match = "e"}, Context())
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST_F(S3StoreTest, KeepsOddKeysFromServersThatMixThemUp) {
  S3Options options = fake_.Options();
  options.dialect = "seaweedfs";
  auto store = Open(options);
  EXPECT_FALSE(store->abilities().strict_keys);
  for (const char* key : {"a/../b", "./a", "a//b", "/a", ".", "..", "a/.", "a\\b", "caf\xe9"}) {
    EXPECT_EQ(store->Put(key, AsBytes("x"), {}, Context()).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(store->Head(key, Context()).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(server().num_requests(), 0u);
  for (const char* key : {".a", "a.", "...", "a/.b/c"}) Put(*store, key, "x");
}

TEST_F(S3StoreTest, WaitsForItsReadsWhenItIsDestroyed) {
  auto store = Open();
  Put(*store, "key", "content");
  server().Inject(net::SlowFirstByteFault(std::chrono::milliseconds(50)), 1);
  std::string out(7, '?');
  std::atomic<bool> done{false};
  std::vector<GetRequest> requests;
  requests.push_back({.key = "key",
                      .offset = 0,
                      .out = {reinterpret_cast<std::byte*>(out.data()), out.size()},
                      .if_match = {}});
  std::vector<ObjectStore::GetDone> dones;
  dones.emplace_back([&](const Result<ObjectInfo>&) { done = true; });
  store->SubmitGets(std::move(requests), std::move(dones), Context());
  store.reset();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace headrace::object
