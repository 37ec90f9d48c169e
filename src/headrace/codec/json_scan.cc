#include "headrace/codec/json_scan.h"

#include <algorithm>

#include "headrace/base/text.h"

namespace headrace::codec {
namespace {

constexpr int kMaxDepth = 64;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Reads four hexadecimal digits; -1 when there are none.
int HexQuad(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    char c = text[i];
    int digit = IsDigit(c)             ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// Writes the UTF-8 form of `point` to `out`, returns its length.
size_t EncodeUtf8(uint32_t point, char* out) {
  if (point < 0x80) {
    out[0] = static_cast<char>(point);
    return 1;
  }
  size_t extra = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  static constexpr uint32_t kLead[4] = {0, 0xc0, 0xe0, 0xf0};
  out[0] = static_cast<char>(kLead[extra] | (point >> (6 * extra)));
  for (size_t i = 1; i <= extra; ++i)
    out[i] = static_cast<char>(0x80 | ((point >> (6 * (extra - i))) & 0x3f));
  return extra + 1;
}

// Compares a string literal (between its quotes, syntax checked) with plain text.
bool StringEquals(std::string_view literal, std::string_view plain) {
  size_t i = 0;
  while (i < literal.size()) {
    char bytes[4];
    size_t length = 1;
    bytes[0] = literal[i++];
    if (bytes[0] == '\\') {
      char escape = literal[i++];
      static constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
      size_t known = kFrom.find(escape);
      bytes[0] = known == std::string_view::npos ? escape : kTo[known];
      if (escape == 'u') {
        uint32_t point = static_cast<uint32_t>(HexQuad(literal, i));
        i += 4;
        if (point >= 0xd800 && point < 0xdc00 && literal.substr(i, 2) == "\\u") {
          int low = HexQuad(literal, i + 2);
          if (low >= 0xdc00 && low < 0xe000) {
            point = 0x10000 + ((point - 0xd800) << 10) + static_cast<uint32_t>(low - 0xdc00);
            i += 6;
          }
        }
        length = EncodeUtf8(point, bytes);
      }
    }
    if (plain.substr(0, length) != std::string_view(bytes, length)) return false;
    plain.remove_prefix(length);
  }
  return plain.empty();
}

class Scanner {
 public:
  Scanner(std::string_view text, std::span<const std::string> pointer)
      : text_(text), pointer_(pointer) {}

  Result<JsonValue> Run() {
    Space();
    if (!Value(0, true, 0) || (Space(), at_ != text_.size() && !Fail("the end of the text")))
      return Error(Code::kDataLoss, "not valid JSON: expected {} at byte {}, found {}", expected_,
                   at_,
                   at_ < text_.size() ? '"' + EscapeText(text_.substr(at_, 8)) + '"' : "the end");
    if (!found_) return Missing();
    return match_;
  }

  // Steps over one value whose syntax is right; returns it.
  JsonValue Skip(size_t at) {
    at_ = at;
    Space();
    size_t begin = at_;
    Value(0, false, 0);
    return {KindAt(begin), text_.substr(begin, at_ - begin), begin};
  }

 private:
  bool Fail(const char* expected) {
    expected_ = expected;
    return false;
  }
  void Space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Fail("a value");
    at_ += word.size();
    return true;
  }
  JsonKind KindAt(size_t at) const {
    switch (text_[at]) {
      case '{':
        return JsonKind::kObject;
      case '[':
        return JsonKind::kArray;
      case '"':
        return JsonKind::kString;
      case 't':
        return JsonKind::kTrue;
      case 'f':
        return JsonKind::kFalse;
      case 'n':
        return JsonKind::kNull;
      default:
        return JsonKind::kNumber;
    }
  }

  // `on_path`: this value lies on the pointer's way, `level` names deep.
  bool Value(int depth, bool on_path, size_t level) {
    size_t begin = at_;
    if (depth > kMaxDepth) return Fail("at most 64 levels of nesting");
    if (!AnyValue(depth, on_path, level)) return false;
    if (on_path && level == pointer_.size()) {
      match_ = {KindAt(begin), text_.substr(begin, at_ - begin), begin};
      found_ = true;
    }
    return true;
  }
  bool AnyValue(int depth, bool on_path, size_t level) {
    switch (Peek()) {
      case '{':
        return Object(depth, on_path && level < pointer_.size(), level);
      case '[':
        return Array(depth, on_path && level < pointer_.size(), level);
      case '"':
        return String();
      case 't':
        return Word("true");
      case 'f':
        return Word("false");
      case 'n':
        return Word("null");
      default:
        return NumberText();
    }
  }
  bool Object(int depth, bool on_path, size_t level) {
    ++at_;
    Space();
    if (Take('}')) return true;
    do {
      Space();
      size_t begin = at_;
      if (Peek() != '"' || !String()) return Fail("a member name in quotes");
      bool mine =
          on_path && StringEquals(text_.substr(begin + 1, at_ - begin - 2), pointer_[level]);
      if (mine) found_ = false;  // the last of equal names counts
      Space();
      if (!Take(':')) return Fail("':'");
      Space();
      if (!Value(depth + 1, mine, level + 1)) return false;
      Space();
    } while (Take(','));
    return Take('}') || Fail("',' or '}'");
  }
  bool Array(int depth, bool on_path, size_t level) {
    ++at_;
    Space();
    if (Take(']')) return true;
    size_t index = 0;
    do {
      Space();
      bool mine = on_path && IsIndex(pointer_[level], index++);
      if (!Value(depth + 1, mine, level + 1)) return false;
      Space();
    } while (Take(','));
    return Take(']') || Fail("',' or ']'");
  }
  static bool IsIndex(std::string_view name, size_t index) {
    if (name.empty() || name.size() > 18 || (name[0] == '0' && name.size() > 1)) return false;
    size_t value = 0;
    for (char c : name) {
      if (!IsDigit(c)) return false;
      value = value * 10 + static_cast<size_t>(c - '0');
    }
    return value == index;
  }
  bool String() {
    ++at_;
    while (at_ < text_.size()) {
      unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') return ++at_, true;
      if (c < 0x20) return Fail("no bare control character in a string");
      ++at_;
      if (c != '\\') continue;
      char escape = Peek();
      if (escape == 'u' ? HexQuad(text_, at_ + 1) < 0
                        : escape == '\0' ||
                              std::string_view("\"\\/bfnrt").find(escape) == std::string_view::npos)
        return Fail("a valid escape");
      at_ += escape == 'u' ? 5 : 1;
    }
    return Fail("a closing quote");
  }
  bool Digits() {
    size_t begin = at_;
    while (IsDigit(Peek())) ++at_;
    return at_ > begin || Fail("a digit");
  }
  bool NumberText() {
    size_t begin = at_;
    Take('-');
    if (at_ == begin && !IsDigit(Peek())) return Fail("a value");
    if (!Take('0') && !Digits()) return false;
    if (Take('.') && !Digits()) return false;
    if (Peek() == 'e' || Peek() == 'E') {
      ++at_;
      if (!Take('+')) Take('-');
      return Digits();
    }
    return true;
  }

  Status Missing() const {
    std::string path;
    for (const std::string& name : pointer_) path += '/' + name;
    return Error(Code::kDataLoss, "the JSON text has no member \"{}\"", EscapeText(path));
  }

  std::string_view text_;
  std::span<const std::string> pointer_;
  size_t at_ = 0;
  bool found_ = false;
  JsonValue match_;
  const char* expected_ = "a value";
};

}  // namespace

std::string_view JsonKindName(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kFalse:
      return "false";
    case JsonKind::kTrue:
      return "true";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kObject:
      return "an object";
  }
  return "nothing";
}

