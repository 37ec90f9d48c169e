#include "headrace/agent/http_access.h"

#include "headrace/base/redaction.h"

namespace headrace::agent {

namespace {

constexpr size_t kMinTokenBytes = 16;

// Takes the same time however much of the token is right.
bool SameToken(std::string_view given, std::string_view wanted) {
  unsigned difference = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const char one = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned char>(one ^ wanted[i]);
  }
  return difference == 0;
}

// A page that a browser shows could name any host that leads to this machine, or ask from
// elsewhere.
bool IsFromBrowserPage(const net::ReceivedRequest& request) {
  if (!request.Header("origin").empty()) return true;
  const std::string_view site = request.Header("sec-fetch-site");
  return !site.empty() && site != "none" && site != "same-origin";
}

bool IsHostOfThisMachine(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.rfind(':'));
  }
  return host.empty() || host == "localhost" || IsLoopback(std::string(host));
}

}  // namespace

Status CheckHttpOptions(const HttpOptions& options) {
  if (!IsLoopback(options.address) && options.token.empty())
    return Error(Code::kInvalidArgument,
                 "{} can be reached from other machines: give a token, or use 127.0.0.1",
                 options.address);
  if (!options.token.empty() && options.token.size() < kMinTokenBytes)
    return Error(Code::kInvalidArgument, "a token has at least {} characters", kMinTokenBytes);
  return OkStatus();
}

std::optional<std::string> RefuseStranger(const net::ReceivedRequest& request,
                                          std::string_view token, bool local) {
  if (!token.empty()) {
    std::string_view given = request.Header("authorization");
    constexpr std::string_view kBearer = "Bearer ";
    const bool bearer = given.starts_with(kBearer);
    if (!bearer || !SameToken(given.substr(kBearer.size()), token))
      return Failure(401, "this address wants 'Authorization: Bearer TOKEN'",
                     {{"WWW-Authenticate", "Bearer"}});
  } else if (!local && !IsHostOfThisMachine(request.Header("host"))) {
    return Failure(403, "ask by an address of this machine, as 127.0.0.1");
  }
  if (IsFromBrowserPage(request)) return Failure(403, "pages of other places may not ask");
  return std::nullopt;
}

std::string Json200(const Json& json) {
  return net::WriteAnswer(200, "application/json", json.Dump() + "\n");
}

std::string Failure(int status, std::string_view message,
                    const std::vector<net::HttpHeader>& more) {
  Json error = Json::MakeObject().Set("error", RedactSecrets(message));
  return net::WriteAnswer(status, "application/json", error.Dump() + "\n", more);
}

}  // namespace headrace::agent
