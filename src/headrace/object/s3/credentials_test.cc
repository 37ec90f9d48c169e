#include "headrace/object/s3/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "headrace/net/testing/fault_server.h"
#include "headrace/object/testing/fake_surroundings.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

// A source of credentials that a test drives.
class FakeSource {
 public:
  Result<S3Credentials> Fetch(const Context& ctx) {
    MutexLock lock(&mu_);
    ++num_fetches_;
    changed_.NotifyAll();
    while (blocked_) {
      HR_RETURN_IF_ERROR(ctx.Check());
      changed_.WaitFor(&mu_, std::chrono::milliseconds(5));
    }
    if (next_.empty()) return Error(Code::kUnavailable, "the source is away");
    S3Credentials credentials = next_.front();
    next_.pop_front();
    return credentials;
  }
  void Add(const std::string& id, int64_t expires_ns) {
    MutexLock lock(&mu_);
    next_.push_back({id, "secret-" + id, "", expires_ns});
  }
  void Block(bool blocked) {
    MutexLock lock(&mu_);
    blocked_ = blocked;
    changed_.NotifyAll();
  }
  void WaitForFetches(int n) {
    MutexLock lock(&mu_);
    while (num_fetches_ < n) changed_.Wait(&mu_);
  }
  int num_fetches() {
    MutexLock lock(&mu_);
    return num_fetches_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<S3Credentials> next_ HR_GUARDED_BY(mu_);
  bool blocked_ HR_GUARDED_BY(mu_) = false;
  int num_fetches_ HR_GUARDED_BY(mu_) = 0;
};

// What the cache hands over.
struct Handed {
  Mutex mu;
  CondVar changed;
  std::optional<Result<S3CredentialsPtr>> result HR_GUARDED_BY(mu);

  S3CredentialCache::Then Taker() {
    return [this](Result<S3CredentialsPtr> got) {
      MutexLock lock(&mu);
      result.emplace(std::move(got));
      changed.NotifyAll();
    };
  }
  Result<S3CredentialsPtr> Wait() {
    MutexLock lock(&mu);
    while (!result) changed.Wait(&mu);
    return *result;
  }
};

class S3CredentialCacheTest : public ::testing::Test {
 protected:
  FakeSource source_;
  std::atomic<int64_t> now_{1000 * kSecond};
  S3CredentialCache cache_{"the test", [this](const Context& ctx) { return source_.Fetch(ctx); },
                           [this] { return now_.load(); }};

