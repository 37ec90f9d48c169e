#include "headrace/net/answer_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "headrace/base/ascii.h"
#include "headrace/base/text.h"

namespace headrace::net {

namespace {

constexpr size_t kMaxReservedBytes = 1 << 20;  // a length header alone gets no more memory

uint64_t ToldLength(const HttpResponse& response) {
  std::string_view text = response.Header("content-length");
  uint64_t bytes = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && end == text.data() + text.size() ? bytes : 0;
}

}  // namespace

Status AnswerReader::AddHeaderLine(std::string_view line) {
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes)
    return Error(Code::kResourceExhausted, "the answer has more than {} of headers",
                 FormatSize(kMaxHeaderBytes));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (has_head()) return OkStatus();
  if (response_.status == 0 || head_ended_) return BeginHead(line);
  if (line.empty())
    head_ended_ = true;
  else if (line.front() == ' ' || line.front() == '\t')
    Continue(line);
  else
    AddField(line);
  return OkStatus();
}

// "HTTP/1.1 206 Partial Content"
Status AnswerReader::BeginHead(std::string_view status_line) {
  size_t space = status_line.find(' ');
  std::string_view number =
      space == std::string_view::npos ? std::string_view() : status_line.substr(space + 1, 3);
  int status = 0;
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), status);
  if (!status_line.starts_with("HTTP/") || number.size() != 3 || error != std::errc() ||
      end != number.data() + 3 || status < 100)
    return Error(Code::kDataLoss, "expected a status line, found '{}'",
                 EscapeText(status_line.substr(0, 80)));
  response_.status = status;
  response_.headers.clear();
  head_ended_ = false;
  return OkStatus();
}

void AnswerReader::AddField(std::string_view line) {
  size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  response_.headers.push_back(
      {Lower(Trim(line.substr(0, colon))), std::string(Trim(line.substr(colon + 1)))});
}

// An old way to write long values: a line that begins with a space belongs to the one before.
void AnswerReader::Continue(std::string_view line) {
  if (response_.headers.empty()) return;
  std::string& value = response_.headers.back().value;
  std::string_view more = Trim(line);
  if (!value.empty() && !more.empty()) value += ' ';
  value += more;
}

Status AnswerReader::AddBody(Bytes bytes) {
  if (bytes.empty()) return OkStatus();
  bool success = response_.status >= 200 && response_.status < 300;
  return success && !into_.empty() ? AddToInto(bytes) : AddToText(bytes);
}

Status AnswerReader::AddToInto(Bytes bytes) {
  uint64_t at = response_.body_bytes;
  if (bytes.size() > into_.size() - at)
    return Error(Code::kDataLoss, "the body is larger than the {} bytes asked for", into_.size());
  std::memcpy(into_.data() + at, bytes.data(), bytes.size());
  response_.body_bytes += bytes.size();
  return OkStatus();
}

Status AnswerReader::AddToText(Bytes bytes) {
  if (bytes.size() > max_body_bytes_ - response_.body_bytes)
    return Error(Code::kResourceExhausted, "the body is larger than the limit of {} bytes",
                 max_body_bytes_);
  if (response_.body_bytes == 0) {
    uint64_t told = std::min(ToldLength(response_), max_body_bytes_);
    response_.body.reserve(std::min<uint64_t>(told, kMaxReservedBytes));
  }
  response_.body += AsText(bytes);
  response_.body_bytes += bytes.size();
  return OkStatus();
}

}  // namespace headrace::net
