#include "headrace/checkpoint/safetensors_text.h"

#include <fmt/format.h>

#include "headrace/base/text.h"
#include "headrace/checkpoint/box.h"

namespace headrace::checkpoint {
namespace {

constexpr int kMaxDepth = 64;

void AppendUtf8(uint32_t point, std::string* out) {
  auto tail = [point](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) {
    out->push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    out->push_back(static_cast<char>(0xc0 | point >> 6));
    out->push_back(tail(0));
  } else if (point < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | point >> 12));
    out->push_back(tail(6));
    out->push_back(tail(0));
  } else {
    out->push_back(static_cast<char>(0xf0 | point >> 18));
    out->push_back(tail(12));
    out->push_back(tail(6));
    out->push_back(tail(0));
  }
}

// A reader that goes over JSON text once. The first fault stays; later calls return false.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool Fail(std::string_view what) {
    if (fault_.ok())
      fault_ = Error(Code::kDataLoss, "{}", what)
                   .At({.file = {}, .offset = at_, .key = {}, .field = {}});
    return false;
  }
  Status TakeFault() { return std::move(fault_); }
  bool at_end() const { return at_ == text_.size(); }

  void SkipSpace() {
    while (!at_end() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  // Takes `c` when it comes next, after spaces.
  bool Take(char c) {
    SkipSpace();
    if (!fault_.ok() || at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Expect(char c) {
    return Take(c) || Fail(fmt::format("expected '{}' in the JSON of its header", c));
  }

  bool String(std::string* out) {
    out->clear();
    if (!Expect('"')) return false;
    while (!at_end() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) return Fail("a control character in a text");
      if (c != '\\') {
        out->push_back(c);
      } else if (!Escape(out)) {
        return false;
      }
    }
    return Expect('"');
  }

  // A whole number that fits into 64 bits.
  bool Number(uint64_t* out) {
    SkipSpace();
    const size_t start = at_;
    uint64_t value = 0;
    for (; fault_.ok() && !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (value > (UINT64_MAX - digit) / 10) return Fail("a number of more than 64 bits");
      value = value * 10 + digit;
    }
    const bool leading_zero = at_ - start > 1 && text_[start] == '0';
    const bool goes_on =
        !at_end() && std::string_view(".eE").find(text_[at_]) != std::string_view::npos;
    if (at_ == start || leading_zero || goes_on) return Fail("expected a whole number");
    *out = value;
    return true;
  }

  // One value of any kind.
  bool Skip(int depth = 0) {
    if (depth > kMaxDepth) return Fail("it is nested too deeply");
    SkipSpace();
    if (at_end() || !fault_.ok()) return Fail("the JSON of its header ends too early");
    std::string ignored;
    switch (text_[at_]) {
      case '"':
        return String(&ignored);
      case '{':
        return Members([this, depth](const std::string&) { return Skip(depth + 1); });
      case '[':
        return Items([this, depth] { return Skip(depth + 1); });
      default:
        return Literal();
    }
  }

  template <typename OnMember>
  bool Members(const OnMember& on_member) {
    if (!Expect('{')) return false;
    if (Take('}')) return true;
    std::string name;
    do {
      if (!String(&name) || !Expect(':') || !on_member(name)) return false;
    } while (Take(','));
    return Expect('}');
  }
  template <typename OnItem>
  bool Items(const OnItem& on_item) {
    if (!Expect('[')) return false;
    if (Take(']')) return true;
    do {
      if (!on_item()) return false;
    } while (Take(','));
    return Expect(']');
  }

 private:
  bool Escape(std::string* out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
    const char c = at_end() ? '\0' : text_[at_++];
    if (const size_t which = kLetters.find(c); c != '\0' && which != std::string_view::npos) {
      out->push_back(kMeaning[which]);
      return true;
    }
    uint32_t point = 0, low = 0;
    if (c != 'u' || !Hex4(&point)) return Fail("a wrong escape in a text");
    if (point >= 0xdc00 && point <= 0xdfff) return Fail("half a surrogate pair in a text");
    if (point >= 0xd800 && point <= 0xdbff) {
      const bool pair = text_.substr(at_, 2) == "\\u";
      at_ += pair ? 2 : 0;
      if (!pair || !Hex4(&low) || low < 0xdc00 || low > 0xdfff)
        return Fail("half a surrogate pair in a text");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUtf8(point, out);
    return true;
  }

  bool Hex4(uint32_t* out) {
    const std::string_view digits = text_.substr(at_, 4);
    if (digits.size() < 4) return false;
    uint32_t value = 0;
    for (char c : digits) {
      constexpr std::string_view kLower = "0123456789abcdef", kUpper = "0123456789ABCDEF";
      size_t digit = kLower.find(c);
      if (digit == std::string_view::npos) digit = kUpper.find(c);
      if (digit == std::string_view::npos) return false;
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    at_ += digits.size();
    *out = value;
    return true;
  }

  // true, false, null or a number; numbers are not looked at closely.
  bool Literal() {
    for (std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return true;
    }
    const size_t start = at_;
    while (!at_end() &&
           std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos)
      ++at_;
    return at_ > start || Fail("no value where one should be");
  }

  std::string_view text_;
  size_t at_ = 0;
  Status fault_;
};

bool ReadEntry(TextReader* reader, RawEntry* entry) {
  bool has_dtype = false, has_shape = false, has_offsets = false;
  auto once = [reader](bool* seen) {
    if (*seen) return reader->Fail("a member of an entry is there twice");
    return *seen = true;
  };
  const bool read = reader->Members([&](const std::string& member) {
    if (member == "dtype") return once(&has_dtype) && reader->String(&entry->dtype);
    if (member == "shape") {
      return once(&has_shape) && reader->Items([&] {
        if (entry->shape.size() >= kMaxDimensions) return reader->Fail("more than 64 dimensions");
        entry->shape.emplace_back();
        return reader->Number(&entry->shape.back());
      });
    }
    if (member != "data_offsets") return reader->Skip();
    return once(&has_offsets) && reader->Expect('[') && reader->Number(&entry->begin) &&
           reader->Expect(',') && reader->Number(&entry->end) && reader->Expect(']');
  });
  if (!read) return false;
  if (!has_dtype || !has_shape || !has_offsets)
    return reader->Fail(fmt::format("the entry '{}' lacks dtype, shape or data_offsets",
                                    EscapeText(std::string_view(entry->name).substr(0, 300))));
  return true;
}

}  // namespace

Result<RawHeader> ReadSafetensorsText(std::string_view text) {
  TextReader reader(text);
  RawHeader header;
  bool has_metadata = false;
  auto read_metadata = [&] {
    if (has_metadata) return reader.Fail("__metadata__ is there twice");
    has_metadata = true;
    return reader.Members([&](const std::string& key) {
      header.metadata.emplace_back(key, std::string());
      return reader.String(&header.metadata.back().second);
    });
  };
  if (!IsValidUtf8(text)) {
    (void)reader.Fail("its header is not UTF-8");
    return reader.TakeFault();
  }
  if (text.empty() || text.front() != '{') {
    (void)reader.Fail("its header does not begin with '{'");
    return reader.TakeFault();
  }
  const bool read = reader.Members([&](const std::string& name) {
    if (name == "__metadata__") return read_metadata();
    header.entries.emplace_back();
    header.entries.back().name = name;
    return ReadEntry(&reader, &header.entries.back());
  });
  if (!read) return reader.TakeFault();
  reader.SkipSpace();
  if (!reader.at_end()) {
    (void)reader.Fail("there is more behind the JSON of its header");
    return reader.TakeFault();
  }
  return header;
}

}  // namespace headrace::checkpoint