  Result<S3CredentialsPtr> Get(const Context& ctx = {}) {
    Handed handed;
    cache_.Get(ctx, handed.Taker());
    return handed.Wait();
  }
  std::string Id(const Context& ctx = {}) {
    auto got = Get(ctx);
    return got.ok() ? (*got)->access_key_id : got.status().ToString();
  }
  // Until a renewal in the background has ended.
  void WaitForId(const std::string& id) {
    while (Id() != id) {
    }
  }
};

TEST_F(S3CredentialCacheTest, FetchesOnceAndKeeps) {
  source_.Add("A", 0);
  EXPECT_EQ(Id(), "A");
  now_ += int64_t{1'000'000} * kSecond;
  EXPECT_EQ(Id(), "A");
  EXPECT_EQ(source_.num_fetches(), 1);
}

TEST_F(S3CredentialCacheTest, RenewsInTheBackgroundBeforeTheEnd) {
  source_.Add("A", now_ + 1000 * kSecond);
  source_.Add("B", now_ + 5000 * kSecond);
  EXPECT_EQ(Id(), "A");
  source_.Block(true);
  now_ += 800 * kSecond;
  EXPECT_EQ(Id(), "A") << "nobody waits while the old ones are good";
  source_.WaitForFetches(2);
  EXPECT_EQ(Id(), "A");
  source_.Block(false);
  WaitForId("B");
  EXPECT_EQ(source_.num_fetches(), 2) << "one at a time";
}

TEST_F(S3CredentialCacheTest, KeepsGoodOnesWhenRenewalFails) {
  source_.Add("A", now_ + 1000 * kSecond);
  EXPECT_EQ(Id(), "A");
  now_ += 800 * kSecond;
  EXPECT_EQ(Id(), "A");
  source_.WaitForFetches(2);
  EXPECT_EQ(Id(), "A");
  source_.Add("B", 0);
  // The failure may not be booked yet, and then counts from a later time.
  while (Id() != "B") now_ += 20 * kSecond;
}

TEST_F(S3CredentialCacheTest, WaitsForNewOnesWhenTheOldAreOver) {
  source_.Add("A", now_ + 1000 * kSecond);
  source_.Add("B", 0);
  EXPECT_EQ(Id(), "A");
  now_ += 990 * kSecond;
  EXPECT_EQ(Id(), "B");
}

TEST_F(S3CredentialCacheTest, FetchesOnceForAllWhoWait) {
  source_.Block(true);
  source_.Add("A", 0);
  std::atomic<int> right{0};
  std::vector<std::unique_ptr<Thread>> threads;
  for (int i = 0; i < 8; ++i)
    threads.push_back(*Thread::Start("waiter", [&] { right += Id() == "A"; }));
  source_.WaitForFetches(1);
  source_.Block(false);
  threads.clear();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(source_.num_fetches(), 1);
}

TEST_F(S3CredentialCacheTest, SaysWhereNoneCameFrom) {
  EXPECT_THAT(Id(), HasSubstr("the test"));
  EXPECT_THAT(Id(), HasSubstr("the source is away"));
  source_.Add("A", 0);
  EXPECT_EQ(Id(), "A");
}

TEST_F(S3CredentialCacheTest, HonorsTheContextOfWhoWaits) {
  source_.Block(true);
  Context ctx;
  ctx.deadline = Context::Clock::now() + std::chrono::milliseconds(30);
  EXPECT_THAT(Id(ctx), HasSubstr("deadline"));
  std::atomic<bool> cancelled{true};
  Context other;
  other.cancelled = &cancelled;
  EXPECT_THAT(Id(other), HasSubstr("cancelled"));
}

TEST_F(S3CredentialCacheTest, RenewsThoseThatAServerRefused) {
  source_.Add("A", 0);
  source_.Add("B", 0);
  auto refused = *Get();
  Handed first, second;
  cache_.Renew(refused, first.Taker());
  EXPECT_EQ((*first.Wait())->access_key_id, "B");
  cache_.Renew(refused, second.Taker());
  EXPECT_EQ((*second.Wait())->access_key_id, "B");
  EXPECT_EQ(source_.num_fetches(), 2) << "they were renewed already";
}

TEST_F(S3CredentialCacheTest, SaysWhenThereAreNoOthers) {
  source_.Add("A", 0);
  source_.Add("A", 0);
  auto refused = *Get();
  Handed same, away;
  cache_.Renew(refused, same.Taker());
  EXPECT_EQ(same.Wait().status().code(), Code::kPermissionDenied);
  cache_.Renew(refused, away.Taker());
  EXPECT_EQ(away.Wait().status().code(), Code::kUnavailable);
}

TEST_F(S3CredentialCacheTest, StopsInTheMiddleOfAFetch) {
  source_.Add("A", 0);
  auto refused = *Get();
  source_.Block(true);
  Handed renewed, late;
  cache_.Renew(refused, renewed.Taker());
  source_.WaitForFetches(2);
  cache_.Stop();
  EXPECT_EQ(renewed.Wait().status().code(), Code::kCancelled);
  cache_.Renew(refused, late.Taker());
  EXPECT_EQ(late.Wait().status().code(), Code::kCancelled);
}

TEST_F(S3CredentialCacheTest, NobodyIsHeldUpByAFetch) {
  source_.Block(true);
  source_.Add("A", 0);
  std::atomic<bool> cancelled{false};
  Context limited;
  limited.cancelled = &cancelled;
  Handed patient, impatient;
  cache_.Get(Context(), patient.Taker());  // both return while the fetch hangs
  cache_.Get(limited, impatient.Taker());
  source_.WaitForFetches(1);
  cancelled = true;
  EXPECT_EQ(impatient.Wait().status().code(), Code::kCancelled);
  source_.Block(false);
  EXPECT_EQ((*patient.Wait())->access_key_id, "A");
}

class S3CredentialSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = net::HttpClient::Create({});
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = *std::move(client);
  }
  Result<S3Credentials> Fetch(const S3CredentialSource& source) {
    return FetchS3Credentials(source, world_.Get(), client_.get(), Context());
  }
  Result<S3Credentials> FromProcess(const std::string& output, int exit_code = 0) {
    world_.run_command = [&](const std::vector<std::string>& arguments) -> Result<CommandOutput> {
      arguments_ = arguments;
      return CommandOutput{exit_code, output};
    };
    S3CredentialSource source;
    source.kind = S3CredentialSource::Kind::kProcess;
    source.command = "/bin/get 'a b' hidden";
    return Fetch(source);
  }

  FakeSurroundings world_;
  std::vector<std::string> arguments_;
  net::FaultServer server_;
  std::unique_ptr<net::HttpClient> client_;
};

