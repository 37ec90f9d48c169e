// Random numbers as a pure function of keys. Everything random in Headrace (sample order, crops,
// flips, substitutes) comes from here, so that a value depends on what it is for and never on
// threads, timing, library or machine. The functions are part of the stored contract
// (docs/formats/order.md): they never change. Pure, safe from any thread.
#pragma once

#include <cstdint>

namespace headrace {

// The finalizer of SplitMix64: a bijection of 64-bit words whose output bits look independent.
constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Folds words into one key, one after the other: HashKey(a, b) = Combine(Combine(0, a), b) with
// Combine(h, w) = Mix64(h + 0x9e3779b97f4a7c15 + Mix64(w + 0xd1b54a32d192ed03)).
constexpr uint64_t CombineKey(uint64_t h, uint64_t word) {
  return Mix64(h + 0x9e3779b97f4a7c15ull + Mix64(word + 0xd1b54a32d192ed03ull));
}
template <typename... Words>
constexpr uint64_t HashKey(Words... words) {
  uint64_t h = 0;
  ((h = CombineKey(h, static_cast<uint64_t>(words))), ...);
  return h;
}

// A short stream of draws under one key: draw n is Mix64(key + (n + 1) * 0x9e3779b97f4a7c15),
// which is SplitMix64 seeded with `key`.
class KeyedRandom {
 public:
  explicit constexpr KeyedRandom(uint64_t key) : state_(key) {}
  constexpr uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15ull;
    return Mix64(state_);
  }
  // Uniform in [0, 1): the top 53 bits, so every value is exact.
  constexpr double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Uniform in [0, bound), bound > 0: the high word of the 128-bit product of a draw and the bound.
  constexpr uint64_t NextBelow(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace headrace
