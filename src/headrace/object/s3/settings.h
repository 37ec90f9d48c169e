// How to reach a bucket, read from where people keep it for AWS tools. Each value is taken from the
// first place that has it:
//
//   1. S3Options: what the caller says.
//   2. The environment: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION,
//      AWS_CA_BUNDLE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
//   3. The profile AWS_PROFILE ("default" without it) in ~/.aws/credentials and ~/.aws/config, or
//      where AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE say.
//   4. Credentials only: the container's (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI),
//   then
//      the instance's (IMDSv2; not with AWS_EC2_METADATA_DISABLED=true).
//
// A profile named in S3Options goes before the environment's keys, since it was asked for.
// Functions here are safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/env/command.h"
#include "headrace/env/file.h"

namespace headrace::object {

// What a server does with a body's checksum when an object is put.
enum class S3Checksum : uint8_t {
  kCrc32c,  // x-amz-checksum-crc32c: AWS
  kMd5,     // Content-MD5: every server
  kNone,
};

// What servers differ in. Tested per server by tests/integration/.
struct S3Dialect {
  std::string_view name = "s3";
  bool put_if_absent = true;        // PUT obeys If-None-Match: *
  bool put_if_match = true;         // PUT obeys If-Match
  bool put_if_match_quoted = true;  // ... with the ETag in quotes, as it should be
  bool strict_keys = true;          // keys with "." and ".." parts and "//" are taken
  bool ordered_list = true;         // listings go by the keys' bytes
  S3Checksum checksum = S3Checksum::kMd5;
};

// The dialects by name: "s3" (any server), "aws", "ceph", "seaweedfs". kInvalidArgument lists them.
Result<S3Dialect> FindS3Dialect(std::string_view name);

// Settings of the caller. Empty ones are looked up.
struct S3Options {
  std::string endpoint = {};  // "https://host[:port]"
  std::string region = {};
  std::string profile = {};
  std::string access_key_id = {}, secret_access_key = {}, session_token = {};
  bool anonymous = false;  // sign nothing: for public buckets
  std::optional<bool> path_style =
      {};                    // https://host/bucket/key rather than https://bucket.host/key
  std::string dialect = {};  // see FindS3Dialect; empty: by the endpoint
  std::string ca_file = {};  // certificates to trust
};

// Where the credentials come from.
struct S3CredentialSource {
  enum class Kind : uint8_t { kAnonymous, kFixed, kProfile, kProcess, kContainer, kInstance };
  Kind kind = Kind::kAnonymous;
  std::string access_key_id, secret_access_key, session_token;  // kFixed
  std::string profile;                                          // kProfile, kProcess
  std::string command;             // kProcess: a command line; may hold secrets
  std::string url;                 // kContainer, kInstance
  std::string authorization;       // kContainer: a header's value, secret
  std::string authorization_file;  // kContainer: a file that holds it, read anew each time
  // "profile 'x' (/root/.aws/credentials)", for messages: without secrets.
  std::string description;
};

// The world outside, for tests to replace. The default is the real one.
struct S3Surroundings {
  std::function<std::optional<std::string>(const std::string&)> variable;
  std::function<Result<CommandOutput>(const std::vector<std::string>&, uint64_t, const Context&)>
      run_command;
  std::function<int64_t()> wall_clock_ns;  // since 1970
  FileSystem* files = nullptr;
  std::string home;

  static S3Surroundings Real();
};

struct S3Settings {
  std::string endpoint;  // "https://host[:port][/path]", without a '/' at the end
  bool aws = false;      // the endpoint is AWS's and follows the region
  std::string region;
  bool path_style = false;
  S3Dialect dialect;
  std::string ca_file;
  S3CredentialSource credentials;
  S3Surroundings surroundings;
};

// "https://s3.REGION.amazonaws.com", with another ending in China.
std::string AwsS3Endpoint(std::string_view region);

// Puts the settings together.
//   kNotFound          a profile that was named is in neither file.
//   kInvalidArgument   a value or a file that makes no sense: names it, without its secrets.
//   kUnimplemented     the profile wants a role or single sign-on: says what works instead.
Result<S3Settings> ReadS3Settings(const S3Options& options,
                                  const S3Surroundings& surroundings = S3Surroundings::Real());

}  // namespace headrace::object
