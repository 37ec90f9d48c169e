#include "headrace/object/s3/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/s3/profiles.h"
#include "headrace/object/testing/fake_surroundings.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Kind = S3CredentialSource::Kind;

class S3SettingsTest : public ::testing::Test {
 protected:
  S3Settings Read(const S3Options& options = {}) {
    auto settings = ReadS3Settings(options, world_.Get());
    EXPECT_TRUE(settings.ok()) << settings.status().ToString();
    return settings.ok() ? *settings : S3Settings();
  }
  Status Failure(const S3Options& options = {}) {
    auto settings = ReadS3Settings(options, world_.Get());
    EXPECT_FALSE(settings.ok());
    return settings.status();
  }
  void WriteConfig(const std::string& text) { world_.WriteFile("/home/me/.aws/config", text); }
  void WriteCredentials(const std::string& text) {
    world_.WriteFile("/home/me/.aws/credentials", text);
  }

  FakeSurroundings world_;
};

TEST_F(S3SettingsTest, AreAwsWithNothingSet) {
  S3Settings settings = Read();
  EXPECT_EQ(settings.region, "us-east-1");
  EXPECT_EQ(settings.endpoint, "https://s3.us-east-1.amazonaws.com");
  EXPECT_TRUE(settings.aws);
  EXPECT_FALSE(settings.path_style);
  EXPECT_EQ(settings.dialect.name, "aws");
  EXPECT_EQ(settings.dialect.checksum, S3Checksum::kCrc32c);
  EXPECT_EQ(settings.ca_file, "");
  EXPECT_EQ(settings.credentials.kind, Kind::kInstance);
}

