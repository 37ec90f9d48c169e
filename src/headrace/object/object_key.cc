#include "headrace/object/object_key.h"

#include "headrace/base/text.h"

namespace headrace::object {

Status CheckKey(std::string_view store, std::string_view key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return OkStatus();
  return Error(Code::kInvalidArgument, "a key of {} has 1 to {} bytes, found {}", store,
               kMaxKeyBytes, key.size());
}

std::string ObjectName(std::string_view store, std::string_view key) {
  return std::string(store) + "/" + EscapeText(key);
}

Status NoSuchObject(std::string_view store, std::string_view key) {
  return Error(Code::kNotFound, "there is no object {}", ObjectName(store, key));
}

Status OutsideObject(std::string_view store, std::string_view key, uint64_t offset, uint64_t bytes,
                     uint64_t size_bytes) {
  return Error(Code::kOutOfRange, "the object {} has {} bytes, expected {} from byte {} on",
               ObjectName(store, key), size_bytes, bytes, offset);
}

Status ObjectTaken(std::string_view store, std::string_view key) {
  return Error(Code::kAlreadyExists, "there is an object {} already", ObjectName(store, key));
}

Status ObjectReplaced(std::string_view store, std::string_view key) {
  return Error(Code::kFailedPrecondition,
               "the object {} is not the one expected: it was replaced or removed meanwhile",
               ObjectName(store, key));
}

Status CannotDo(std::string_view store, std::string_view verb) {
  return Error(Code::kUnimplemented, "{} cannot {}", store, verb);
}

}  // namespace headrace::object
