// What all stores say about keys. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace::object {

inline constexpr size_t kMaxKeyBytes = 1024;

// kInvalidArgument when `key` has no bytes or more than kMaxKeyBytes.
Status CheckKey(std::string_view store, std::string_view key);
// Store and key for a message: "s3://bucket/key", one printable line.
std::string ObjectName(std::string_view store, std::string_view key);
// The errors that every store tells in the same words.
Status NoSuchObject(std::string_view store, std::string_view key);
Status OutsideObject(std::string_view store, std::string_view key, uint64_t offset, uint64_t bytes,
                     uint64_t size_bytes);
Status ObjectTaken(std::string_view store, std::string_view key);     // if_absent
Status ObjectReplaced(std::string_view store, std::string_view key);  // if_match
// kUnimplemented: "s3://bucket cannot VERB: ...".
Status CannotDo(std::string_view store, std::string_view verb);

}  // namespace headrace::object