TEST_F(S3SettingsTest, TakeTheRegionFromTheFirstPlace) {
  WriteConfig("[default]\nregion = eu-north-1\n");
  EXPECT_EQ(Read().region, "eu-north-1");
  EXPECT_EQ(Read().endpoint, "https://s3.eu-north-1.amazonaws.com");
  world_.variables["AWS_DEFAULT_REGION"] = "eu-west-1";
  EXPECT_EQ(Read().region, "eu-west-1");
  world_.variables["AWS_REGION"] = "cn-north-1";
  EXPECT_EQ(Read().endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(Read({.region = "x-1"}).region, "x-1");
  EXPECT_EQ(Failure({.region = "a.b/c"}).code(), Code::kInvalidArgument);
}

TEST_F(S3SettingsTest, TakeTheEndpointFromTheFirstPlace) {
  WriteConfig(
      "[profile p]\nendpoint_url = http://one:1\nservices = s\n"
      "[services s]\ns3 =\n  endpoint_url = http://two:2/\ndynamodb =\n  endpoint_url = http://x\n"
      "[profile q]\nendpoint_url = http://three:3\n");
  world_.variables["AWS_PROFILE"] = "p";
  EXPECT_EQ(Read().endpoint, "http://two:2");
  world_.variables["AWS_PROFILE"] = "q";
  EXPECT_EQ(Read().endpoint, "http://three:3");
  world_.variables["AWS_ENDPOINT_URL"] = "http://four:4/base/";
  EXPECT_EQ(Read().endpoint, "http://four:4/base");
  world_.variables["AWS_ENDPOINT_URL_S3"] = "HTTPS://Five:443";
  EXPECT_EQ(Read().endpoint, "https://five");
  EXPECT_EQ(Read({.endpoint = "http://six"}).endpoint, "http://six");
  EXPECT_FALSE(Read().aws);
  EXPECT_TRUE(Read().path_style);
  EXPECT_EQ(Read().dialect.name, "s3");
  world_.variables["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
  EXPECT_TRUE(Read().aws);
}

TEST_F(S3SettingsTest, KnowAwsByItsHost) {
  S3Settings settings = Read({.endpoint = "https://s3.eu-central-1.amazonaws.com"});
  EXPECT_TRUE(settings.aws);
  EXPECT_EQ(settings.region, "eu-central-1");
  EXPECT_TRUE(Read({.endpoint = "https://s3.amazonaws.com"}).aws);
  settings = Read({.endpoint = "https://bucket.vpce-1.s3.us-west-2.vpce.amazonaws.com"});
  EXPECT_FALSE(settings.aws);
  EXPECT_FALSE(settings.path_style);
  EXPECT_EQ(settings.dialect.name, "aws");
  EXPECT_FALSE(Read({.endpoint = "http://s3.amazonaws.com.example"}).aws);
  EXPECT_EQ(Read({.endpoint = "http://s3.amazonaws.com.example"}).dialect.name, "s3");
}

TEST_F(S3SettingsTest, ReadTheAddressingStyle) {
  WriteConfig("[default]\ns3 =\n    addressing_style = path\n");
  EXPECT_TRUE(Read().path_style);
  EXPECT_FALSE(Read({.path_style = false}).path_style);
  WriteConfig("[default]\ns3 =\n    addressing_style = virtual\n");
  EXPECT_FALSE(Read({.endpoint = "http://h"}).path_style);
  EXPECT_TRUE(Read({.endpoint = "http://h", .path_style = true}).path_style);
}

TEST_F(S3SettingsTest, RefuseEndpointsThatAreNone) {
  Status status = Failure({.endpoint = "http://me:secret@h"});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.ToString(), Not(HasSubstr("secret")));
  EXPECT_THAT(Failure({.endpoint = "h:9000"}).ToString(), HasSubstr("endpoint"));
  EXPECT_EQ(Failure({.dialect = "bogus"}).code(), Code::kInvalidArgument);
}

TEST_F(S3SettingsTest, FindTheCertificates) {
  WriteConfig("[default]\nca_bundle = /one\n");
  EXPECT_EQ(Read().ca_file, "/one");
  world_.variables["AWS_CA_BUNDLE"] = "/two";
  EXPECT_EQ(Read().ca_file, "/two");
  EXPECT_EQ(Read({.ca_file = "/three"}).ca_file, "/three");
}

TEST_F(S3SettingsTest, TakeCredentialsFromTheFirstPlace) {
  world_.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  EXPECT_EQ(Read().credentials.kind, Kind::kContainer);
  EXPECT_EQ(Read().credentials.url, "http://169.254.170.2/v2/x");
  WriteConfig("[default]\naws_access_key_id = C\naws_secret_access_key = c\n");
  EXPECT_EQ(Read().credentials.kind, Kind::kProfile);
  EXPECT_THAT(Read().credentials.description, HasSubstr("/home/me/.aws/config"));
  WriteCredentials("[default]\ncredential_process = get 'a b' # not a comment\n");
  EXPECT_EQ(Read().credentials.kind, Kind::kProcess);
  EXPECT_EQ(Read().credentials.command, "get 'a b' # not a comment");
  WriteCredentials("[default]\naws_access_key_id = A\naws_secret_access_key = a\n");
  EXPECT_EQ(Read().credentials.kind, Kind::kProfile);
  EXPECT_THAT(Read().credentials.description, HasSubstr("/home/me/.aws/credentials"));
  world_.variables["AWS_ACCESS_KEY_ID"] = "E";
  world_.variables["AWS_SECRET_ACCESS_KEY"] = "e";
  world_.variables["AWS_SESSION_TOKEN"] = "t";
  EXPECT_EQ(Read().credentials.kind, Kind::kFixed);
  EXPECT_EQ(Read().credentials.access_key_id, "E");
  EXPECT_EQ(Read().credentials.session_token, "t");
  EXPECT_EQ(Read({.profile = "default"}).credentials.kind, Kind::kProfile);
  S3Settings settings = Read({.access_key_id = "O", .secret_access_key = "o"});
  EXPECT_EQ(settings.credentials.access_key_id, "O");
  EXPECT_EQ(settings.credentials.session_token, "");
  EXPECT_EQ(
      Read({.access_key_id = "O", .secret_access_key = "o", .anonymous = true}).credentials.kind,
      Kind::kAnonymous);
}

TEST_F(S3SettingsTest, RefuseHalfOfAPairOfKeys) {
  for (auto name : {"AWS_ACCESS_KEY_ID"}) {
    world_.variables = {{name, "x"}};
    EXPECT_EQ(Failure().code(), Code::kInvalidArgument);
  }
  world_.variables.clear();
  EXPECT_EQ(Failure({.access_key_id = "x"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Failure({.secret_access_key = "x"}).code(), Code::kInvalidArgument);
  WriteCredentials("[default]\naws_access_key_id = A\n");
  EXPECT_EQ(Failure().code(), Code::kInvalidArgument);
}

TEST_F(S3SettingsTest, NameAProfileThatIsMissing) {
  world_.variables["AWS_PROFILE"] = "nobody";
  Status status = Failure();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr("'nobody'"));
  EXPECT_THAT(status.ToString(), HasSubstr("/home/me/.aws/credentials"));
  Read({.anonymous = true});
  world_.variables["AWS_SHARED_CREDENTIALS_FILE"] = "/else/where";
  world_.variables["AWS_CONFIG_FILE"] = "~/conf";
  world_.WriteFile("/else/where", "[nobody]\naws_access_key_id=N\naws_secret_access_key=n\n");
  world_.WriteFile("/home/me/conf", "[profile nobody]\nregion=r-1\n");
  EXPECT_EQ(Read().region, "r-1");
  EXPECT_EQ(Read().credentials.kind, Kind::kProfile);
}

TEST_F(S3SettingsTest, TakeTheNullDeviceForNoFile) {
  WriteConfig("[default]\nregion = r-1\n");
  world_.variables["AWS_CONFIG_FILE"] = "/dev/null";
  EXPECT_EQ(Read().region, "us-east-1");
}

TEST_F(S3SettingsTest, SayWhatWorksInsteadOfRolesAndSignOn) {
  for (const char* wish : {"role_arn = arn:x", "sso_session = s", "sso_start_url = https://x"}) {
    WriteConfig("[default]\n" + std::string(wish) + "\n");
    Status status = Failure();
    EXPECT_EQ(status.code(), Code::kUnimplemented) << wish;
    EXPECT_THAT(status.ToString(), HasSubstr("credential_process"));
  }
  WriteConfig("");
  world_.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  EXPECT_EQ(Failure().code(), Code::kUnimplemented);
}

TEST_F(S3SettingsTest, LeaveTheInstanceAloneWhenTold) {
  world_.variables["AWS_EC2_METADATA_DISABLED"] = "true";
  Status status = Failure();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("AWS_ACCESS_KEY_ID"));
}

TEST_F(S3SettingsTest, SendTheContainersTokenToThisMachineOnly) {
  for (const char* url : {"http://example.com/x", "http://10.0.0.1/x", "http://127.evil.example/",
                          "http://localhost.evil.example/"}) {
    world_.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url;
    EXPECT_EQ(Failure().code(), Code::kInvalidArgument) << url;
  }
  for (const char* url : {"http://127.0.0.1:80/x", "http://localhost/x", "http://[::1]/x",
                          "https://example.com/x", "http://169.254.170.23/v1/credentials"}) {
    world_.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url;
    EXPECT_EQ(Read().credentials.url, url);
  }
}

TEST_F(S3SettingsTest, NameAFileThatIsDamagedAndNotItsContent) {
  WriteCredentials("[default]\naws_secret_access_key verysecret\n");
  Status status = Failure();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("/home/me/.aws/credentials"));
  EXPECT_THAT(status.ToString(), HasSubstr("line 2"));
  EXPECT_THAT(status.ToString(), Not(HasSubstr("verysecret")));
}

