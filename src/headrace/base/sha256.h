// SHA-256, which names dataset versions by their content, HMAC-SHA256 over it, which signs
// requests, and MD5, which old object stores check bodies with. A Sha256 is not thread-safe: one
// owner at a time. The functions are pure.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "headrace/base/bytes.h"

namespace headrace {

using Sha256Digest = std::array<std::byte, 32>;

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
  // The same as 32 bytes.
  Sha256Digest FinishBytes();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Returns the HMAC (RFC 2104) of `data` with SHA-256 under `key`, of any length.
Sha256Digest HmacSha256(Bytes key, Bytes data);
// Returns the MD5 of `data`. It guards against accidents, not against attackers. All zeros where
// the system's policy forbids MD5.
std::array<std::byte, 16> Md5(Bytes data);

}  // namespace headrace
