// Everything that a server or a network can do to a read or a listing, one fault after the other,
// for each driver that goes over HTTP: the right bytes come, or an error that says what happened.
// Never other bytes, never a shorter listing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/net/testing/fault_server.h"
#include "headrace/object/https/https_store.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/s3/s3_store.h"
#include "headrace/object/testing/fake_s3.h"
#include "headrace/object/testing/fake_surroundings.h"
#include "headrace/object/testing/patient_client.h"
#include "headrace/object/testing/quick_retry.h"

namespace headrace::object {
namespace {

using net::Cut;
using net::Fault;
using net::ServerAnswer;
using net::ServerRequest;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey = "folder/some key";
constexpr size_t kBytes = 300, kOffset = 50, kLength = 200;

std::string Pattern(size_t bytes) {
  std::string content(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * 131 + (i >> 8) * 7 + 1);
  return content;
}

std::shared_ptr<ObjectStore> OpenS3(const S3Surroundings& surroundings, const S3Options& options) {
  auto settings = ReadS3Settings(options, surroundings);
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  auto store = OpenS3Store("bucket", *settings, PatientClient());
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return *std::move(store);
}

// A server with one object, and a driver that reads it.
class Remote {
 public:
  virtual ~Remote() = default;
  virtual net::FaultServer& server() = 0;
  virtual std::shared_ptr<ObjectStore> Open() = 0;
  virtual void Put(const std::string& content) = 0;
  // Of the object.
  virtual std::string path() const = 0;
};

class RemoteS3 final : public Remote {
 public:
  net::FaultServer& server() override { return fake_.server(); }
  std::shared_ptr<ObjectStore> Open() override { return OpenS3(world_.Get(), fake_.Options()); }
  void Put(const std::string& content) override {
    ASSERT_TRUE(Open()->Put(kKey, AsBytes(content), {}, Context()).ok());
  }
  std::string path() const override { return "/bucket/folder/some%20key"; }

 private:
  FakeSurroundings world_;
  FakeS3 fake_;
};

class RemoteWeb final : public Remote {
 public:
  net::FaultServer& server() override { return server_; }
  std::shared_ptr<ObjectStore> Open() override {
    return *OpenHttpsStore(server_.url() + "/data", PatientClient());
  }
  void Put(const std::string& content) override {
    server_.SetHandler([content](const ServerRequest& request) {
      return net::AnswerRange(request, content, "an-etag");
    });
  }
  std::string path() const override { return "/data/folder/some%20key"; }

 private:
  net::FaultServer server_;
};

bool IsGet(const ServerRequest& request) { return request.method == "GET"; }

class StoreFaults : public ::testing::TestWithParam<const char*> {
 protected:
  StoreFaults() {
    if (std::string_view(GetParam()) == "s3") remote_ = std::make_unique<RemoteS3>();
    if (std::string_view(GetParam()) == "https") remote_ = std::make_unique<RemoteWeb>();
    remote_->Put(content_);
    store_ = MakeRetryingStore(remote_->Open(), retry_.Options());
  }
  // The bytes, or what is said instead.
  std::string Read(ObjectStore& store, const Context& ctx = {}) {
    std::string out(kLength, '?');
    auto got = store.Get({.key = kKey,
                          .offset = kOffset,
                          .out = std::as_writable_bytes(std::span(out)),
                          .if_match = {}},
                         ctx);
    return got.ok() ? out : got.status().ToString();
  }
  std::string Read() { return Read(*store_); }
  net::FaultServer& server() { return remote_->server(); }

  const std::string content_ = Pattern(kBytes);
  const std::string right_ = content_.substr(kOffset, kLength);
  QuickRetry retry_;
  std::unique_ptr<Remote> remote_;
  std::shared_ptr<ObjectStore> store_;
};

Fault AnswerWith(int status, const std::string& body, const std::string& content_range) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer.status = status;
    answer.body = body;
    answer.headers.clear();
    if (!content_range.empty()) answer.headers.push_back({"Content-Range", content_range});
  };
}