TEST(ProfileFile, ReadsWhatPeopleWrite) {
  auto file = ProfileFile::Parse(
      "\xef\xbb\xbf# comment\r\n; another\r\n[ profile   a  b ]\r\nRegion=x  # why\r\n"
      "  indented = 1\r\nkey = a=b#c;d\r\ns3 =\r\n  Addressing_Style = path ; so\r\n\r\n"
      "  other = 2\r\nlast = \r\n[x]\n[profile a b]\nlast = 3");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto* section = file->Find("profile a b");
  ASSERT_NE(section, nullptr);
  EXPECT_EQ(section->at("region"), "x");
  EXPECT_EQ(section->at("indented"), "1");
  EXPECT_EQ(section->at("key"), "a=b#c;d");
  EXPECT_EQ(section->at("s3.addressing_style"), "path");
  EXPECT_EQ(section->at("s3.other"), "2");
  EXPECT_EQ(section->at("last"), "3");
  EXPECT_NE(file->Find("x"), nullptr);
  EXPECT_EQ(file->Find("y"), nullptr);
}

TEST(ProfileFile, NamesTheLineThatIsWrong) {
  EXPECT_THAT(ProfileFile::Parse("\n[a").status().ToString(), HasSubstr("line 2"));
  EXPECT_THAT(ProfileFile::Parse("a = b").status().ToString(), HasSubstr("line 1"));
  EXPECT_THAT(ProfileFile::Parse("[a]\nb").status().ToString(), HasSubstr("line 2"));
  EXPECT_TRUE(ProfileFile::Parse("").ok());
}

TEST(S3Dialect, AreFoundByName) {
  EXPECT_FALSE(FindS3Dialect("ceph")->put_if_match_quoted);
  EXPECT_FALSE(FindS3Dialect("seaweedfs")->strict_keys);
  EXPECT_THAT(FindS3Dialect("x").status().ToString(), HasSubstr("seaweedfs"));
}

TEST(S3Surroundings, TheRealOnesAreWhole) {
  S3Surroundings real = S3Surroundings::Real();
  EXPECT_NE(real.files, nullptr);
  EXPECT_GT(real.wall_clock_ns(), 0);
  EXPECT_EQ(real.variable("HEADRACE_NO_SUCH_VARIABLE"), std::nullopt);
  EXPECT_EQ(real.run_command({"printf", "x"}, 10, Context())->text, "x");
}

}  // namespace
}  // namespace headrace::object
