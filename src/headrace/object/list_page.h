// Cuts a listing into pages, for stores that can find the next key themselves. Pure, safe from any
// thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "headrace/object/object_store.h"

namespace headrace::object {

// The object with the smallest key that is not less than `at_least`; empty behind the last one.
using NextObject = std::function<Result<std::optional<ObjectInfo>>(const std::string& at_least)>;

// Answers `request` by asking for one object after the other. kInvalidArgument for a delimiter
// other than "/", or for pages of no keys; else what `next` fails with.
Result<ListPage> FillListPage(const ListRequest& request, const NextObject& next);

}  // namespace headrace::object
