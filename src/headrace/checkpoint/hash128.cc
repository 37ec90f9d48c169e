#include "headrace/checkpoint/hash128.h"

// The library's code itself: nothing is left to be linked.
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <array>

namespace headrace::checkpoint {
namespace {

constexpr size_t kHexDigits = 32;

Hash128 FromLibrary(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

std::optional<uint64_t> HexNumber(std::string_view digits) {
  uint64_t number = 0;
  for (char c : digits) {
    if (c >= '0' && c <= '9') {
      number = number << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      number = number << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return number;
}

}  // namespace

std::string Hash128::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Hash128> Hash128::FromHex(std::string_view text) {
  if (text.size() != kHexDigits) return std::nullopt;
  const std::optional<uint64_t> high = HexNumber(text.substr(0, kHexDigits / 2));
  const std::optional<uint64_t> low = HexNumber(text.substr(kHexDigits / 2));
  if (!high || !low) return std::nullopt;
  return Hash128{*high, *low};
}

Hash128 HashOf(Bytes data) { return FromLibrary(XXH3_128bits(data.data(), data.size())); }

struct alignas(64) HashStream::State {
  XXH3_state_t library;
};

HashStream::HashStream() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->library);
  Reset();
}

HashStream::~HashStream() = default;

void HashStream::Update(Bytes data) {
  XXH3_128bits_update(&state_->library, data.data(), data.size());
}

Hash128 HashStream::Get() const { return FromLibrary(XXH3_128bits_digest(&state_->library)); }

void HashStream::Reset() { XXH3_128bits_reset(&state_->library); }

Hash128 NameOfDataFile(Bytes header, std::span<const Hash128> entries) {
  HashStream stream;
  stream.Update(header);
  for (const Hash128& entry : entries) {
    std::array<std::byte, 16> bytes;
    StoreLittle(bytes.data(), entry.low);
    StoreLittle(bytes.data() + 8, entry.high);
    stream.Update(bytes);
  }
  return stream.Get();
}

}  // namespace headrace::checkpoint
