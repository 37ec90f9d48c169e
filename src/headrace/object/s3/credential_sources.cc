// The ways credentials are had: fixed, from a profile, printed by a program, told by the container
// or the instance that this runs on.
#include <chrono>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/object/s3/credentials.h"
#include "headrace/object/s3/profiles.h"
#include "headrace/object/timestamp.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

constexpr uint64_t kMaxAnswer = 64 << 10;
// The instance's service answers at once, or there is none.
constexpr std::chrono::milliseconds kInstanceTimeout{1000};
constexpr std::chrono::seconds kContainerTimeout{5};

// The names of the members differ between sources.
struct JsonNames {
  const char* token;
  bool must_expire;
};

// Nothing of `text` may come into a message.
Result<S3Credentials> ReadJson(std::string_view text, const JsonNames& names) {
  auto json = Json::Parse(text);
  if (!json.ok() || !json->is_object())
    return Error(Code::kInvalidArgument, "what it gave is not a JSON object");
  auto member = [&](const char* name) {
    const Json* found = json->Find(name);
    return found ? std::string(found->AsString()) : std::string();
  };
  S3Credentials credentials;
  credentials.access_key_id = member("AccessKeyId");
  credentials.secret_access_key = member("SecretAccessKey");
  credentials.session_token = member(names.token);
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty())
    return Error(Code::kInvalidArgument,
                 "AccessKeyId or SecretAccessKey is missing in what it gave");
  std::string expiration = member("Expiration");
  if (expiration.empty()) {
    if (!names.must_expire) return credentials;
    return Error(Code::kInvalidArgument, "Expiration is missing in what it gave");
  }
  auto expires_ns = ParseIso8601(expiration);
  if (!expires_ns)
    return Error(Code::kInvalidArgument, "its Expiration is not a time like 2030-01-31T12:00:00Z");
  credentials.expires_ns = *expires_ns;
  return credentials;
}

Result<S3Credentials> FromProfile(const S3CredentialSource& source,
                                  const S3Surroundings& surroundings) {
  HR_ASSIGN_OR_RETURN(Profile profile, LoadProfile(source.profile, surroundings));
  S3Credentials credentials;
  credentials.access_key_id = profile.Value("aws_access_key_id").value_or("");
  credentials.secret_access_key = profile.Value("aws_secret_access_key").value_or("");
  credentials.session_token = profile.Value("aws_session_token").value_or("");
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty())
    return Error(Code::kPermissionDenied, "it has no keys any more");
  return credentials;
}

Result<S3Credentials> FromProcess(const S3CredentialSource& source,
                                  const S3Surroundings& surroundings, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> arguments, SplitCommand(source.command));
  HR_ASSIGN_OR_RETURN(CommandOutput output, surroundings.run_command(arguments, kMaxAnswer, ctx));
  if (output.exit_code != 0)
    return Error(Code::kPermissionDenied, "'{}' ended with {}: run it by hand to see why",
                 EscapeText(arguments[0]), output.exit_code);
  auto json = Json::Parse(output.text);
  if (json.ok() && json->is_object()) {
    const Json* version = json->Find("Version");
    if (!version || version->AsInt() != 1)
      return Error(Code::kInvalidArgument, "'{}' printed another Version than 1",
                   EscapeText(arguments[0]));
  }
  return ReadJson(output.text, {.token = "SessionToken", .must_expire = false});
}

// Fetches a URL on this machine; the body of a 200 answer.
Result<std::string> Ask(net::HttpClient* client, net::HttpRequest request, const Context& ctx,
                        std::chrono::milliseconds timeout) {
  Context limited = ctx;
  limited.deadline = std::min(limited.deadline, Context::Clock::now() + timeout);
  request.max_body_bytes = kMaxAnswer;
  HR_ASSIGN_OR_RETURN(net::HttpResponse response, client->Fetch(std::move(request), limited));
  if (response.status == 200) return std::move(response.body);
  return Error(response.status >= 500 || response.status == 429 ? Code::kUnavailable
                                                                : Code::kPermissionDenied,
               "it answered with status {}", response.status);
}

Result<S3Credentials> FromContainer(const S3CredentialSource& source,
                                    const S3Surroundings& surroundings, net::HttpClient* client,
                                    const Context& ctx) {
  net::HttpRequest request;
  request.url = source.url;
  std::string authorization = source.authorization;
  if (!source.authorization_file.empty()) {
    HR_ASSIGN_OR_RETURN(authorization,
                        surroundings.files->ReadWhole(source.authorization_file, kMaxAnswer));
    while (!authorization.empty() && (authorization.back() == '\n' || authorization.back() == '\r'))
      authorization.pop_back();
  }
  if (!authorization.empty()) request.headers.push_back({"Authorization", authorization});
  HR_ASSIGN_OR_RETURN(std::string body, Ask(client, std::move(request), ctx, kContainerTimeout));
  return ReadJson(body, {.token = "Token", .must_expire = false});
}

Status NoInstance(const Status& status) {
  return Error(Code::kPermissionDenied,
               "no credentials were found: not in the environment (AWS_ACCESS_KEY_ID), nor in a "
               "profile (~/.aws/credentials), nor from the instance's metadata service ({}); for a "
               "public bucket ask for anonymous access",
               status.message());
}

Result<S3Credentials> FromInstance(const S3CredentialSource& source, net::HttpClient* client,
                                   const Context& ctx) {
  net::HttpRequest login;
  login.method = "PUT";
  login.url = source.url + "/latest/api/token";
  login.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}};
  auto token = Ask(client, std::move(login), ctx, kInstanceTimeout);
  if (!token.ok()) {
    HR_RETURN_IF_ERROR(ctx.Check());
    return NoInstance(token.status());
  }
  auto get = [&](const std::string& path) {
    net::HttpRequest request;
    request.url = source.url + "/latest/meta-data/iam/security-credentials/" + path;
    request.headers = {{"X-aws-ec2-metadata-token", *token}};
    return Ask(client, std::move(request), ctx, kContainerTimeout);
  };
  auto roles = get("");
  if (!roles.ok()) return NoInstance(std::move(roles).status().Prefix("the instance has no role"));
  std::string role = roles->substr(0, roles->find_first_of("\r\n"));
  HR_ASSIGN_OR_RETURN(std::string body, get(PercentEncode(role)));
  return ReadJson(body, {.token = "Token", .must_expire = true});
}

}  // namespace

Result<S3Credentials> FetchS3Credentials(const S3CredentialSource& source,
                                         const S3Surroundings& surroundings,
                                         net::HttpClient* client, const Context& ctx) {
  switch (source.kind) {
    case S3CredentialSource::Kind::kAnonymous:
      break;
    case S3CredentialSource::Kind::kFixed:
      return S3Credentials{source.access_key_id, source.secret_access_key, source.session_token, 0};
    case S3CredentialSource::Kind::kProfile:
      return FromProfile(source, surroundings);
    case S3CredentialSource::Kind::kProcess:
      return FromProcess(source, surroundings, ctx);
    case S3CredentialSource::Kind::kContainer:
      return FromContainer(source, surroundings, client, ctx);
    case S3CredentialSource::Kind::kInstance:
      return FromInstance(source, client, ctx);
  }
  return Error(Code::kInternal, "anonymous access has no credentials");
}

}  // namespace headrace::object
