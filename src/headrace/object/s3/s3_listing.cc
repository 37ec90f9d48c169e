#include "headrace/object/s3/s3_listing.h"

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

// Checks that names belong below `prefix` and grow from `*last` on, which is moved along.
Status CheckName(const std::string& name, const std::string& prefix, std::string* last) {
  if (!name.starts_with(prefix))
    return Error(Code::kDataLoss, "the listing of '{}' has '{}', which is not below it",
                 EscapeText(prefix), EscapeText(name));
  if (name == *last) return Error(Code::kDataLoss, "the listing has '{}' twice", EscapeText(name));
  if (name < *last)
    return Error(Code::kDataLoss,
                 "the listing has '{}' after '{}': it is not in the order of the keys' bytes, so "
                 "what is missing could not be noticed",
                 EscapeText(name), EscapeText(*last));
  *last = name;
  return OkStatus();
}

// The page, and where the next one begins.
Result<ListPage> PageOf(const S3ListPosition& before, S3ListPosition next, S3Listing listing) {
  ListPage page;
  page.objects = std::move(listing.objects);
  page.prefixes = std::move(listing.prefixes);
  if (!listing.truncated) return page;
  if (listing.token == before.token)
    return Error(Code::kDataLoss, "the server says that the listing goes on, and it does not");
  next.token = std::move(listing.token);
  page.next = next.Encode();
  return page;
}

}  // namespace

std::string S3ListPosition::Encode() const {
  return PercentEncode(last_key) + " " + PercentEncode(last_prefix) + " " + token;
}

Result<S3ListPosition> S3ListPosition::Decode(std::string_view text) {
  size_t first = text.find(' ');
  size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos || second + 1 == text.size())
    return Error(Code::kInvalidArgument, "a token that no page of a listing has given");
  S3ListPosition position;
  position.last_key = PercentDecode(text.substr(0, first));
  position.last_prefix = PercentDecode(text.substr(first + 1, second - first - 1));
  position.token = text.substr(second + 1);
  return position;
}

Result<ListPage> CheckS3Listing(const ListRequest& request, const S3ListPosition& before,
                                S3Listing listing) {
  S3ListPosition next = before;
  if (next.last_key.empty()) next.last_key = request.after;
  for (const ObjectInfo& info : listing.objects)
    HR_RETURN_IF_ERROR(CheckName(info.key, request.prefix, &next.last_key));
  // A prefix that `after` is below may come again, so only prefixes are held against each other.
  for (const std::string& prefix : listing.prefixes)
    HR_RETURN_IF_ERROR(CheckName(prefix, request.prefix, &next.last_prefix));
  return PageOf(before, std::move(next), std::move(listing));
}

Result<ListPage> CheckUnorderedS3Listing(const ListRequest& request, const S3ListPosition& before,
                                         S3Listing listing) {
  std::sort(listing.objects.begin(), listing.objects.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  std::sort(listing.prefixes.begin(), listing.prefixes.end());
  std::string last_key, last_prefix;
  for (const ObjectInfo& info : listing.objects)
    HR_RETURN_IF_ERROR(CheckName(info.key, request.prefix, &last_key));
  for (const std::string& prefix : listing.prefixes)
    HR_RETURN_IF_ERROR(CheckName(prefix, request.prefix, &last_prefix));
  auto page = PageOf(before, before, std::move(listing));
  if (!page.ok()) return page;
  std::erase_if(page->objects, [&](const ObjectInfo& info) { return info.key <= request.after; });
  // All keys below a prefix are smaller than `after` if it is, and `after` is not among them.
  std::erase_if(page->prefixes, [&](const std::string& prefix) {
    return prefix <= request.after && !request.after.starts_with(prefix);
  });
  return page;
}

}  // namespace headrace::object
