#include "headrace/net/request_reader.h"

#include <algorithm>
#include <charconv>

#include "headrace/base/ascii.h"

namespace headrace::net {

namespace {

bool IsTokenChar(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

// Printable or a byte of other alphabets; in a header's value also space and tab.
bool IsPlain(char c) { return (c > ' ' && c != 0x7f) || static_cast<signed char>(c) < 0; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Status BadRequest(std::string_view what) {
  return Error(Code::kInvalidArgument, "not an HTTP request: {}", what);
}

Status ReadRequestLine(std::string_view line, ReceivedRequest* request) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return BadRequest("expected METHOD TARGET VERSION");
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; }) ||
      method.empty() || method.size() > 16)
    return BadRequest("a method is a few upper-case letters");
  if (!version.starts_with("HTTP/")) return BadRequest("no version");
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return Error(Code::kUnimplemented, "this server speaks HTTP/1.1 and 1.0 only");
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), IsPlain))
    return BadRequest("a target begins with '/' and has no spaces");
  const size_t mark = target.find('?');
  request->method = method;
  request->path = target.substr(0, mark);
  if (mark != std::string_view::npos) request->query = target.substr(mark + 1);
  return OkStatus();
}

Status ReadHeaderLine(std::string_view line, ReceivedRequest* request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon)))
    return BadRequest("a header is NAME: VALUE");
  HttpHeader header{Lower(line.substr(0, colon)), std::string(Trim(line.substr(colon + 1)))};
  auto is_text = [](char c) { return IsPlain(c) || c == ' ' || c == '\t'; };
  if (!std::all_of(header.value.begin(), header.value.end(), is_text))
    return BadRequest("a control character in a header");
  const bool once =
      header.name == "content-length" || header.name == "host" || header.name == "authorization";
  if (once && std::any_of(request->headers.begin(), request->headers.end(),
                          [&](const HttpHeader& other) { return other.name == header.name; }))
    return BadRequest("a header that must come once came twice");
  if (header.name == "transfer-encoding")
    return Error(Code::kUnimplemented, "this server takes bodies with a Content-Length only");
  request->headers.push_back(std::move(header));
  return OkStatus();
}

Result<size_t> BodyBytes(const ReceivedRequest& request, const RequestLimits& limits) {
  const std::string_view text = request.Header("content-length");
  if (text.empty()) return size_t{0};
  size_t bytes = 0;
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const bool digits =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || parsed.ec == std::errc::invalid_argument)
    return BadRequest("Content-Length is no number");
  if (parsed.ec != std::errc() || bytes > limits.body_bytes)
    return Error(Code::kResourceExhausted, "a body may have at most {} bytes", limits.body_bytes);
  return bytes;
}

// The head without the empty line behind it, and where the body begins. Nothing: it is not whole.
struct Head {
  std::string_view text;
  size_t body_at = 0;
};
std::optional<Head> FindHead(std::string_view bytes) {
  for (size_t at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1)) {
    const std::string_view rest = bytes.substr(at + 1);
    if (rest.starts_with('\n')) return Head{bytes.substr(0, at + 1), at + 2};
    if (rest.starts_with("\r\n")) return Head{bytes.substr(0, at + 1), at + 3};
  }
  return std::nullopt;
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

std::string_view ReceivedRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers)
    if (header.name == name) return header.value;
  return "";
}

Result<std::optional<ReceivedRequest>> ReadRequest(std::string_view bytes,
                                                   const RequestLimits& limits) {
  const std::optional<Head> head = FindHead(bytes.substr(0, limits.head_bytes));
  if (!head) {
    if (bytes.size() >= limits.head_bytes)
      return Error(Code::kResourceExhausted, "the head of a request may have at most {} bytes",
                   limits.head_bytes);
    return std::optional<ReceivedRequest>();
  }
  ReceivedRequest request;
  std::string_view text = head->text;
  HR_RETURN_IF_ERROR(ReadRequestLine(TakeLine(&text), &request));
  while (!text.empty()) {
    if (request.headers.size() >= limits.headers)
      return Error(Code::kResourceExhausted, "a request may have at most {} headers",
                   limits.headers);
    HR_RETURN_IF_ERROR(ReadHeaderLine(TakeLine(&text), &request));
  }
  HR_ASSIGN_OR_RETURN(size_t body_bytes, BodyBytes(request, limits));
  const std::string_view body = bytes.substr(head->body_at);
  if (body.size() < body_bytes) return std::optional<ReceivedRequest>();
  request.body = body.substr(0, body_bytes);
  return std::optional<ReceivedRequest>(std::move(request));
}

std::string WriteAnswer(int status, std::string_view content_type, std::string_view body,
                        const std::vector<HttpHeader>& more) {
  std::string answer = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n",
      status, ReasonOf(status), content_type, body.size());
  for (const HttpHeader& header : more)
    answer += fmt::format("{}: {}\r\n", header.name, header.value);
  answer += "\r\n";
  answer += body;
  return answer;
}

int StatusForFailure(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return 400;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kFailedPrecondition:
    case Code::kAlreadyExists:
      return 409;
    case Code::kResourceExhausted:
      return 413;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnavailable:
    case Code::kCancelled:
    case Code::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

}  // namespace headrace::net
