// The driver https against a scripted server.
#include "headrace/object/https/https_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/base/mutex.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"
#include "headrace/net/testing/fault_server.h"
#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/patient_client.h"
#include "headrace/object/uri.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A web server with files in memory.
struct FileServer {
  Mutex mu;
  std::map<std::string, std::string> files HR_GUARDED_BY(mu);
  net::FaultServer server{[this](const net::ServerRequest& request) { return Serve(request); }};

  net::ServerAnswer Serve(const net::ServerRequest& request) {
    net::ServerAnswer missing;
    missing.status = 404;
    std::string_view path = request.path();
    if (!path.starts_with("/data/")) return missing;
    MutexLock lock(&mu);
    auto found = files.find(PercentDecode(path.substr(6)));
    if (found == files.end()) return missing;
    std::string etag = HexText(Md5(AsBytes(found->second)));
    std::string_view match = request.Header("if-match");
    if (!match.empty() && match != "\"" + etag + "\"") {
      missing.status = 412;
      return missing;
    }
    return net::AnswerRange(request, found->second, etag);
  }
  Status Put(const std::string& key, const std::string& content) {
    MutexLock lock(&mu);
    files[key] = content;
    return OkStatus();
  }
  Status Remove(const std::string& key) {
    MutexLock lock(&mu);
    files.erase(key);
    return OkStatus();
  }
};

StoreUnderTest OpenServer() {
  auto files = std::make_shared<FileServer>();
  StoreUnderTest test;
  test.store = *OpenHttpsStore(files->server.url() + "/data/", PatientClient());
  test.put = [files](const auto& key, const auto& content) { return files->Put(key, content); };
  test.remove = [files](const auto& key) { return files->Remove(key); };
  test.owner = files;
  return test;
}

Abilities Reading() {
  Abilities can;
  can.get_if_match = true;
  return can;
}

const bool kRegistered =
    RegisterObjectStoreSuite("https", {.abilities = Reading(), .open = OpenServer});

class HttpsStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ObjectStore> Open(const std::string& url) {
    auto store = OpenHttpsStore(url, PatientClient());
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return *std::move(store);
  }
  std::unique_ptr<ObjectStore> Open() { return Open(files_.server.url() + "/data"); }
  std::string Read(ObjectStore& store, size_t bytes, uint64_t offset = 0,
                   const std::string& if_match = "") {
    std::string out(bytes, '?');
    auto got = store.Get({.key = "key",
                          .offset = offset,
                          .out = {reinterpret_cast<std::byte*>(out.data()), out.size()},
                          .if_match = if_match},
                         Context());
    return got.ok() ? out : got.status().ToString();
  }
  void SetUp() override { (void)files_.Put("key", "0123456789"); }

  FileServer files_;
};

TEST_F(HttpsStoreTest, RefusesServersThatSendTheWholeForAPart) {
  files_.server.SetHandler([](const net::ServerRequest&) {
    net::ServerAnswer answer;
    answer.body = "0123456789";
    return answer;
  });
  auto store = Open();
  EXPECT_THAT(Read(*store, 3, 4), HasSubstr("not supported"));
  EXPECT_THAT(Read(*store, 3, 4), HasSubstr("range requests"));
  EXPECT_THAT(Read(*store, 3, 0), HasSubstr("range requests"));
  EXPECT_EQ(Read(*store, 10), "0123456789") << "the whole can be had";
  EXPECT_THAT(Read(*store, 11), HasSubstr("10 bytes"));
}

TEST_F(HttpsStoreTest, TakesNoWrongBytes) {
  auto store = Open();
  files_.server.Inject(net::WrongRangeFault(), 1);
  EXPECT_THAT(Read(*store, 3, 4), HasSubstr("data loss"));
  files_.server.Inject(net::ShortBodyFault(), 1);
  EXPECT_THAT(Read(*store, 3, 4), HasSubstr("unavailable")) << "and not that it knows no ranges";
  files_.server.Inject(net::StatusFault(503, "2"), 1);
  EXPECT_THAT(Read(*store, 3, 4), HasSubstr("unavailable"));
  EXPECT_EQ(Read(*store, 3, 4), "456");
}

TEST_F(HttpsStoreTest, SendsTokensAndShowsNone) {
  std::string host = files_.server.url().substr(7);
  auto store = Open("http://me:pass%2Fsecret@" + host + "/data?sig=topsecret");
  EXPECT_EQ(Read(*store, 3), "012");
  EXPECT_EQ(files_.server.requests().back().target, "/data/key?sig=topsecret");
  EXPECT_EQ(files_.server.requests().back().Header("authorization"),
            "Basic " + Base64Text(AsBytes("me:pass/secret")));
  EXPECT_EQ(store->name(), "http://" + host + "/data");
  for (int status : {403, 404, 500, 302}) {
    files_.server.Inject(net::StatusFault(status), 1);
    std::string failure = Read(*store, 3);
    EXPECT_THAT(failure, HasSubstr(store->name() + "/key"));
    EXPECT_THAT(failure, Not(HasSubstr("secret")));
  }
  files_.server.Inject(net::DropFault(), 1);
  EXPECT_THAT(Read(*store, 3), Not(HasSubstr("secret")));
  EXPECT_THAT(OpenHttpsStore("ftp://me:secret@h/", PatientClient()).status().ToString(),
              Not(HasSubstr("secret")));
}

TEST_F(HttpsStoreTest, FollowsRedirectsWithoutItsPassword) {
  std::string port = std::to_string(files_.server.port());
  auto store = Open("http://me:secret@127.0.0.1:" + port + "/data");
  files_.server.Inject(net::RedirectFault("/data/key"), 1);
  EXPECT_EQ(Read(*store, 3, 2), "234");
  EXPECT_THAT(std::string(files_.server.requests().back().Header("authorization")),
              HasSubstr("Basic"));
  files_.server.Inject(net::RedirectFault("http://localhost:" + port + "/data/key"), 1);
  EXPECT_EQ(Read(*store, 3, 2), "234");
  EXPECT_EQ(files_.server.requests().back().Header("authorization"), "");
  EXPECT_EQ(files_.server.requests().back().Header("range"), "bytes=2-4");
}

TEST_F(HttpsStoreTest, EndsRedirectsThatGoInCircles) {
  auto store = Open();
  files_.server.Inject(net::RedirectFault("/data/key"), 100);
  EXPECT_THAT(Read(*store, 3), HasSubstr("redirects"));
  files_.server.Heal();
  files_.server.Inject(net::RedirectFault("ftp://x/"), 1);
  EXPECT_THAT(Read(*store, 3), HasSubstr("elsewhere"));
}

TEST_F(HttpsStoreTest, ComparesWeakEtagsItself) {
  std::string etag = "W/\"one\"";
  files_.server.SetHandler([&](const net::ServerRequest& request) {
    net::ServerAnswer answer = net::AnswerRange(request, "0123456789");
    EXPECT_EQ(request.Header("if-match"), "") << "a weak one matches nothing";
    answer.headers.push_back({"ETag", etag});
    return answer;
  });
  auto store = Open();
  auto info = store->Head("key", Context());
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(Read(*store, 3, 0, info->etag), "012");
  etag = "W/\"two\"";
  EXPECT_THAT(Read(*store, 3, 0, info->etag), HasSubstr("failed precondition"));
}

}  // namespace
}  // namespace headrace::object