Result<std::vector<std::string>> ParseJsonPointer(std::string_view pointer) {
  std::vector<std::string> names;
  if (!pointer.empty() && pointer[0] != '/')
    return Error(Code::kInvalidArgument,
                 "a JSON pointer is empty or begins with '/', like \"/meta/label\"; found \"{}\"",
                 EscapeText(pointer));
  for (size_t i = 0; i < pointer.size(); ++i) {
    char c = pointer[i];
    if (c == '/') {
      names.emplace_back();
      continue;
    }
    if (c == '~') {
      char next = i + 1 < pointer.size() ? pointer[++i] : '\0';
      if (next != '0' && next != '1')
        return Error(Code::kInvalidArgument,
                     "in a JSON pointer '~' is written ~0 and '/' ~1: \"{}\"", EscapeText(pointer));
      c = next == '0' ? '~' : '/';
    }
    names.back() += c;
  }
  return names;
}

Result<JsonValue> FindJsonValue(std::string_view text, std::span<const std::string> pointer) {
  return Scanner(text, pointer).Run();
}

JsonElements::JsonElements(const JsonValue& array) : text_(array.text), base_(array.offset) {}

bool JsonElements::Next(JsonValue* value) {
  while (at_ < text_.size() &&
         std::string_view(" \t\r\n,").find(text_[at_]) != std::string_view::npos)
    ++at_;
  if (at_ >= text_.size() || text_[at_] == ']') return false;
  *value = Scanner(text_, {}).Skip(at_);
  at_ = value->offset + value->text.size();
  value->offset += base_;
  return true;
}

}  // namespace headrace::codec
