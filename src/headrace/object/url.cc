#include "headrace/object/url.h"

#include <algorithm>
#include <charconv>

#include "headrace/base/text.h"
#include "headrace/env/file.h"

namespace headrace::object {

namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsHttp(std::string_view scheme) { return scheme == "http" || scheme == "https"; }

}  // namespace

Result<Url> ParseUrl(std::string_view text) {
  if (!IsUrl(text))
    return Error(Code::kInvalidArgument, "'{}' is no URL: expected SCHEME://PLACE/PATH",
                 EscapeText(text));
  Url url;
  size_t colon = text.find("://");
  url.scheme = text.substr(0, colon);
  std::transform(url.scheme.begin(), url.scheme.end(), url.scheme.begin(), Lower);
  std::string_view rest = text.substr(colon + 3);
  if (IsHttp(url.scheme)) {
    rest = rest.substr(0, rest.find('#'));
    if (size_t mark = rest.find('?'); mark != std::string_view::npos) {
      url.query = rest.substr(mark + 1);
      rest = rest.substr(0, mark);
    }
  }
  size_t slash = std::min(rest.find('/'), rest.size());
  url.authority = rest.substr(0, slash);
  url.path = rest.substr(slash);
  if (url.authority.empty() && url.scheme != "file")
    return Error(Code::kInvalidArgument, "'{}' names no place: expected {}://PLACE/PATH",
                 EscapeText(WithoutSecrets(url)), url.scheme);
  return url;
}

Result<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    std::string_view digits = text.substr(i + 1, 2);
    unsigned value = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2)
      return Error(Code::kInvalidArgument,
                   "'{}' has a '%' without two hex digits behind it; write %25 for a '%' itself",
                   EscapeText(text));
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

std::string WithoutSecrets(const Url& url) {
  size_t at = url.authority.rfind('@');
  std::string host = at == std::string::npos ? url.authority : url.authority.substr(at + 1);
  return url.scheme + "://" + host + url.path;
}

}  // namespace headrace::object
