#include "headrace/object/s3/xml.h"

#include <charconv>
#include <utility>

namespace headrace::object {

namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool EndsName(char c) {
  return IsBlank(c) || c == '>' || c == '/' || c == '<' || c == '=' || c == '"' || c == '\'' ||
         c == '&';
}

void AppendUtf8(uint32_t point, std::string* text) {
  auto put = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | point >> 6);
    put(0x80 | (point & 63));
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12);
    put(0x80 | (point >> 6 & 63));
    put(0x80 | (point & 63));
  } else {
    put(0xf0 | point >> 18);
    put(0x80 | (point >> 12 & 63));
    put(0x80 | (point >> 6 & 63));
    put(0x80 | (point & 63));
  }
}

class XmlParser {
 public:
  explicit XmlParser(std::string_view text) : text_(text) {}

  Result<XmlElement> Parse() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    while (!finished_) HR_RETURN_IF_ERROR(Step());
    while (at_ < text_.size())
      if (!IsBlank(text_[at_++])) return Bad("something after the end of the document");
    return std::move(root_);
  }

 private:
  Status Bad(std::string_view what) const {
    return Error(Code::kDataLoss, "the server's answer is not well-formed XML: {} at byte {} of {}",
                 what, at_, text_.size());
  }
  bool Starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  // Skips up to and with `end`.
  Status SkipPast(std::string_view end, std::string_view what) {
    size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return Bad(what);
    at_ = found + end.size();
    return OkStatus();
  }

  Status Step() {
    if (at_ == text_.size()) return Bad("it ends too early");
    if (text_[at_] != '<') return TakeText();
    if (Starts("<!--")) return SkipPast("-->", "a comment without end");
    if (Starts("<?")) return SkipPast("?>", "a declaration without end");
    if (Starts("<![CDATA[")) return TakeCdata();
    if (Starts("<!")) return Bad("a document type, which is not read");
    if (Starts("</")) return TakeEnd();
    return TakeStart();
  }

  Status TakeText() {
    if (path_.empty()) {
      if (!IsBlank(text_[at_])) return Bad("text outside of elements");
      ++at_;
      return OkStatus();
    }
    std::string& into = path_.back()->text;
    size_t end = std::min(text_.find_first_of("<&", at_), text_.size());
    into.append(text_.substr(at_, end - at_));
    at_ = end;
    return at_ < text_.size() && text_[at_] == '&' ? TakeReference(&into) : OkStatus();
  }

  Status TakeCdata() {
    if (path_.empty()) return Bad("text outside of elements");
    size_t begin = at_ + std::string_view("<![CDATA[").size();
    HR_RETURN_IF_ERROR(SkipPast("]]>", "a CDATA section without end"));
    path_.back()->text.append(text_.substr(begin, at_ - 3 - begin));
    return OkStatus();
  }

  Status TakeReference(std::string* into) {
    constexpr size_t kMaxReference = 12;
    size_t end = text_.substr(at_, kMaxReference).find(';');
    if (end == std::string_view::npos) return Bad("a reference without end");
    std::string_view name = text_.substr(at_ + 1, end - 1);
    constexpr std::pair<std::string_view, char> kEntities[] = {
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    for (auto [entity, c] : kEntities) {
      if (name != entity) continue;
      into->push_back(c);
      at_ += end + 1;
      return OkStatus();
    }
    if (!name.starts_with('#')) return Bad("an unknown entity");
    bool hex = name.starts_with("#x");
    name.remove_prefix(hex ? 2 : 1);
    uint32_t point = 0;
    auto [last, error] =
        std::from_chars(name.data(), name.data() + name.size(), point, hex ? 16 : 10);
    bool whole = error == std::errc() && last == name.data() + name.size();
    if (!whole || point == 0 || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      return Bad("a wrong character reference");
    AppendUtf8(point, into);
    at_ += end + 1;
    return OkStatus();
  }

  // A name at at_, without its prefix.
  Result<std::string_view> TakeName() {
    size_t end = at_;
    while (end < text_.size() && !EndsName(text_[end])) ++end;
    std::string_view name = text_.substr(at_, end - at_);
    if (name.empty()) return Bad("a name is missing");
    at_ = end;
    return name.substr(name.rfind(':') + 1);  // npos + 1 is 0
  }

  Status TakeStart() {
    ++at_;
    HR_ASSIGN_OR_RETURN(std::string_view name, TakeName());
    if (path_.size() == kMaxXmlDepth) return Bad("elements nested too deep");
    if (++num_elements_ > kMaxXmlElements) return Bad("too many elements");
    XmlElement* element = &root_;
    if (!path_.empty()) element = &path_.back()->children.emplace_back();
    element->name = name;
    HR_ASSIGN_OR_RETURN(bool closed, SkipAttributes());
    if (!closed)
      path_.push_back(element);
    else if (path_.empty())
      finished_ = true;
    return OkStatus();
  }

  // Skips to behind the '>'. True for "/>".
  Result<bool> SkipAttributes() {
    while (at_ < text_.size()) {
      char c = text_[at_++];
      if (c == '>') return false;
      if (c == '/') {
        if (at_ == text_.size() || text_[at_] != '>') return Bad("a '/' inside a tag");
        ++at_;
        return true;
      }
      if (c == '<') return Bad("a '<' inside a tag");
      if (c != '"' && c != '\'') continue;
      HR_RETURN_IF_ERROR(SkipPast(std::string_view(&c, 1), "a value without end"));
    }
    return Bad("a tag without end");
  }

  Status TakeEnd() {
    at_ += 2;
    HR_ASSIGN_OR_RETURN(std::string_view name, TakeName());
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
    if (at_ == text_.size() || text_[at_] != '>') return Bad("an end tag without end");
    ++at_;
    if (path_.empty() || path_.back()->name != name) return Bad("an end tag without its start");
    path_.pop_back();
    finished_ = path_.empty();
    return OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
  XmlElement root_;
  // The open elements. Only the last one gets children, so none of them moves.
  std::vector<XmlElement*> path_;
  size_t num_elements_ = 0;
  bool finished_ = false;
};

}  // namespace

const XmlElement* XmlElement::Find(std::string_view child) const {
  for (const XmlElement& one : children)
    if (one.name == child) return &one;
  return nullptr;
}

std::string_view XmlElement::TextOf(std::string_view child) const {
  const XmlElement* found = Find(child);
  return found ? std::string_view(found->text) : std::string_view();
}

Result<XmlElement> ParseXml(std::string_view text) { return XmlParser(text).Parse(); }

}  // namespace headrace::object
