#include "headrace/base/text.h"

#include <fmt/core.h>

#include <array>
#include <cctype>
#include <cstdlib>
#include <limits>

#include "headrace/base/ascii.h"

namespace headrace {

namespace {

using Uint128 = unsigned __int128;
constexpr uint64_t kMaxUint = std::numeric_limits<uint64_t>::max();

// Returns how many bytes the UTF-8 sequence at the start of `bytes` has; 0 when it is not valid.
size_t Utf8SequenceLength(std::string_view bytes) {
  auto at = [&](size_t i) -> unsigned { return static_cast<unsigned char>(bytes[i]); };
  unsigned lead = at(0);
  if (lead < 0x80) return 1;
  size_t length = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : 4;
  if (lead < 0xc2 || lead > 0xf4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
  if (lead == 0xe0 && at(1) < 0xa0) return 0;
  if (lead == 0xed && at(1) >= 0xa0) return 0;
  if (lead == 0xf0 && at(1) < 0x90) return 0;
  if (lead == 0xf4 && at(1) >= 0x90) return 0;
  return length;
}

// Control characters of one byte (C0, DEL) or two (U+0080 to U+009F, which terminals obey too).
bool IsControl(std::string_view sequence) {
  auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7f;
  return lead == 0xc2 && static_cast<unsigned char>(sequence[1]) < 0xa0;
}

// A decimal number whole + fraction / scale, and the text after it.
struct Decimal {
  uint64_t whole = 0;
  uint64_t fraction = 0;
  uint64_t scale = 1;
  std::string_view unit;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::optional<Decimal> ReadDecimal(std::string_view text) {
  text = Trim(text);
  Decimal number;
  size_t i = 0;
  for (; i < text.size() && IsDigit(text[i]); ++i) {
    auto digit = static_cast<uint64_t>(text[i] - '0');
    if (number.whole > (kMaxUint - digit) / 10) return std::nullopt;
    number.whole = number.whole * 10 + digit;
  }
  if (i == 0) return std::nullopt;
  if (i < text.size() && text[i] == '.') {
    size_t first = ++i;
    for (; i < text.size() && IsDigit(text[i]); ++i) {
      if (i - first >= 18) return std::nullopt;
      number.fraction = number.fraction * 10 + static_cast<uint64_t>(text[i] - '0');
      number.scale *= 10;
    }
    if (i == first) return std::nullopt;
  }
  number.unit = Trim(text.substr(i));
  return number;
}

// Returns the number times `unit`, rounded down; nothing beyond `limit`.
std::optional<uint64_t> Scale(const Decimal& number, uint64_t unit, uint64_t limit) {
  Uint128 value = Uint128{number.whole} * unit + Uint128{number.fraction} * unit / number.scale;
  if (value > limit) return std::nullopt;
  return static_cast<uint64_t>(value);
}

struct Unit {
  std::string_view name;  // lower case
  uint64_t factor;
};
constexpr uint64_t kKilo = 1000, kMega = kKilo * kKilo, kGiga = kMega * kKilo;
constexpr Unit kSizeUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", kKilo},
    {"kb", kKilo},
    {"m", kMega},
    {"mb", kMega},
    {"g", kGiga},
    {"gb", kGiga},
    {"t", kGiga* kKilo},
    {"tb", kGiga* kKilo},
    {"p", kGiga* kMega},
    {"pb", kGiga* kMega},
    {"kib", uint64_t{1} << 10},
    {"mib", uint64_t{1} << 20},
    {"gib", uint64_t{1} << 30},
    {"tib", uint64_t{1} << 40},
    {"pib", uint64_t{1} << 50},
    {"eib", uint64_t{1} << 60},
};
constexpr Unit kDurationUnits[] = {
    {"", kGiga},       {"ns", 1},           {"us", kKilo},       {"ms", kMega},        {"s", kGiga},
    {"m", 60 * kGiga}, {"min", 60 * kGiga}, {"h", 3600 * kGiga}, {"d", 86400 * kGiga},
};

template <size_t N>
const Unit* FindUnit(const Unit (&units)[N], const std::string& name) {
  for (const Unit& unit : units)
    if (unit.name == name) return &unit;
  return nullptr;
}

// Writes three significant digits without trailing zeros: 1.25, 12.5, 412.
std::string ThreeDigits(double value) {
  std::string text = fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string EscapeText(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    size_t length = Utf8SequenceLength(bytes);
    std::string_view sequence = bytes.substr(0, length == 0 ? 1 : length);
    bytes.remove_prefix(sequence.size());
    if (sequence == "\n") {
      text += "\\n";
    } else if (sequence == "\t") {
      text += "\\t";
    } else if (sequence == "\\") {
      text += "\\\\";
    } else if (length == 0 || IsControl(sequence)) {
      for (char c : sequence) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += sequence;
    }
  }
  return text;
}

Result<std::string> UnescapeText(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    char kind = i + 1 < text.size() ? text[i + 1] : '\0';
    int high = kind == 'x' && i + 3 < text.size() ? HexValue(text[i + 2]) : -1;
    int low = high >= 0 ? HexValue(text[i + 3]) : -1;
    if (kind == 'n' || kind == 't' || kind == '\\') {
      bytes += kind == 'n' ? '\n' : kind == 't' ? '\t' : '\\';
      i += 1;
    } else if (low >= 0) {
      bytes += static_cast<char>(high * 16 + low);
      i += 3;
    } else {
      return Error(Code::kInvalidArgument,
                   "bad escape at byte {} of '{}': expected \\n, \\t, \\\\ or \\xHH; write a "
                   "backslash as \\\\",
                   i, EscapeText(text));
    }
  }
  return bytes;
}

bool IsValidUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t length = Utf8SequenceLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string HexText(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    auto value = static_cast<unsigned>(b);
    text.push_back(kDigits[value >> 4]);
    text.push_back(kDigits[value & 15]);
  }
  return text;
}

std::string Base64Text(Bytes bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    auto at = [&](size_t k) { return k < bytes.size() ? static_cast<unsigned>(bytes[k]) : 0u; };
    unsigned group = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    text.push_back(kDigits[group >> 18]);
    text.push_back(kDigits[group >> 12 & 63]);
    text.push_back(i + 1 < bytes.size() ? kDigits[group >> 6 & 63] : '=');
    text.push_back(i + 2 < bytes.size() ? kDigits[group & 63] : '=');
  }
  return text;
}

