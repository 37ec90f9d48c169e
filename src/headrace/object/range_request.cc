#include "headrace/object/range_request.h"

#include <charconv>
#include <limits>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/s3/answers.h"
#include "headrace/object/timestamp.h"

namespace headrace::object {

namespace {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status OutOfRange(uint64_t offset, uint64_t num_bytes, std::optional<uint64_t> size) {
  if (!size)
    return Error(Code::kOutOfRange, "bytes {} to {} are not wholly inside the object", offset,
                 offset + num_bytes - 1);
  return Error(Code::kOutOfRange, "bytes {} to {} are not wholly inside the object of {} bytes",
               offset, offset + num_bytes - 1, *size);
}

Result<uint64_t> CheckPart(const net::HttpResponse& response, uint64_t offset, uint64_t num_bytes) {
  auto range = ParseContentRange(response.Header("content-range"));
  if (!range || !range->satisfied)
    return Error(Code::kDataLoss, "the server sent a part of the object and not which one");
  if (range->first != offset)
    return Error(Code::kDataLoss, "bytes from {} were asked for, the server sent those from {}",
                 offset, range->first);
  if (range->size_bytes && *range->size_bytes - range->first < num_bytes)
    return OutOfRange(offset, num_bytes, range->size_bytes);
  uint64_t promised = range->last - range->first + 1;
  if (promised < num_bytes && !range->size_bytes)
    return OutOfRange(offset, num_bytes, std::nullopt);
  if (promised != num_bytes || response.body_bytes != num_bytes)
    return Error(Code::kDataLoss, "{} bytes from {} were asked for, {} promised and {} sent",
                 num_bytes, offset, promised, response.body_bytes);
  return range->size_bytes.value_or(0);
}

}  // namespace

std::string RangeHeader(uint64_t offset, uint64_t num_bytes) {
  return "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + num_bytes - 1);
}

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  ContentRange range;
  std::string_view span = text.substr(0, slash), size = text.substr(slash + 1);
  if (size != "*") {
    range.size_bytes = ParseNumber(size);
    if (!range.size_bytes) return std::nullopt;
  }
  if (span == "*") {
    range.satisfied = false;
    return range;
  }
  size_t dash = span.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  auto first = ParseNumber(span.substr(0, dash)), last = ParseNumber(span.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  if (range.size_bytes && *last >= *range.size_bytes) return std::nullopt;
  range.first = *first;
  range.last = *last;
  return range;
}

Result<uint64_t> CheckRangeAnswer(const net::HttpResponse& response, uint64_t offset,
                                  uint64_t num_bytes) {
  if (response.status == 206) return CheckPart(response, offset, num_bytes);
  if (response.status == 416) {
    auto range = ParseContentRange(response.Header("content-range"));
    return OutOfRange(offset, num_bytes, range ? range->size_bytes : std::nullopt);
  }
  if (offset == 0 && response.body_bytes == num_bytes) return num_bytes;  // it is the whole
  if (offset == 0 && response.body_bytes < num_bytes)
    return OutOfRange(offset, num_bytes, response.body_bytes);
  return RangesNotAnswered();
}

Status RangesNotAnswered() {
  return Error(Code::kUnimplemented,
               "the server, or a proxy before it, sent the whole object for a part of it: it does "
               "not answer range requests, without which data cannot be read in place; copy it to "
               "a store that does");
}

Status CheckMatch(const ObjectInfo& info, const std::string& if_match) {
  if (if_match.empty() || info.etag == if_match) return OkStatus();
  return Error(Code::kFailedPrecondition,
               "the object was replaced: its etag is '{}', that of '{}' was asked for",
               EscapeText(info.etag), EscapeText(if_match));
}

Status CheckRange(uint64_t offset, uint64_t num_bytes) {
  if (num_bytes <= std::numeric_limits<uint64_t>::max() - offset) return OkStatus();
  return Error(Code::kInvalidArgument, "a range of {} bytes from {}", num_bytes, offset);
}

ObjectInfo DescribeAnswer(const net::HttpResponse& response, std::string key) {
  ObjectInfo info;
  info.key = std::move(key);
  info.etag = StripEtag(response.Header("etag"));
  info.mtime_ns = ParseHttpDate(response.Header("last-modified")).value_or(0);
  return info;
}

Result<ObjectInfo> InfoFromAnswer(const net::HttpResponse& response, std::string key) {
  ObjectInfo info = DescribeAnswer(response, std::move(key));
  std::optional<uint64_t> size = ParseNumber(response.Header("content-length"));
  if (response.status == 206) {
    auto range = ParseContentRange(response.Header("content-range"));
    size = range ? range->size_bytes : std::nullopt;
  }
  if (!size)
    return Error(Code::kDataLoss, "the server does not tell the object's size (status {})",
                 response.status);
  info.size_bytes = *size;
  return info;
}

}  // namespace headrace::object
