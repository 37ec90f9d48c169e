// Any bytes as an answer of an S3 server: ends, and what is accepted is within its bounds.
#include "dataset_bytes_file.h"
#include "headrace/object/s3/answers.h"
#include "headrace/object/s3/s3_listing.h"
#include "headrace/object/s3/xml.h"

using namespace headrace;  // NOLINT

namespace {

size_t CheckElement(const object::XmlElement& element, size_t depth) {
  FuzzCheck(depth < object::kMaxXmlDepth);
  size_t bytes = element.name.size() + element.text.size();
  for (const object::XmlElement& child : element.children) bytes += CheckElement(child, depth + 1);
  return bytes;
}

void CheckListing(std::string_view text) {
  auto listing = object::ParseS3Listing(text);
  if (!listing.ok()) return;
  FuzzCheck(!listing->truncated || !listing->token.empty());
  for (const auto& info : listing->objects) FuzzCheck(!info.key.empty());
  auto page = object::CheckS3Listing({}, {}, *listing);
  if (!page.ok()) return;
  for (size_t i = 1; i < page->objects.size(); ++i)
    FuzzCheck(page->objects[i - 1].key < page->objects[i].key);
  FuzzCheck(page->next.empty() != listing->truncated);
  if (!page->next.empty()) FuzzCheck(object::S3ListPosition::Decode(page->next).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto root = object::ParseXml(text);
  if (root.ok()) FuzzCheck(CheckElement(*root, 0) <= size);
  CheckListing(text);
  auto uploads = object::ParseS3UploadListing(text);
  if (uploads.ok())
    for (const auto& upload : uploads->uploads)
      FuzzCheck(!upload.key.empty() && !upload.id.empty());
  object::S3Error error = object::ParseS3Error(text);
  FuzzCheck(error.code.size() <= 64 && error.region.size() <= 64 && error.message.size() <= 2000);
  FuzzCheck(error.message.find('\n') == std::string::npos);
  (void)object::IsS3Error(text);
  (void)object::ParseS3UploadId(text);
  (void)object::ParseS3CompletedEtag(text);
  return 0;
}
