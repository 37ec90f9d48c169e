#include "headrace/object/uri.h"

#include <algorithm>
#include <charconv>

#include "headrace/base/ascii.h"

namespace headrace::object {

namespace {

bool IsUnreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

Status BadUri(std::string_view what) {
  return Error(Code::kInvalidArgument, "not an address ({}): expected https://host[:port]/path",
               what);
}

// Letters, digits and what stands in names and addresses: nothing that could end a header's line
// or be taken for another part of the address.
bool IsHost(std::string_view host) {
  if (host.empty()) return false;
  std::string_view inside = host;
  bool bracketed = host.front() == '[';
  if (bracketed) {
    if (host.size() < 4 || host.back() != ']') return false;
    inside = host.substr(1, host.size() - 2);
  }
  return std::all_of(inside.begin(), inside.end(),
                     [&](char c) { return IsUnreserved(c) || (bracketed && c == ':'); });
}

Status ReadAuthority(std::string_view authority, Uri* uri) {
  if (size_t at = authority.rfind('@'); at != std::string_view::npos) {
    uri->user_info = authority.substr(0, at);
    authority.remove_prefix(at + 1);
  }
  size_t colon = authority.rfind(':');
  size_t bracket = authority.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    std::string_view port = authority.substr(colon + 1);
    auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), uri->port);
    if (error != std::errc() || end != port.data() + port.size() || uri->port == 0)
      return BadUri("its port is not a number of 1 to 65535");
    authority = authority.substr(0, colon);
  }
  uri->host = Lower(authority);
  if (!IsHost(uri->host)) return BadUri("no host, or odd characters in it");
  return OkStatus();
}

}  // namespace

std::string PercentEncode(std::string_view bytes, bool keep_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  text.reserve(bytes.size() + 16);
  for (char c : bytes) {
    if (IsUnreserved(c) || (keep_slash && c == '/')) {
      text.push_back(c);
      continue;
    }
    auto value = static_cast<unsigned char>(c);
    text.push_back('%');
    text.push_back(kDigits[value >> 4]);
    text.push_back(kDigits[value & 15]);
  }
  return text;
}

std::string PercentDecode(std::string_view text, bool plus_is_space) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    int high = c == '%' && i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    int low = high >= 0 ? HexValue(text[i + 2]) : -1;
    if (low >= 0) {
      bytes.push_back(static_cast<char>(high << 4 | low));
      i += 2;
    } else {
      bytes.push_back(c == '+' && plus_is_space ? ' ' : c);
    }
  }
  return bytes;
}

std::string Uri::Authority() const {
  uint16_t own = scheme == "https" ? 443 : 80;
  return port == 0 || port == own ? host : host + ":" + std::to_string(port);
}

Result<Uri> ParseUri(std::string_view text) {
  for (char c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return BadUri("a blank or a control character in it");
  Uri uri;
  size_t colon = text.find("://");
  if (colon == std::string_view::npos) return BadUri("no scheme");
  uri.scheme = Lower(text.substr(0, colon));
  if (uri.scheme != "http" && uri.scheme != "https") return BadUri("neither http nor https");
  text.remove_prefix(colon + 3);
  text = text.substr(0, text.find('#'));
  if (size_t mark = text.find('?'); mark != std::string_view::npos) {
    uri.query = text.substr(mark + 1);
    text = text.substr(0, mark);
  }
  size_t slash = std::min(text.find('/'), text.size());
  uri.path = text.substr(slash);
  HR_RETURN_IF_ERROR(ReadAuthority(text.substr(0, slash), &uri));
  return uri;
}

}  // namespace headrace::object