TEST_P(StoreFaults, WhatPassesIsReadInTheEnd) {
  const std::vector<std::pair<const char*, Fault>> faults = {
      {"503", net::StatusFault(503)},
      {"503 that asks to wait", net::StatusFault(503, "1")},
      {"429", net::StatusFault(429)},
      {"429 that asks to wait", net::StatusFault(429, "1")},
      {"500", net::StatusFault(500)},
      {"502", net::StatusFault(502)},
      {"504", net::StatusFault(504)},
      {"reset in the body", net::CutFault(77, Cut::kReset)},
      {"closed in the body", net::CutFault(77, Cut::kClose)},
      {"a body that is too short", net::ShortBodyFault(1)},
      {"no answer, reset", net::DropFault(Cut::kReset)},
      {"no answer, closed", net::DropFault(Cut::kClose)},
      {"a slow first byte", net::SlowFirstByteFault(milliseconds(5))},
      {"a slow drip", net::DripFault(50, milliseconds(1))},
  };
  for (const auto& [name, fault] : faults) {
    server().Inject(fault, 10);
    EXPECT_EQ(Read(), right_) << name;
    server().Heal();
  }
  server().ResetConnections(3);
  EXPECT_EQ(Read(), right_) << "connections reset when they are made";
}

TEST_P(StoreFaults, WhatDoesNotPassIsToldAndNeverAsMissing) {
  for (const Fault& fault : {net::StatusFault(503), net::StatusFault(429, "1"), net::CutFault(10),
                             net::ShortBodyFault(1), net::DropFault(Cut::kReset)}) {
    server().Inject(fault, 1'000'000);
    std::string failure = Read();
    EXPECT_THAT(failure, HasSubstr("unavailable: "));
    EXPECT_THAT(failure, HasSubstr("some key"));
    EXPECT_THAT(failure, HasSubstr("(tried "));
    server().Heal();
    EXPECT_EQ(Read(), right_);
  }
}

TEST_P(StoreFaults, ACutAtAnyByteCostsOneMoreTry) {
  for (uint64_t at = 0; at <= kLength; ++at) {
    server().Inject(net::CutFault(at, at % 2 == 0 ? Cut::kReset : Cut::kClose), 1, IsGet);
    ASSERT_EQ(Read(), right_) << at;
  }
  EXPECT_LE(retry_.retries(), kLength + 1);
}

TEST_P(StoreFaults, AnotherRangeThanAskedForIsNeverTaken) {
  const std::string whole = content_;
  const std::vector<std::pair<Fault, const char*>> cases = {
      {net::WrongRangeFault(1), "asked for"},
      {AnswerWith(206, right_, "bytes 51-250/300"), "asked for"},
      {AnswerWith(206, right_.substr(0, 100), "bytes 50-149/300"), "promised"},
      {AnswerWith(206, right_.substr(0, 100), "bytes 50-249/300"), "promised"},
      {AnswerWith(206, right_, ""), "not which one"},
      {AnswerWith(206, right_, "bytes */300"), "not which one"},
      {AnswerWith(206, right_, "bytes 50-249/200"), "not which one"},
      {AnswerWith(200, whole, ""), "range requests"},
      {AnswerWith(200, right_, ""), "range requests"},
      {AnswerWith(200, "", ""), "range requests"},
  };
  for (const auto& [fault, words] : cases) {
    server().Inject(fault, 100);
    std::string failure = Read();
    EXPECT_THAT(failure, HasSubstr(words));
    EXPECT_THAT(failure, HasSubstr("some key"));
    server().Heal();
    EXPECT_EQ(Read(), right_);
  }
  EXPECT_EQ(retry_.retries(), 0u) << "what a server answers wrongly is not asked for again";
}

