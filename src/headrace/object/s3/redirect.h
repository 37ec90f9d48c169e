// Where a redirect may lead a signed request. Internal to the driver s3. Pure, safe from any
// thread.
#pragma once

#include <string_view>

#include "headrace/object/uri.h"

namespace headrace::object {

// True where what was signed for `endpoint` may be signed for `other` too, and the session's token
// sent there: the same host, one below it ("BUCKET.HOST", with the same port), and for AWS any of
// its S3 endpoints. Never from https to http.
bool MaySignFor(const Uri& other, const Uri& endpoint, bool aws, std::string_view bucket);

}  // namespace headrace::object
