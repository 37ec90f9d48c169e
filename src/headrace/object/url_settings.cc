#include "headrace/object/url_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "headrace/base/text.h"
#include "headrace/env/process.h"

namespace headrace::object {

namespace {

constexpr std::string_view kNames =
    "endpoint, region, profile, access_key_id, secret_access_key, session_token, anonymous, "
    "path_style, dialect, ca_file, connections, retry_budget, bandwidth, peer_token_file";

Status SetSwitch(std::string_view name, const std::string& value, bool* to) {
  HR_ASSIGN_OR_RETURN(*to, ParseSwitch(name, value));
  return OkStatus();
}

Status SetSwitch(std::string_view name, const std::string& value, std::optional<bool>* to) {
  HR_ASSIGN_OR_RETURN(*to, ParseSwitch(name, value));
  return OkStatus();
}

Status SetConnections(const std::string& value, uint32_t* to) {
  constexpr uint64_t kMost = 4096;
  Result<uint64_t> count = ParseSize(value);
  if (!count.ok() || *count == 0 || *count > kMost)
    return Error(Code::kInvalidArgument, "connections: expected 1 to {}, found '{}'", kMost,
                 EscapeText(value));
  *to = static_cast<uint32_t>(*count);
  return OkStatus();
}

Status SetDuration(const std::string& value, std::chrono::nanoseconds* to) {
  Result<std::chrono::nanoseconds> duration = ParseDuration(value);
  if (!duration.ok()) return std::move(duration).status().Prefix("retry_budget");
  *to = *duration;
  return OkStatus();
}

Status SetBandwidth(const std::string& value, uint64_t* to) {
  Result<uint64_t> bytes = ParseSize(value);
  if (!bytes.ok()) return std::move(bytes).status().Prefix("bandwidth");
  *to = *bytes;
  return OkStatus();
}

Status Set(const std::string& name, const std::string& value, UrlSettings* settings) {
  S3Options& s3 = settings->s3;
  const std::pair<std::string_view, std::string*> texts[] = {
      {"endpoint", &s3.endpoint},
      {"region", &s3.region},
      {"profile", &s3.profile},
      {"access_key_id", &s3.access_key_id},
      {"secret_access_key", &s3.secret_access_key},
      {"session_token", &s3.session_token},
      {"dialect", &s3.dialect},
      {"ca_file", &s3.ca_file},
      {"peer_token_file", &settings->peer_token_file}};
  for (const auto& [text, to] : texts) {
    if (name != text) continue;
    *to = value;
    return OkStatus();
  }
  if (name == "anonymous") return SetSwitch(name, value, &s3.anonymous);
  if (name == "path_style") return SetSwitch(name, value, &s3.path_style);
  if (name == "connections") return SetConnections(value, &settings->connections);
  if (name == "retry_budget") return SetDuration(value, &settings->retry_budget);
  if (name == "bandwidth") return SetBandwidth(value, &settings->bandwidth_bytes);
  return Error(Code::kInvalidArgument, "there is no storage option '{}'; there are: {}",
               EscapeText(name), kNames);
}

}  // namespace

std::string UrlSettings::Fingerprint() const {
  const std::string numbers = fmt::format(
      "{} {} {} {} {} {} {}", s3.anonymous, s3.path_style ? (*s3.path_style ? 1 : 0) : 2,
      connections, retry_budget.count(), bandwidth_bytes, reinterpret_cast<uintptr_t>(wrap.get()),
      reinterpret_cast<uintptr_t>(cancelled));
  std::string all;
  for (const std::string* part :
       {&s3.endpoint, &s3.region, &s3.profile, &s3.access_key_id, &s3.secret_access_key,
        &s3.session_token, &s3.dialect, &s3.ca_file, &http_root, &http_user, &http_query,
        &peer_token_file, &peer_token, &numbers})
    all += fmt::format("{}:{},", part->size(), *part);
  return all;
}

Result<UrlSettings> ReadUrlSettings(const std::map<std::string, std::string>& named) {
  UrlSettings settings;
  for (const auto& [name, variable] :
       {std::pair("anonymous", "HEADRACE_S3_ANONYMOUS"),
        std::pair("path_style", "HEADRACE_S3_PATH_STYLE"),
        std::pair("dialect", "HEADRACE_S3_DIALECT"), std::pair("bandwidth", "HEADRACE_BANDWIDTH"),
        std::pair("peer_token_file", "HEADRACE_PEER_TOKEN_FILE")}) {
    std::optional<std::string> value = EnvironmentVariable(variable);
    if (value) HR_RETURN_IF_ERROR(Set(name, *value, &settings).Prefix(variable));
  }
  for (const auto& [name, value] : named) HR_RETURN_IF_ERROR(Set(name, value, &settings));
  settings.peer_token = EnvironmentVariable("HEADRACE_PEER_TOKEN").value_or("");
  return settings;
}

}  // namespace headrace::object
