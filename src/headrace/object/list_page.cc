#include "headrace/object/list_page.h"

#include <algorithm>
#include <utility>

namespace headrace::object {

Result<ListPage> FillListPage(const ListRequest& request, const NextObject& next) {
  if (!request.delimiter.empty() && request.delimiter != "/")
    return Error(Code::kInvalidArgument, "the delimiter of a listing is '/' or none, found '{}'",
                 request.delimiter);
  if (request.max == 0)
    return Status(Code::kInvalidArgument, "a page of a listing has at least 1 key, asked for 0");
  ListPage page;
  std::string from = std::max(request.prefix, request.token);
  if (!request.after.empty()) from = std::max(from, request.after + '\0');
  while (true) {
    HR_ASSIGN_OR_RETURN(std::optional<ObjectInfo> found, next(from));
    if (!found || !found->key.starts_with(request.prefix)) return page;
    if (page.objects.size() + page.prefixes.size() == request.max) {
      page.next = std::move(from);
      return page;
    }
    size_t end =
        request.delimiter.empty() ? std::string::npos : found->key.find('/', request.prefix.size());
    if (end == std::string::npos) {
      from = found->key + '\0';  // the next key there can be
      page.objects.push_back(*std::move(found));
    } else {
      from = found->key.substr(0, end) + static_cast<char>('/' + 1);  // behind all that share it
      page.prefixes.push_back(found->key.substr(0, end + 1));
    }
  }
}

}  // namespace headrace::object
