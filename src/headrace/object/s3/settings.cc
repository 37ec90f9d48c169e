#include "headrace/object/s3/settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/object/s3/profiles.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

constexpr std::string_view kDefaultRegion = "us-east-1";
constexpr std::string_view kInstance = "http://169.254.169.254";
constexpr std::string_view kContainer = "http://169.254.170.2";
constexpr std::string_view kInstead =
    "use credential_process = aws configure export-credentials --profile NAME --format process";

constexpr std::array<S3Dialect, 4> kDialects = {{
    {.name = "s3"},
    {.name = "aws", .checksum = S3Checksum::kCrc32c},
    // With the quotes it answers 412 always.
    {.name = "ceph", .put_if_match_quoted = false},
    // It keeps objects as files in folders, and lists folder by folder.
    {.name = "seaweedfs", .strict_keys = false, .ordered_list = false},
}};

bool IsRegion(std::string_view region) {
  return !region.empty() && region.size() <= 64 &&
         std::all_of(region.begin(), region.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_';
         });
}

// "eu-west-1" of "s3.eu-west-1.amazonaws.com"; "" for the one of all regions; none for others.
std::optional<std::string> RegionOfAwsHost(std::string_view host) {
  if (host == "s3.amazonaws.com") return "";
  std::string_view ending = host.ends_with(".cn") ? ".amazonaws.com.cn" : ".amazonaws.com";
  if (!host.starts_with("s3.") || !host.ends_with(ending) || host.size() < 3 + ending.size())
    return std::nullopt;
  std::string_view region = host.substr(3, host.size() - 3 - ending.size());
  if (!IsRegion(region)) return std::nullopt;
  return std::string(region);
}

