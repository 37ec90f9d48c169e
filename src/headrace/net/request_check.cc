#include "headrace/net/request_check.h"

#include <algorithm>

#include "headrace/base/text.h"

namespace headrace::net {

namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string LowerText(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), Lower);
  return lower;
}

bool IsTokenCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

struct UrlParts {
  std::string_view scheme;     // "https"
  std::string_view authority;  // without user and password
  std::string_view path;       // from the "/" on, without query and fragment
};

UrlParts Split(std::string_view url) {
  UrlParts parts;
  size_t colon = url.find("://");
  if (colon == std::string_view::npos) return parts;
  parts.scheme = url.substr(0, colon);
  url.remove_prefix(colon + 3);
  parts.authority = url.substr(0, url.find_first_of("/?#"));
  std::string_view rest = url.substr(parts.authority.size());
  parts.path = rest.substr(0, rest.find_first_of("?#"));
  size_t at = parts.authority.rfind('@');
  if (at != std::string_view::npos) parts.authority.remove_prefix(at + 1);
  return parts;
}

Status CheckHeader(const HttpHeader& header) {
  bool good_name =
      !header.name.empty() && std::all_of(header.name.begin(), header.name.end(), IsTokenCharacter);
  if (!good_name)
    return Error(Code::kInvalidArgument, "a header's name is empty or has an odd character: '{}'",
                 EscapeText(header.name));
  if (header.value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
    return Error(Code::kInvalidArgument, "the value of header '{}' has a line end or a NUL",
                 header.name);
  return OkStatus();
}

}  // namespace

Result<std::string> OriginOf(std::string_view url) {
  if (url.empty()) return Error(Code::kInvalidArgument, "the request has no URL");
  auto bad = [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; };
  if (std::any_of(url.begin(), url.end(), bad))
    return Error(Code::kInvalidArgument, "a URL has a space or a control character: {}",
                 UrlForMessages(url));
  UrlParts parts = Split(url);
  std::string scheme = LowerText(parts.scheme);
  if ((scheme != "http" && scheme != "https") || parts.authority.empty())
    return Error(Code::kInvalidArgument, "expected http://HOST/... or https://HOST/..., found: {}",
                 UrlForMessages(url));
  return scheme + "://" + LowerText(parts.authority);
}

std::string UrlForMessages(std::string_view url) {
  UrlParts parts = Split(url);
  if (parts.scheme.empty()) return EscapeText(url.substr(0, url.find_first_of("?#")));
  return EscapeText(std::string(parts.scheme) + "://" + std::string(parts.authority) +
                    std::string(parts.path));
}

Status CheckRequest(const HttpRequest& request) {
  static constexpr std::string_view kMethods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
  if (std::find(std::begin(kMethods), std::end(kMethods), request.method) == std::end(kMethods))
    return Error(Code::kInvalidArgument,
                 "method: expected GET, HEAD, PUT, POST or DELETE, found '{}'",
                 EscapeText(request.method));
  if (!request.body.empty() && (request.method == "GET" || request.method == "HEAD"))
    return Error(Code::kInvalidArgument, "a {} request has no body", request.method);
  for (const HttpHeader& header : request.headers) HR_RETURN_IF_ERROR(CheckHeader(header));
  return OkStatus();
}

}  // namespace headrace::net
