// Look-up tables for a JPEG's Huffman codes, and a cache of them by content: nearly every file of a
// dataset has the same few. Used inside the codec only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/codec/jpeg_frame.h"

namespace headrace::codec {

// One coded symbol with the bits of its value: `bits` are used in all, `run` zeros come before the
// value.
struct HuffmanValue {
  uint32_t bits = 0;
  uint32_t run = 0;
  int32_t value = 0;
};

// Which of a table's look-ups are wanted: filling one takes longer than a small image's decode.
struct HuffmanUse {
  bool decode = true;  // `entries`
  // `skips`, of values of at most so many bits; 0 = not wanted.
  uint32_t skip_size = 0;
  friend bool operator==(const HuffmanUse&, const HuffmanUse&) = default;
};

// What the next bits mean: up to two symbols, or one with a value of which only the sign is among
// them. Read by the lanes one byte at a time.
struct HuffmanEntry {
  static constexpr uint8_t kUnresolved = 192;

  uint8_t shift;     // 64 less the bits used in all
  uint8_t raw_bits;  // how many of the last bits used must still be added to the first value
  uint8_t advance;   // how far the position moves: the second value, if any, is right before it
  uint8_t used;      // bits in all
  int16_t value;     // the first value
  uint8_t run;       // its place after the position in the block; or kUnresolved: DecodeOne
  int8_t second;     // the second value
};
static_assert(sizeof(HuffmanEntry) == 8);

// The decoding form of one table. Immutable after Build.
class HuffmanTable {
 public:
  static constexpr uint32_t kLookupBits = 11;
  static constexpr size_t kLookupSize = size_t{1} << kLookupBits;
  // Advance that stands for the end of a block: past 63 from wherever it is added.
  static constexpr uint32_t kEndOfBlock = 80;

  // For decoding, by the next kLookupBits bits. It is the first member: a pointer to it is a
  // pointer to the table.
  alignas(64) std::array<HuffmanEntry, kLookupSize> entries;

  // For counting bits without values (AC tables): as many symbols as have their
  // code among the next bits and values of at most skip_size bits. 0-7 bits used, 8-15 advance, 16
  // ends with the end of a block; 0 = DecodeOne.
  std::array<uint32_t, kLookupSize> skips;
  static constexpr uint32_t kSkipEnds = 1u << 16;

  // Stands behind the last table of a list: no bits mean anything in it.
  static const HuffmanTable& End();
  // False when the codes do not fit, or a symbol is not allowed.
  bool Build(const HuffmanSpec& spec, bool dc, HuffmanUse use);
  // The symbol at the top of `window` (at least 31 bits valid). An end of block has
  // run = kEndOfBlock. bits = 0: no such code.
  HuffmanValue DecodeOne(uint64_t window) const;
  bool Is(const HuffmanSpec& spec, bool dc, HuffmanUse use) const;

 private:
  struct Symbol {
    uint32_t length = 0, run = 0, size = 0;  // size: bits of the value
  };
  bool Compute(const HuffmanSpec& spec, bool dc, HuffmanUse use);
  Symbol SymbolOf(uint32_t length, uint8_t code) const;
  // The symbol whose code starts at the top of `window` of kLookupBits bits; length 0 = longer.
  Symbol Look(uint32_t window) const;
  HuffmanEntry EntryAt(uint32_t window) const;
  uint32_t SkipAt(uint32_t window) const;

  bool dc_ = false;
  HuffmanUse use_;
  uint32_t num_symbols_ = 0;
  std::array<uint8_t, 16> counts_{};
  std::array<uint8_t, 256> symbols_{};
  std::array<uint16_t, kLookupSize> short_codes_{};  // length << 8 | symbol; 0 = longer
  std::array<int32_t, 17> max_code_{}, first_place_{};
};

// Keeps the tables seen last. For one thread at a time.
class HuffmanCache {
 public:
  // The table of `spec`, valid until kCapacity others were asked for; null when it cannot be built
  // or memory is short.
  const HuffmanTable* Get(const HuffmanSpec& spec, bool dc, HuffmanUse use = {});
  static constexpr size_t kCapacity = 16;  // more than one image can use
  uint64_t memory_bytes() const { return entries_.size() * sizeof(HuffmanTable); }

 private:
  struct Entry {
    std::unique_ptr<HuffmanTable> table;
    uint64_t used = 0;
  };
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace headrace::codec