TEST_P(StoreFaults, WaitsAsLongAsTheServerAsks) {
  server().Inject(net::StatusFault(503, "3"), 2);
  EXPECT_EQ(Read(), right_);
  EXPECT_GE(retry_.waited(), seconds(6));
  auto before = retry_.waited();
  server().Inject(
      [](const ServerRequest&, ServerAnswer& answer) {
        answer = {};
        answer.status = 429;
        answer.headers = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                          {"Retry-After", "Fri, 24 May 2013 00:00:40 GMT"}};
      },
      1);
  EXPECT_EQ(Read(), right_);
  EXPECT_GE(retry_.waited() - before, seconds(40));
  before = retry_.waited();
  server().Inject(net::StatusFault(503, "99999"), 1'000);
  EXPECT_THAT(Read(), HasSubstr("unavailable"));
  EXPECT_LE(retry_.waited() - before, RetryOptions().budget);
}

TEST_P(StoreFaults, TheDeadlineHolds) {
  auto store = MakeRetryingStore(remote_->Open());  // waits in real time
  for (const Fault& fault : {net::HangFault(), net::SlowFirstByteFault(std::chrono::hours(1)),
                             net::DripFault(1, seconds(10)), net::StatusFault(503),
                             net::StatusFault(429, "3600"), net::DropFault(Cut::kReset)}) {
    server().Inject(fault, 1'000'000);
    Context ctx;
    ctx.deadline = Context::Clock::now() + milliseconds(80);
    EXPECT_THAT(Read(*store, ctx), HasSubstr("deadline exceeded"));
    server().Heal();
  }
  EXPECT_EQ(Read(*store), right_);
}

