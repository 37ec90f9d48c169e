// What S3 servers answer, read from the bodies. Nothing in them is trusted: lengths, names and
// numbers are checked, and a listing that was cut is an error. Pure functions, safe from any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// The body of a failure. All empty when it is not one of S3's.
struct S3Error {
  std::string code;     // "NoSuchKey"; letters and digits only
  std::string message;  // shortened, one printable line
  std::string region;   // where the server says the bucket is
};
S3Error ParseS3Error(std::string_view body);
// True where an answer with status 200 is a failure after all.
bool IsS3Error(std::string_view body);

struct S3Listing {
  std::vector<ObjectInfo> objects;
  std::vector<std::string> prefixes;
  bool truncated = false;  // there is more
  std::string token;       // continues the listing when truncated
};
// Reads ListBucketResult (version 2). kDataLoss: cut, or not one.
Result<S3Listing> ParseS3Listing(std::string_view body);

struct S3UploadListing {
  std::vector<PendingUpload> uploads;
  bool truncated = false;
  std::string key_marker, id_marker;  // continue the listing when truncated
};
// Reads ListMultipartUploadsResult. kDataLoss as above.
Result<S3UploadListing> ParseS3UploadListing(std::string_view body);

// Reads the id out of InitiateMultipartUploadResult.
Result<std::string> ParseS3UploadId(std::string_view body);
// Reads the ETag, without quotes, out of CompleteMultipartUploadResult; it may be empty.
Result<std::string> ParseS3CompletedEtag(std::string_view body);

// An ETag without its quotes: abc of "abc", W/abc of W/"abc" (a weak one).
std::string StripEtag(std::string_view etag);

}  // namespace headrace::object