Result<uint64_t> ParseSize(std::string_view text) {
  std::optional<Decimal> number = ReadDecimal(text);
  const Unit* unit = number ? FindUnit(kSizeUnits, Lower(number->unit)) : nullptr;
  if (!unit || (unit->factor == 1 && number->fraction != 0))
    return Error(Code::kInvalidArgument,
                 "'{}' is not a size: expected a number with an optional unit, such as 65536, "
                 "64KiB, 1.5GiB or 10MB",
                 EscapeText(text));
  std::optional<uint64_t> value = Scale(*number, unit->factor, kMaxUint);
  if (!value)
    return Error(Code::kInvalidArgument, "the size '{}' is beyond 2^64 - 1; give a smaller one",
                 EscapeText(text));
  return *value;
}

std::string FormatSize(uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text + " " + kUnits[unit];
}

Result<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  std::optional<Decimal> number = ReadDecimal(text);
  const Unit* unit = number ? FindUnit(kDurationUnits, std::string(number->unit)) : nullptr;
  if (!unit)
    return Error(Code::kInvalidArgument,
                 "'{}' is not a duration: expected a number with an optional unit, such as 250ms, "
                 "10s, 10m, 2h or 1.5d",
                 EscapeText(text));
  std::optional<uint64_t> value =
      Scale(*number, unit->factor, static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!value)
    return Error(Code::kInvalidArgument,
                 "the duration '{}' is beyond 292 years; give a shorter one", EscapeText(text));
  return std::chrono::nanoseconds(static_cast<int64_t>(*value));
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  int64_t signed_ns = duration.count();
  if (signed_ns < 0) {
    // Negating the smallest value would overflow; one nanosecond less is the same text.
    int64_t positive = -(signed_ns + (signed_ns == std::numeric_limits<int64_t>::min() ? 1 : 0));
    return "-" + FormatDuration(std::chrono::nanoseconds(positive));
  }
  auto ns = static_cast<uint64_t>(signed_ns);
  if (ns < kKilo) return fmt::format("{} ns", ns);
  if (ns < 999'500) return ThreeDigits(static_cast<double>(ns) / 1e3) + " us";
  if (ns < 999'500'000) return ThreeDigits(static_cast<double>(ns) / 1e6) + " ms";
  uint64_t s = (ns + kGiga / 2) / kGiga;
  if (s < 60) return ThreeDigits(static_cast<double>(ns) / 1e9) + " s";
  if (s < 3600) return fmt::format("{}m {}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h {}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d {}h", s / 86400, s % 86400 / 3600);
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

Result<bool> ParseSwitch(std::string_view name, std::string_view value) {
  for (std::string_view yes : {"true", "True", "1", "yes", "on"})
    if (value == yes) return true;
  for (std::string_view no : {"false", "False", "0", "no", "off"})
    if (value == no) return false;
  return Error(Code::kInvalidArgument, "{}: expected true or false, found '{}'", name,
               EscapeText(value));
}

}  // namespace headrace
