#include "headrace/base/redaction.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

constexpr std::string_view kRedacted = "***";
constexpr size_t kLeastSecretBytes = 8;
constexpr size_t kMostSecrets = 64;

// Texts that were remembered. A reader may hold one for as long as it likes, so none is freed.
struct RememberedSecrets {
  std::array<std::atomic<const std::string*>, kMostSecrets> slots{};
  std::atomic<size_t> next{0};
};
RememberedSecrets& TheSecrets() {
  static auto* secrets = new RememberedSecrets;
  return *secrets;
}

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}
bool IsSpaceOrQuote(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '"' || c == '\'' || c == '<' ||
         c == '>';
}
bool IsValueEnd(char c) {
  return IsSpaceOrQuote(c) || c == '&' || c == ',' || c == ';' || c == ')' || c == '}' || c == ']';
}

// Whether what a name stands for is secret: "X-Amz-Signature", "aws_secret_access_key", "sig".
bool NamesASecret(std::string_view name) {
  static constexpr std::string_view kEnds[] = {
      "secret",   "secretkey", "accesskey", "accesskeyid", "accountkey", "apikey",
      "password", "passwd",    "token",     "signature",   "credential"};
  std::string plain = Lower(name);
  std::erase_if(plain, [](char c) { return c == '_' || c == '-'; });
  if (plain == "sig" || plain == "pwd") return true;
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return plain.ends_with(end); });
}

// A piece of a text that is to be replaced.
struct SecretPart {
  size_t begin = 0, end = 0;
};

// Behind "://" at `at`: user and password up to the '@'. Secret keys may hold a '/', which nobody
// writes as %2F.
SecretPart UserOfUrl(std::string_view text, size_t at) {
  const size_t end =
      std::min(static_cast<size_t>(std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at),
                                                text.end(), IsSpaceOrQuote) -
                                   text.begin()),
               text.size());
  const std::string_view rest = text.substr(at, end - at);
  const std::string_view place = rest.substr(0, rest.find_first_of("/?#"));
  if (const size_t mark = place.rfind('@'); mark != std::string_view::npos) return {at, at + mark};
  const size_t colon = place.find(':');
  if (place.starts_with('[') || colon == std::string_view::npos) return {};
  const std::string_view port = place.substr(colon + 1);
  if (std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
  const size_t mark = rest.find('@');
  return mark == std::string_view::npos ? SecretPart{} : SecretPart{at, at + mark};
}

// The name that ends before `at`, which may be in quotes or have spaces behind it.
std::string_view NameBefore(std::string_view text, size_t at, bool* quoted) {
  size_t end = at;
  while (end > 0 && text[end - 1] == ' ') --end;
  *quoted = end > 0 && (text[end - 1] == '"' || text[end - 1] == '\'');
  if (*quoted) --end;
  size_t begin = end;
  while (begin > 0 && IsNameChar(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

// The value behind the '=' or ':' at `at` when the name before it is that of a secret. A ':' counts
// between quotes only: elsewhere it is a sentence's.
SecretPart ValueOfName(std::string_view text, size_t at) {
  bool quoted = false;
  const std::string_view name = NameBefore(text, at, &quoted);
  if (name.empty() || !NamesASecret(name)) return {};
  size_t begin = at + 1;
  while (begin < text.size() && text[begin] == ' ') ++begin;
  const bool opens = begin < text.size() && (text[begin] == '"' || text[begin] == '\'');
  if (text[at] == ':' && !(quoted && opens)) return {};
  if (opens) {
    const size_t end = text.find(text[begin], begin + 1);
    return {begin + 1, end == std::string_view::npos ? text.size() : end};
  }
  size_t end = begin;
  while (end < text.size() && !IsValueEnd(text[end])) ++end;
  return {begin, end};
}

// What follows "Bearer " or "Basic " at `at`.
SecretPart ValueOfScheme(std::string_view text, size_t at) {
  struct Scheme {
    std::string_view name;
    size_t least;  // a shorter word is none of it
  };
  static constexpr Scheme kSchemes[] = {{"Bearer ", 8}, {"bearer ", 8}, {"Basic ", 16}};
  for (const Scheme& scheme : kSchemes) {
    if (!text.substr(at).starts_with(scheme.name)) continue;
    const size_t begin = at + scheme.name.size();
    size_t end = begin;
    while (end < text.size() && !IsValueEnd(text[end])) ++end;
    if (end - begin >= scheme.least) return {begin, end};
  }
  return {};
}

// The id of an AWS key at `at`: AKIA or ASIA and 16 more, by itself.
SecretPart AwsKeyId(std::string_view text, size_t at) {
  constexpr size_t kBytes = 20;
  const std::string_view id = text.substr(at, kBytes);
  if (id.size() != kBytes || !(id.starts_with("AKIA") || id.starts_with("ASIA"))) return {};
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
  const bool alone = (at == 0 || !IsNameChar(text[at - 1])) &&
                     (at + kBytes == text.size() || !IsNameChar(text[at + kBytes]));
  return plain && alone ? SecretPart{at, at + kBytes} : SecretPart{};
}

SecretPart SecretAt(std::string_view text, size_t at) {
  switch (text[at]) {
    case '=':
      return ValueOfName(text, at);
    case ':':
      return text.substr(at).starts_with("://") ? UserOfUrl(text, at + 3) : ValueOfName(text, at);
    case 'B':
    case 'b':
      return ValueOfScheme(text, at);
    case 'A':
      return AwsKeyId(text, at);
    default:
      return {};
  }
}

void ReplaceAll(const std::string& what, std::string* text) {
  for (size_t at = text->find(what); at != std::string::npos;
       at = text->find(what, at + kRedacted.size()))
    text->replace(at, what.size(), kRedacted);
}

}  // namespace

void RememberSecret(std::string_view secret) {
  if (secret.size() < kLeastSecretBytes) return;
  RememberedSecrets& all = TheSecrets();
  for (const auto& slot : all.slots) {
    const std::string* one = slot.load(std::memory_order_acquire);
    if (one != nullptr && *one == secret) return;
  }
  const size_t next = all.next.fetch_add(1, std::memory_order_relaxed) % kMostSecrets;
  // What was there is left in memory: see RememberedSecrets.
  all.slots[next].store(new std::string(secret), std::memory_order_release);
}

std::string RedactSecrets(std::string_view text) {
  std::string known(text);
  for (const auto& slot : TheSecrets().slots)
    if (const std::string* one = slot.load(std::memory_order_acquire)) ReplaceAll(*one, &known);
  const std::string_view rest = known;
  std::string shown;
  size_t done = 0;
  for (size_t at = 0; at < rest.size(); ++at) {
    const SecretPart secret = SecretAt(rest, at);
    if (secret.end <= secret.begin || secret.begin < done) continue;
    shown.append(rest.substr(done, secret.begin - done)).append(kRedacted);
    done = secret.end;
    at = secret.end - 1;
  }
  return shown.append(rest.substr(done));
}

}  // namespace headrace