TEST_F(S3CredentialSourceTest, ReadsAProfileAnew) {
  S3CredentialSource source;
  source.kind = S3CredentialSource::Kind::kProfile;
  source.profile = "p";
  world_.WriteFile("/home/me/.aws/credentials",
                   "[p]\naws_access_key_id=A\naws_secret_access_key=a\naws_session_token=t\n");
  EXPECT_EQ(*Fetch(source), (S3Credentials{"A", "a", "t", 0}));
  world_.WriteFile("/home/me/.aws/credentials",
                   "[p]\naws_access_key_id=B\naws_secret_access_key=b\n");
  EXPECT_EQ(*Fetch(source), (S3Credentials{"B", "b", "", 0}));
  world_.WriteFile("/home/me/.aws/credentials", "");
  EXPECT_EQ(Fetch(source).status().code(), Code::kPermissionDenied);
}

TEST_F(S3CredentialSourceTest, ReadsWhatAProcessPrints) {
  auto got = FromProcess(
      R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "a", "SessionToken": "t",
          "Expiration": "2013-05-24T00:00:00Z"})");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, (S3Credentials{"A", "a", "t", 1369353600 * kSecond}));
  EXPECT_THAT(arguments_, ::testing::ElementsAre("/bin/get", "a b", "hidden"));
  got = FromProcess(R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "a"})");
  EXPECT_EQ(*got, (S3Credentials{"A", "a", "", 0}));
}

TEST_F(S3CredentialSourceTest, SaysWhatIsWrongWithAProcessAndNoSecret) {
  for (const char* output :
       {"", "verysecret", R"({"Version": 2, "AccessKeyId": "A", "SecretAccessKey": "verysecret"})",
        R"({"Version": 1, "SecretAccessKey": "verysecret"})",
        R"({"Version": 1, "AccessKeyId": "verysecret"})", R"(["verysecret"])",
        R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "x", "Expiration": "verysecret"})",
        R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "verysecret)"}) {
    Status status = FromProcess(output).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << output;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("verysecret")));
    EXPECT_THAT(status.ToString(), Not(HasSubstr("hidden")));
  }
  Status status = FromProcess("verysecret", 3).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("'/bin/get' ended with 3"));
  EXPECT_THAT(status.ToString(), Not(HasSubstr("secret")));
}

net::ServerAnswer Text(std::string body, int status = 200) {
  net::ServerAnswer answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

TEST_F(S3CredentialSourceTest, AsksTheContainer) {
  server_.SetHandler([](const net::ServerRequest& request) {
    if (request.target != "/creds?x=1" || request.Header("authorization") != "Token tok")
      return Text("", 403);
    return Text(R"({"AccessKeyId": "A", "SecretAccessKey": "a", "Token": "t",
                    "Expiration": "2013-05-24T00:00:00Z"})");
  });
  S3CredentialSource source;
  source.kind = S3CredentialSource::Kind::kContainer;
  source.url = server_.url() + "/creds?x=1";
  source.authorization = "Token tok";
  auto got = Fetch(source);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, (S3Credentials{"A", "a", "t", 1369353600 * kSecond}));
  source.authorization_file = "/token";
  world_.WriteFile("/token", "Token tok\n");
  source.authorization = "";
  EXPECT_TRUE(Fetch(source).ok());
  source.authorization_file = "";
  Status status = Fetch(source).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("403"));
}

TEST_F(S3CredentialSourceTest, AsksTheInstance) {
  server_.SetHandler([](const net::ServerRequest& request) {
    if (request.method == "PUT" && request.target == "/latest/api/token" &&
        request.Header("x-aws-ec2-metadata-token-ttl-seconds") == "21600")
      return Text("tok");
    if (request.Header("x-aws-ec2-metadata-token") != "tok") return Text("", 401);
    if (request.target == "/latest/meta-data/iam/security-credentials/") return Text("my role\n");
    if (request.target == "/latest/meta-data/iam/security-credentials/my%20role")
      return Text(R"({"Code": "Success", "AccessKeyId": "A", "SecretAccessKey": "a", "Token": "t",
                      "Expiration": "2013-05-24T00:00:00Z"})");
    return Text("", 404);
  });
  S3CredentialSource source;
  source.kind = S3CredentialSource::Kind::kInstance;
  source.url = server_.url();
  auto got = Fetch(source);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, (S3Credentials{"A", "a", "t", 1369353600 * kSecond}));
}

TEST_F(S3CredentialSourceTest, SaysWhereItLookedWhenThereIsNoInstance) {
  S3CredentialSource source;
  source.kind = S3CredentialSource::Kind::kInstance;
  source.url = server_.url();
  server_.SetHandler([](const net::ServerRequest&) { return Text("", 404); });
  Status status = Fetch(source).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  for (const char* words : {"AWS_ACCESS_KEY_ID", "~/.aws/credentials", "anonymous"})
    EXPECT_THAT(status.ToString(), HasSubstr(words));
}

}  // namespace
}  // namespace headrace::object
