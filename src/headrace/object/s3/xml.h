// The answers of S3 servers as trees of elements. Reads what such servers write: elements, text,
// character references and the five predefined entities, CDATA, comments and declarations.
// Attributes are skipped, prefixes of names dropped, and a document type (with which entities could
// be defined) is refused. Bounded in depth and in elements. Pure; a tree has one owner at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::object {

struct XmlElement {
  std::string name;
  std::string text;  // its own, without that of its children
  std::vector<XmlElement> children;

  // The first child of this name; null when there is none.
  const XmlElement* Find(std::string_view child) const;
  // Its text, or "" when there is none.
  std::string_view TextOf(std::string_view child) const;
};

inline constexpr size_t kMaxXmlDepth = 16;
inline constexpr size_t kMaxXmlElements = 100'000;

// Reads a whole document. kDataLoss names the byte offset: a document that was cut is an error.
Result<XmlElement> ParseXml(std::string_view text);

}  // namespace headrace::object
