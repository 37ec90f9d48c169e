// XXH3 with 128 bits: names contents. It finds accidents, not attacks. Pure functions, safe from
// any thread; a HashStream has one owner at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"

namespace headrace::checkpoint {

struct Hash128 {
  uint64_t high = 0, low = 0;

  auto operator<=>(const Hash128&) const = default;
  // 32 lower-case hex digits, the high half first, as xxhsum and Python's xxhash write it.
  std::string Hex() const;
  // Empty when `text` is not that.
  static std::optional<Hash128> FromHex(std::string_view text);
};

Hash128 HashOf(Bytes data);

// The same of data that comes in pieces.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;

  void Update(Bytes data);
  // Of all so far. More may be added afterwards.
  Hash128 Get() const;
  // Starts anew.
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The name of a data file: the hash of its header (the first 8 + N bytes) followed by the hash of
// each of its entries' bytes, in the order of the file, each 16 bytes, little-endian, low half
// first. So a file's name is known as soon as its boxes are hashed.
Hash128 NameOfDataFile(Bytes header, std::span<const Hash128> entries);

}  // namespace headrace::checkpoint
