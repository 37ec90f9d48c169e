// Requests for a part of an object over HTTP, and the check that the answer is that part and no
// other: shared by the drivers s3 and https. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/net/http_client.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// "bytes=0-9" for the first ten bytes; num_bytes > 0.
std::string RangeHeader(uint64_t offset, uint64_t num_bytes);

// A Content-Range: "bytes 0-9/100", "bytes 0-9/*", "bytes */100".
struct ContentRange {
  bool satisfied = true;         // false for "*/100"
  uint64_t first = 0, last = 0;  // both inside
  std::optional<uint64_t> size_bytes;
};
std::optional<ContentRange> ParseContentRange(std::string_view text);

// Checks an answer to a request for `num_bytes` from `offset`, with status 200, 206 or 416, whose
// body went to a buffer of num_bytes. Returns the object's size; 0 when the server does not tell.
//   kOutOfRange     the range is not wholly inside the object.
//   kUnimplemented  the server sent the whole object for a part of it.
//   kDataLoss       another part, or fewer bytes, than it promised.
Result<uint64_t> CheckRangeAnswer(const net::HttpResponse& response, uint64_t offset,
                                  uint64_t num_bytes);

// kUnimplemented: the server sends the whole for a part.
Status RangesNotAnswered();

// Fails with kInvalidArgument where offset + num_bytes is beyond 64 bits.
Status CheckRange(uint64_t offset, uint64_t num_bytes);

// kFailedPrecondition where `if_match` is not empty and another etag than the answer's: a server
// that does not know If-Match answers with whatever the object is now.
Status CheckMatch(const ObjectInfo& info, const std::string& if_match);

// Key, ETag and time of the object that an answer is about; not its size.
ObjectInfo DescribeAnswer(const net::HttpResponse& response, std::string key);
// The same with its size, of a 200 or 206 answer (to HEAD too). kDataLoss when it does not tell it.
Result<ObjectInfo> InfoFromAnswer(const net::HttpResponse& response, std::string key);

}  // namespace headrace::object
