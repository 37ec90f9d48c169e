// The pages of a listing, checked against each other: keys that repeat, go backwards or do not
// belong to it are noticed. Internal to the driver s3. Pure, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/object/object_store.h"
#include "headrace/object/s3/answers.h"

namespace headrace::object {

// What ListPage::next carries from page to page.
struct S3ListPosition {
  std::string token;                  // the server's
  std::string last_key, last_prefix;  // of the pages before; empty: none

  std::string Encode() const;
  // kInvalidArgument: not made by Encode.
  static Result<S3ListPosition> Decode(std::string_view text);
};

// Makes a page of what the server sent. kDataLoss names what is wrong: then nothing of it is used.
Result<ListPage> CheckS3Listing(const ListRequest& request, const S3ListPosition& before,
                                S3Listing listing);
// The same for servers whose order is another one. They cannot be asked for what comes after a key,
// so that is picked here; a name that repeats is only noticed within a page.
Result<ListPage> CheckUnorderedS3Listing(const ListRequest& request, const S3ListPosition& before,
                                         S3Listing listing);

}  // namespace headrace::object