TEST_P(StoreFaults, RedirectsInCirclesEnd) {
  server().Inject(net::RedirectFault(server().url() + remote_->path()), 1);
  EXPECT_EQ(Read(), right_);
  server().Inject(net::RedirectFault(server().url() + remote_->path()), 1'000);
  const uint64_t before = server().num_requests();
  EXPECT_THAT(Read(), HasSubstr("failed precondition"));
  EXPECT_LE(server().num_requests() - before, 10u);
}

TEST_P(StoreFaults, ALargeObjectSurvivesCutsAtTheEdgesOfItsParts) {
  constexpr size_t kPart = 64 << 10, kParts = 5;
  const std::string large = Pattern((kParts - 1) * kPart + 5);
  remote_->Put(large);
  ObjectFileSystemOptions options;
  options.root = "x://y";
  options.part_bytes = kPart;
  auto files = MakeObjectFileSystem(store_, options);
  for (size_t part : {size_t{0}, size_t{2}, kParts - 1}) {
    const std::string begin = "bytes=" + std::to_string(part * kPart) + "-";
    for (uint64_t at : {size_t{0}, size_t{1}, size_t{4}, kPart / 2, kPart - 1, kPart}) {
      server().Inject(net::CutFault(at), 1, [&](const ServerRequest& request) {
        return request.Header("range").starts_with(begin);
      });
      auto read = files->ReadWhole("x://y/" + kKey, 1 << 20);
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      EXPECT_TRUE(*read == large) << "part " << part << " cut at " << at;
      server().Heal();
    }
  }
}

// Some web servers tell a file's time and no etag.
TEST(WebVersions, AFileIsKnownByItsTimeWhereThereIsNoEtag) {
  std::atomic<bool> replaced{false};
  net::FaultServer server([&](const ServerRequest& request) {
    ServerAnswer answer = net::AnswerRange(request, std::string(2000, replaced ? 'b' : 'a'));
    answer.headers.push_back({"Last-Modified", replaced ? "Fri, 24 May 2013 00:00:01 GMT"
                                                        : "Fri, 24 May 2013 00:00:00 GMT"});
    return answer;
  });
  ObjectFileSystemOptions options;
  options.root = "x://y";
  options.part_bytes = 500;
  auto files = MakeObjectFileSystem(*OpenHttpsStore(server.url(), PatientClient()), options);
  auto file = files->OpenForRead("x://y/file");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  std::string out(2000, '?');
  EXPECT_TRUE((*file)->ReadAt(0, std::as_writable_bytes(std::span(out)), Context()).ok());
  EXPECT_EQ(out, std::string(2000, 'a'));
  replaced = true;
  Status read = (*file)->ReadAt(0, std::as_writable_bytes(std::span(out)), Context());
  EXPECT_EQ(read.code(), Code::kFailedPrecondition);
  EXPECT_THAT(read.ToString(), HasSubstr("replaced"));
}

INSTANTIATE_TEST_SUITE_P(Drivers, StoreFaults, ::testing::Values("s3", "https"),
                         [](const auto& info) { return std::string(info.param); });

bool IsList(const ServerRequest& request) { return request.Query("list-type") == "2"; }
bool IsSecondPage(const ServerRequest& request) {
  return IsList(request) && !request.Query("continuation-token").empty();
}

// Listings, which only the driver s3 has.
class ListingFaults : public ::testing::Test {
 protected:
  ListingFaults() {
    auto bare = OpenS3(world_.Get(), fake_.Options());
    for (const char* key : {"d/1", "d/2", "d/3", "d/4", "d/sub/5"})
      EXPECT_TRUE(bare->Put(key, AsBytes("x"), {}, Context()).ok());
    fake_.SetPageLimit(3);
    ObjectFileSystemOptions options;
    options.root = "s3://bucket";
    files_ = MakeObjectFileSystem(MakeRetryingStore(bare, retry_.Options()), options);
  }
  // The names, or what is said instead.
  std::vector<std::string> List() {
    auto entries = files_->List("s3://bucket/d");
    if (!entries.ok()) return {entries.status().ToString()};
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  // Bytes of the page that matches.
  size_t PageBytes(const net::FaultServer::Match& match) {
    size_t bytes = 0;
    server().Inject([&](const auto&, ServerAnswer& answer) { bytes = answer.body.size(); }, 1,
                    match);
    EXPECT_EQ(List(), all_);
    return bytes;
  }
  net::FaultServer& server() { return fake_.server(); }

  const std::vector<std::string> all_ = {"1", "2", "3", "4", "sub"};
  FakeSurroundings world_;
  FakeS3 fake_;
  QuickRetry retry_;
  std::shared_ptr<FileSystem> files_;
};

TEST_F(ListingFaults, WhatPassesGivesTheWholeListing) {
  for (const Fault& fault : {net::StatusFault(503), net::StatusFault(429, "1"), net::CutFault(9),
                             net::ShortBodyFault(1), net::DropFault(Cut::kReset)}) {
    for (auto* match : {IsList, IsSecondPage}) {
      server().Inject(fault, 5, match);
      EXPECT_EQ(List(), all_);
      server().Heal();
    }
  }
}

TEST_F(ListingFaults, APageCutAtAnyByteIsNoShorterListing) {
  for (auto* match : {IsList, IsSecondPage}) {
    const size_t bytes = PageBytes(match);
    ASSERT_GT(bytes, 100u);
    for (size_t at = 0; at < bytes; ++at) {
      // Cut where the length told is right: nobody but the reader of the listing can see it.
      server().Inject([at](const auto&, ServerAnswer& answer) { answer.body.resize(at); }, 1,
                      match);
      auto names = List();
      ASSERT_EQ(names.size(), 1u) << at;
      ASSERT_THAT(names[0], HasSubstr("data loss")) << at;
      if (at % 32 != 0) continue;
      server().Inject(net::CutFault(at), 1, match);
      ASSERT_EQ(List(), all_) << at;
    }
  }
}

TEST_F(ListingFaults, PagesMayBeAsShortAsTheyLike) {
  fake_.SetPageLimit(1);
  EXPECT_EQ(List(), all_);
}

TEST_F(ListingFaults, AKeyThatComesAgainIsNoticed) {
  std::string first;
  server().Inject([&](const auto&, ServerAnswer& answer) { first = answer.body; }, 1, IsList);
  EXPECT_EQ(List(), all_);
  server().Inject([&](const auto&, ServerAnswer& answer) { answer.body = first; }, 100,
                  IsSecondPage);
  auto names = List();
  ASSERT_EQ(names.size(), 1u);
  EXPECT_THAT(names[0], HasSubstr("data loss"));
  EXPECT_THAT(names[0], HasSubstr("s3://bucket"));
}

// A server whose order is not that of the bytes: there a page that comes again shows by its token.
TEST_F(ListingFaults, APageThatComesAgainForEverEnds) {
  S3Options options = fake_.Options();
  options.dialect = "seaweedfs";
  auto store = OpenS3(world_.Get(), options);
  ListRequest request{.prefix = "d/", .delimiter = "/", .after = {}, .token = {}, .max = 1000};
  std::string first;
  server().Inject([&](const auto&, ServerAnswer& answer) { first = answer.body; }, 1, IsList);
  auto page = store->List(request, Context());
  ASSERT_TRUE(page.ok());
  ASSERT_NE(page->next, "");
  server().Inject([&](const auto&, ServerAnswer& answer) { answer.body = first; }, 100, IsList);
  request.token = page->next;
  EXPECT_EQ(store->List(request, Context()).status().code(), Code::kDataLoss);
}

// Credentials that end while an object is read in many parts.
class ExpiryFaults : public ::testing::Test {
 protected:
  ExpiryFaults() {
    EXPECT_TRUE(
        OpenS3(world_.Get(), fake_.Options())->Put("large", AsBytes(content_), {}, Context()).ok());
    WriteKeys(FakeS3::Credentials());
    S3Options options = fake_.Options();
    options.access_key_id = options.secret_access_key = "";
    ObjectFileSystemOptions small;
    small.root = "s3://bucket";
    small.part_bytes = 1000;
    files_ = MakeObjectFileSystem(
        MakeRetryingStore(OpenS3(world_.Get(), options), retry_.Options()), small);
  }
  void WriteKeys(const S3Credentials& keys) {
    world_.WriteFile("/home/me/.aws/credentials",
                     "[default]\naws_access_key_id = " + keys.access_key_id +
                         "\naws_secret_access_key = " + keys.secret_access_key + "\n");
  }
  // From the fifth read on only these are taken.
  void ExpireInTheMiddle() {
    std::atomic<int>* reads = &reads_;
    fake_.server().Inject([this](const auto&, ServerAnswer&) { fake_.SetCredentials(next_); }, 1,
                          [reads](const ServerRequest& r) { return IsGet(r) && ++*reads == 5; });
  }
  Result<std::string> ReadWhole() { return files_->ReadWhole("s3://bucket/large", 1 << 20); }

  const std::string content_ = Pattern(40'000);
  const S3Credentials next_{"NEXT", "nextverysecret", "", 0};
  std::atomic<int> reads_{0};
  FakeSurroundings world_;
  FakeS3 fake_;
  QuickRetry retry_;
  std::shared_ptr<FileSystem> files_;
};

TEST_F(ExpiryFaults, NewOnesAreTakenInTheMiddleOfAnObject) {
  ASSERT_TRUE(ReadWhole().ok());
  WriteKeys(next_);
  ExpireInTheMiddle();
  auto read = ReadWhole();
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, content_);
}

TEST_F(ExpiryFaults, WithoutNewOnesItSaysThatTheyExpired) {
  ExpireInTheMiddle();
  auto read = ReadWhole();
  if (read.ok()) read = ReadWhole();  // all its requests may have been on their way
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(read.status().ToString(), HasSubstr("expired"));
  EXPECT_THAT(read.status().ToString(), HasSubstr("s3://bucket/large"));
  EXPECT_THAT(read.status().ToString(), Not(HasSubstr("KEY+/secret")));
}

}  // namespace
}  // namespace headrace::object
