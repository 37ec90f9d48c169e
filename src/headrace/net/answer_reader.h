// Puts an HTTP answer together from the lines and bytes that a connection brings. Pure logic: what
// counts as the answer's head, where its body goes, and what is too much. One owner at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/net/http_client.h"

namespace headrace::net {

class AnswerReader {
 public:
  // Bytes of all header lines of an answer; more is kResourceExhausted.
  static constexpr size_t kMaxHeaderBytes = 1 << 20;

  // `into` and `max_body_bytes` are those of HttpRequest.
  AnswerReader(MutableBytes into, uint64_t max_body_bytes)
      : into_(into), max_body_bytes_(max_body_bytes) {}

  // Takes a status line, a header line, or the empty line that ends a block of them, with or
  // without its line end. A status line that follows a 1xx block begins anew. What comes after the
  // head of the final answer (trailers) is left out. kDataLoss for a status line that cannot be
  // read.
  Status AddHeaderLine(std::string_view line);
  // Takes the next bytes of the body. kDataLoss when they do not fit into `into`,
  // kResourceExhausted when they are more than max_body_bytes.
  Status AddBody(Bytes bytes);

  // What was read so far; without times.
  const HttpResponse& response() const { return response_; }
  // True when the head of the final answer is there whole.
  bool has_head() const { return head_ended_ && response_.status >= 200; }
  HttpResponse Take() { return std::move(response_); }

 private:
  Status BeginHead(std::string_view status_line);
  void AddField(std::string_view line);
  void Continue(std::string_view line);
  Status AddToInto(Bytes bytes);
  Status AddToText(Bytes bytes);

  const MutableBytes into_;
  const uint64_t max_body_bytes_;
  HttpResponse response_;
  size_t header_bytes_ = 0;
  bool head_ended_ = false;  // the block whose status is in response_ is whole
};

}  // namespace headrace::net
