// SHA-256, used to name dataset versions by their content. Not thread-safe: one owner at a time.
#pragma once

#include <memory>
#include <string>

#include "headrace/base/bytes.h"

namespace headrace {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(Bytes data);
  void Update(std::string_view text) { Update(AsBytes(text)); }
  // Returns the digest as 64 lower-case hex digits. Call once, last.
  std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace headrace
