// Hashes of whole files by the names that Python's hashlib and xxhash give them. Used to check what
// other writers state; what Headrace itself stores is CRC32C and SHA-256. One owner at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace::dataset {

class ContentHash {
 public:
  // md5, sha1, sha224 to sha512, sha3_224 to sha3_512, blake2b, blake2s, xxh32, xxh64, xxh3_64,
  // xxh128 and xxh3_128. kUnimplemented names any other.
  static Result<std::unique_ptr<ContentHash>> Create(std::string_view algorithm);
  virtual ~ContentHash() = default;
  virtual void Update(Bytes data) = 0;
  // Lower-case hex digits. Call once, last.
  virtual std::string Finish() = 0;
};

}  // namespace headrace::dataset
