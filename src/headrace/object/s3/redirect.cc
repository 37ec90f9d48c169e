#include "headrace/object/s3/redirect.h"

#include <string>

namespace headrace::object {

namespace {

// "[BUCKET.]s3.REGION.amazonaws.com", "s3-REGION" and others of the family. Other names below that
// domain can be anybody's machine.
bool IsAwsS3(std::string_view host, std::string_view bucket) {
  const std::string in_front = std::string(bucket) + ".";
  if (host.starts_with(in_front)) host.remove_prefix(in_front.size());
  const bool is_s3 = host.starts_with("s3.") || host.starts_with("s3-");
  const bool is_aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
  return is_s3 && is_aws && host.find("website") == std::string_view::npos;
}

}  // namespace

bool MaySignFor(const Uri& other, const Uri& endpoint, bool aws, std::string_view bucket) {
  if (endpoint.scheme == "https" && other.scheme != "https") return false;
  if (other.port != endpoint.port) return false;
  if (aws) return IsAwsS3(other.host, bucket);
  return other.host == endpoint.host || other.host.ends_with("." + endpoint.host);
}

}  // namespace headrace::object