// "127.x.y.z": digits and dots only, so no name.
bool IsLoopback4(std::string_view host) {
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

// Puts the settings together, one kind after the other.
class SettingsReader {
 public:
  SettingsReader(const S3Options& options, const S3Surroundings& surroundings)
      : options_(options), surroundings_(surroundings) {
    settings_.surroundings = surroundings;
  }

  Result<S3Settings> Read() {
    HR_RETURN_IF_ERROR(ReadProfile());
    HR_RETURN_IF_ERROR(ReadPlace());
    HR_RETURN_IF_ERROR(ReadStyle());
    settings_.ca_file = First(options_.ca_file, {"AWS_CA_BUNDLE"}, "ca_bundle");
    HR_RETURN_IF_ERROR(ReadCredentials());
    return std::move(settings_);
  }

 private:
  std::optional<std::string> Variable(const std::string& name) const {
    return surroundings_.variable(name);
  }
  bool IsTrue(const std::string& name) const {
    std::string value = Variable(name).value_or("");
    return value == "true" || value == "True" || value == "TRUE" || value == "1";
  }

  // The option, else the first variable that is set, else the profile's value.
  std::string First(const std::string& option, const std::vector<std::string>& variables,
                    const std::string& in_profile) const {
    if (!option.empty()) return option;
    for (const std::string& variable : variables)
      if (auto value = Variable(variable)) return *value;
    return profile_.Value(in_profile).value_or("");
  }

  Status ReadProfile() {
    std::string name = options_.profile;
    bool named = !name.empty();
    for (const char* variable : {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) {
      if (!name.empty()) break;
      name = Variable(variable).value_or("");
      named = !name.empty();
    }
    HR_ASSIGN_OR_RETURN(profile_, LoadProfile(named ? name : "default", surroundings_));
    // Whoever gives all else needs no profile.
    bool needed = named && options_.access_key_id.empty() && !options_.anonymous;
    if (!needed || profile_.found) return OkStatus();
    return Error(Code::kNotFound, "there is no profile '{}' in {} or {}", EscapeText(name),
                 EscapeText(profile_.credentials_path), EscapeText(profile_.config_path));
  }

  std::string ConfiguredEndpoint() const {
    if (!options_.endpoint.empty()) return options_.endpoint;
    if (IsTrue("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) return "";
    for (const char* variable : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
      if (auto value = Variable(variable)) return *value;
    if (auto found = profile_.services.find("s3.endpoint_url"); found != profile_.services.end())
      return found->second;
    return profile_.Value("endpoint_url").value_or("");
  }

  // Region and endpoint.
  Status ReadPlace() {
    settings_.region = First(options_.region, {"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
    std::string endpoint = ConfiguredEndpoint();
    std::optional<std::string> aws_region = "";
    if (!endpoint.empty()) {
      auto uri = ParseUri(endpoint);
      if (!uri.ok()) return std::move(uri).status().Prefix("the S3 endpoint");
      if (!uri->user_info.empty() || !uri->query.empty())
        return Error(Code::kInvalidArgument,
                     "the S3 endpoint has a user or a query: expected https://host[:port]");
      while (uri->path.ends_with('/')) uri->path.pop_back();
      settings_.endpoint = uri->scheme + "://" + uri->Authority() + uri->path;
      aws_region = uri->scheme == "https" && uri->path.empty() ? RegionOfAwsHost(uri->Authority())
                                                               : std::nullopt;
    }
    settings_.aws = aws_region.has_value();
    if (settings_.region.empty()) settings_.region = aws_region.value_or("");
    if (settings_.region.empty()) settings_.region = kDefaultRegion;
    if (!IsRegion(settings_.region))
      return Error(Code::kInvalidArgument, "'{}' is not the name of a region",
                   EscapeText(settings_.region));
    if (settings_.aws) settings_.endpoint = AwsS3Endpoint(settings_.region);
    return OkStatus();
  }

  // Path style and dialect.
  Status ReadStyle() {
    auto uri = ParseUri(settings_.endpoint);
    bool at_aws = uri.ok() && (uri->host.ends_with(".amazonaws.com") ||
                               uri->host.ends_with(".amazonaws.com.cn"));
    std::string style = profile_.Value("s3.addressing_style").value_or("auto");
    settings_.path_style = style == "path" || (style != "virtual" && !at_aws);
    if (options_.path_style) settings_.path_style = *options_.path_style;
    std::string dialect = options_.dialect;
    if (dialect.empty()) dialect = at_aws ? "aws" : "s3";
    HR_ASSIGN_OR_RETURN(settings_.dialect, FindS3Dialect(dialect));
    return OkStatus();
  }

  Status ReadCredentials() {
    S3CredentialSource& source = settings_.credentials;
    if (options_.anonymous) return OkStatus();
    if (!options_.access_key_id.empty() || !options_.secret_access_key.empty())
      return UseFixed("the settings", options_.access_key_id, options_.secret_access_key,
                      options_.session_token);
    if (options_.profile.empty() && Variable("AWS_ACCESS_KEY_ID"))
      return UseFixed("the environment (AWS_ACCESS_KEY_ID)", *Variable("AWS_ACCESS_KEY_ID"),
                      Variable("AWS_SECRET_ACCESS_KEY").value_or(""),
                      Variable("AWS_SESSION_TOKEN").value_or(""));
    HR_ASSIGN_OR_RETURN(bool found, UseProfile());
    if (found) return OkStatus();
    if (Variable("AWS_WEB_IDENTITY_TOKEN_FILE"))
      return Error(Code::kUnimplemented,
                   "credentials of a web identity (AWS_WEB_IDENTITY_TOKEN_FILE) are not read: {}",
                   kInstead);
    HR_ASSIGN_OR_RETURN(found, UseContainer());
    if (found) return OkStatus();
    if (IsTrue("AWS_EC2_METADATA_DISABLED")) return NoCredentials();
    source.kind = S3CredentialSource::Kind::kInstance;
    source.url = Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or(std::string(kInstance));
    while (source.url.ends_with('/')) source.url.pop_back();
    source.description = "this instance's role";
    auto uri = ParseUri(source.url);
    if (!uri.ok()) return std::move(uri).status().Prefix("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    return OkStatus();
  }

  Status UseFixed(std::string description, std::string id, std::string secret, std::string token) {
    if (id.empty() || secret.empty())
      return Error(Code::kInvalidArgument,
                   "{}: an access key id without its secret access key, or the reverse",
                   description);
    S3CredentialSource& source = settings_.credentials;
    source.kind = S3CredentialSource::Kind::kFixed;
    source.access_key_id = std::move(id);
    source.secret_access_key = std::move(secret);
    source.session_token = std::move(token);
    source.description = std::move(description);
    return OkStatus();
  }

  Result<bool> UseProfile() {
    S3CredentialSource& source = settings_.credentials;
    source.profile = profile_.name;
    for (const char* wish : {"role_arn", "sso_session", "sso_start_url"})
      if (profile_.Value(wish))
        return Error(Code::kUnimplemented, "{} has {}, which is not read: {}",
                     profile_.Describe(wish), wish, kInstead);
    if (profile_.credentials.count("aws_access_key_id") == 0) {
      if (auto command = profile_.Value("credential_process")) {
        source.kind = S3CredentialSource::Kind::kProcess;
        source.command = *command;
        source.description = "the credential_process of " + profile_.Describe("credential_process");
        return true;
      }
    }
    if (!profile_.Value("aws_access_key_id")) return false;
    source.kind = S3CredentialSource::Kind::kProfile;
    source.description = profile_.Describe("aws_access_key_id");
    if (!profile_.Value("aws_secret_access_key"))
      return Error(Code::kInvalidArgument, "{} has aws_access_key_id and no aws_secret_access_key",
                   source.description);
    return true;
  }

  Result<bool> UseContainer() {
    S3CredentialSource& source = settings_.credentials;
    auto relative = Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    auto full = Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!relative && !full) return false;
    source.kind = S3CredentialSource::Kind::kContainer;
    source.description = "this container's role";
    source.url = relative ? std::string(kContainer) + *relative : *full;
    source.authorization = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
    source.authorization_file = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").value_or("");
    auto uri = ParseUri(source.url);
    if (!uri.ok()) return std::move(uri).status().Prefix("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    // Keys must not come, nor the token go, over an open network.
    bool near = uri->host == "localhost" || IsLoopback4(uri->host) || uri->host == "[::1]" ||
                uri->host == "169.254.170.2" || uri->host == "169.254.170.23" ||
                uri->host == "[fd00:ec2::23]";
    if (uri->scheme != "https" && !near)
      return Error(Code::kInvalidArgument,
                   "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor this machine");
    return true;
  }

  Status NoCredentials() const {
    return Error(Code::kPermissionDenied,
                 "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in "
                 "{}; for a public bucket ask for anonymous access",
                 EscapeText(profile_.credentials_path));
  }

  const S3Options& options_;
  const S3Surroundings& surroundings_;
  Profile profile_;
  S3Settings settings_;
};

}  // namespace

Result<S3Dialect> FindS3Dialect(std::string_view name) {
  for (const S3Dialect& dialect : kDialects)
    if (dialect.name == name) return dialect;
  return Error(Code::kInvalidArgument, "no S3 dialect '{}': s3, aws, ceph or seaweedfs",
               EscapeText(name));
}

S3Surroundings S3Surroundings::Real() {
  S3Surroundings real;
  real.variable = EnvironmentVariable;
  real.run_command = RunCommand;
  real.wall_clock_ns = WallClockNanos;
  real.files = PosixFileSystem();
  real.home = HomeDirectory();
  return real;
}

std::string AwsS3Endpoint(std::string_view region) {
  return "https://s3." + std::string(region) + ".amazonaws.com" +
         (region.starts_with("cn-") ? ".cn" : "");
}

Result<S3Settings> ReadS3Settings(const S3Options& options, const S3Surroundings& surroundings) {
  return SettingsReader(options, surroundings).Read();
}

}  // namespace headrace::object
