// Any bytes as the lines and the body of an HTTP answer: limits hold, names are in lower case, and
// nothing is read or written outside.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "headrace/net/answer_reader.h"

namespace {

using headrace::net::AnswerReader;

// Feeds lines until a final head is whole; the rest in pieces as its body.
headrace::Status Feed(AnswerReader* reader, std::string_view text) {
  while (!text.empty() && !reader->has_head()) {
    size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    HR_RETURN_IF_ERROR(reader->AddHeaderLine(text.substr(0, end)));
    text.remove_prefix(end);
  }
  while (!text.empty()) {
    std::string_view piece = text.substr(0, 7);
    HR_RETURN_IF_ERROR(reader->AddBody(headrace::AsBytes(piece)));
    text.remove_prefix(piece.size());
  }
  return headrace::OkStatus();
}

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string into(data[0], '-');
  const uint64_t max_body_bytes = data[1];
  AnswerReader reader({reinterpret_cast<std::byte*>(into.data()), into.size()}, max_body_bytes);
  headrace::Status status = Feed(&reader, {reinterpret_cast<const char*>(data) + 2, size - 2});
  Require(status.ok() || !status.message().empty());
  const auto& response = reader.response();
  Require(response.status == 0 || (response.status >= 100 && response.status <= 999));
  Require(response.body.size() <= max_body_bytes);
  Require(response.body_bytes <= std::max<uint64_t>(into.size(), max_body_bytes));
  for (const auto& header : response.headers)
    Require(std::none_of(header.name.begin(), header.name.end(),
                         [](char c) { return c >= 'A' && c <= 'Z'; }));
  return 0;
}
