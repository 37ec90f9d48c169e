// Any bytes as what the driver s3 reads besides answers: profiles, command lines, addresses, times,
// ranges, and the token of a listing.
#include "dataset_bytes_file.h"
#include "headrace/env/command.h"
#include "headrace/object/range_request.h"
#include "headrace/object/s3/profiles.h"
#include "headrace/object/s3/s3_listing.h"
#include "headrace/object/timestamp.h"
#include "headrace/object/uri.h"

using namespace headrace;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)object::ProfileFile::Parse(text);
  if (auto words = SplitCommand(text); words.ok()) {
    size_t bytes = 0;
    for (const std::string& word : *words) bytes += word.size();
    FuzzCheck(!words->empty() && bytes <= size);
  }
  if (auto uri = object::ParseUri(text); uri.ok()) {
    std::string written = uri->scheme + "://" + uri->Authority() + uri->path;
    auto again = object::ParseUri(written);
    FuzzCheck(again.ok() && again->host == uri->host && again->path == uri->path);
    FuzzCheck(uri->host.find_first_of("/?#@\\ ") == std::string::npos);
  }
  if (auto range = object::ParseContentRange(text); range && range->satisfied)
    FuzzCheck(range->first <= range->last);
  (void)object::ParseIso8601(text);
  (void)object::ParseHttpDate(text);
  FuzzCheck(object::PercentDecode(object::PercentEncode(text)) == text);
  FuzzCheck(object::PercentDecode(text).size() <= size);
  if (auto position = object::S3ListPosition::Decode(text); position.ok()) {
    auto again = object::S3ListPosition::Decode(position->Encode());
    FuzzCheck(again.ok() && again->last_key == position->last_key &&
              again->token == position->token);
  }
  return 0;
}
