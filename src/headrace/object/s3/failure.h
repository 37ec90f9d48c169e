// What a failed answer of an S3 server means, in our codes and in words that say what to do. Pure,
// safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/net/http_client.h"
#include "headrace/object/s3/answers.h"

namespace headrace::object {

// What was asked for.
enum class S3Verb : uint8_t {
  kHead,
  kGet,
  kPut,
  kDelete,
  kList,
  kStartUpload,
  kPutPart,
  kCompleteUpload,
  kAbortUpload,
  kListUploads,
};

struct S3Attempt {
  S3Verb verb = S3Verb::kGet;
  bool if_absent = false, if_match = false;  // its conditions
  std::string bucket = {}, endpoint = {}, region = {};
  std::string credentials = {};  // where they come from; empty: anonymous
  int64_t now_ns = 0;            // since 1970: what a date in the answer is held against
};

// `response` has a status that is not 2xx. Carries the wait that the server asks for, and whether
// it refused because too much is asked of it. The message does not name the key: the caller puts it
// in front.
Status S3Failure(const S3Attempt& attempt, const net::HttpResponse& response, const S3Error& error);

// True for failures that other credentials, or the same ones renewed, may cure.
bool NeedsOtherCredentials(std::string_view code);

}  // namespace headrace::object
