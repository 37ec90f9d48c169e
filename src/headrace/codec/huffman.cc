#include "headrace/codec/huffman.h"

#include <algorithm>
#include <new>

namespace headrace::codec {
namespace {

// The value whose `size` bits are `bits`: the upper half of the range is positive.
int32_t Extend(uint32_t bits, uint32_t size) {
  if (size == 0) return 0;
  int32_t value = static_cast<int32_t>(bits);
  return bits >> (size - 1) ? value : value - (1 << size) + 1;
}

uint32_t TopBits(uint64_t window, uint32_t count) {
  return count ? static_cast<uint32_t>(window >> (64 - count)) : 0;
}

constexpr uint32_t kMaxDcSize = 11;
constexpr uint32_t kMaxSecondSize = 7;  // of a value that fits a HuffmanEntry

constexpr HuffmanEntry kNoEntry{0, 0, 0, 0, 0, HuffmanEntry::kUnresolved, 0};

uint8_t Byte(uint32_t value) { return static_cast<uint8_t>(value); }
uint8_t Shift(uint32_t used) { return Byte(64 - used); }

}  // namespace

bool HuffmanTable::Is(const HuffmanSpec& spec, bool dc, HuffmanUse use) const {
  return dc == dc_ && use == use_ && spec.num_symbols == num_symbols_ &&
         std::equal(counts_.begin(), counts_.end(), spec.counts) &&
         std::equal(spec.symbols, spec.symbols + num_symbols_, symbols_.begin());
}

HuffmanTable::Symbol HuffmanTable::SymbolOf(uint32_t length, uint8_t code) const {
  if (dc_) return {length, 0, code};
  uint32_t run = code >> 4, size = code & 15u;
  return {length, size == 0 && run < 15 ? kEndOfBlock : run, size};
}

HuffmanTable::Symbol HuffmanTable::Look(uint32_t window) const {
  uint16_t found = short_codes_[window];
  return SymbolOf(found >> 8, static_cast<uint8_t>(found));
}

bool HuffmanTable::Build(const HuffmanSpec& spec, bool dc, HuffmanUse use) {
  if (Compute(spec, dc, use)) return true;
  num_symbols_ = UINT32_MAX;  // equals no table
  return false;
}

bool HuffmanTable::Compute(const HuffmanSpec& spec, bool dc, HuffmanUse use) {
  dc_ = dc;
  use_ = use;
  num_symbols_ = spec.num_symbols;
  std::copy_n(spec.counts, 16, counts_.begin());
  symbols_.fill(0);
  std::copy_n(spec.symbols, num_symbols_, symbols_.begin());
  short_codes_.fill(0);
  int32_t code = 0, place = 0;
  for (uint32_t length = 1; length <= 16; ++length) {
    int32_t count = counts_[length - 1];
    // No code is all ones, says the standard, and libjpeg refuses one.
    if (count > 0 && code + count >= 1 << length) return false;
    first_place_[length] = place - code;
    max_code_[length] = count > 0 ? code + count - 1 : -1;
    for (int32_t i = 0; i < count; ++i, ++code, ++place) {
      uint8_t symbol = symbols_[static_cast<size_t>(place)];
      if (dc && symbol > kMaxDcSize) return false;
      if (length > kLookupBits) continue;
      std::fill_n(short_codes_.begin() + (code << (kLookupBits - length)),
                  size_t{1} << (kLookupBits - length), static_cast<uint16_t>(length << 8 | symbol));
    }
    code <<= 1;
  }
  for (uint32_t window = 0; window < kLookupSize; ++window) {
    if (use.decode) entries[window] = EntryAt(window);
    if (use.skip_size > 0) skips[window] = dc ? 0 : SkipAt(window);
  }
  return true;
}

const HuffmanTable& HuffmanTable::End() {
  static const HuffmanTable kEnd = [] {
    HuffmanTable table;
    table.entries.fill(kNoEntry);
    return table;
  }();
  return kEnd;
}

HuffmanEntry HuffmanTable::EntryAt(uint32_t window) const {
  Symbol a = Look(window);
  if (a.length == 0) return kNoEntry;
  uint32_t left = kLookupBits - a.length, used = a.length + a.size, advance = a.run + 1;
  HuffmanEntry entry{Shift(used), 0, Byte(advance), Byte(used), 0, Byte(a.run), 0};
  uint32_t rest = window & ((1u << left) - 1);
  if (a.size > left) {
    if (left == 0) return kNoEntry;
    // Base and raw bits make the value; the sign is the first bit after the code.
    entry.value = static_cast<int16_t>(rest >> (left - 1) ? 0 : 1 - (1 << a.size));
    entry.raw_bits = Byte(a.size);
    return entry;
  }
  left -= a.size;
  entry.value = static_cast<int16_t>(Extend(rest >> left, a.size));
  Symbol b;
  if (!dc_ && a.run != kEndOfBlock) b = Look(window << used & (kLookupSize - 1));
  if (b.length == 0 || b.length + b.size > left || b.size > kMaxSecondSize) return entry;
  uint32_t second = window >> (left - b.length - b.size) & ((1u << b.size) - 1);
  used += b.length + b.size;
  entry.shift = Shift(used);
  entry.advance = Byte(advance + b.run + 1);
  entry.used = Byte(used);
  entry.second = static_cast<int8_t>(Extend(second, b.size));
  return entry;
}

uint32_t HuffmanTable::SkipAt(uint32_t window) const {
  uint32_t used = 0, advance = 0;
  while (used < kLookupBits) {
    Symbol s = Look(window << used & (kLookupSize - 1));
    if (s.length == 0 || used + s.length > kLookupBits || s.size > use_.skip_size) break;
    used += s.length + s.size;
    if (s.run == kEndOfBlock) return used | advance << 8 | kSkipEnds;
    advance += s.run + 1;
    if (advance > 63) break;
  }
  return used | advance << 8;
}

HuffmanValue HuffmanTable::DecodeOne(uint64_t window) const {
  Symbol s = Look(TopBits(window, kLookupBits));
  for (uint32_t length = kLookupBits + 1; s.length == 0; ++length) {
    if (length > 16) return {};
    int32_t code = static_cast<int32_t>(TopBits(window, length));
    if (code <= max_code_[length])
      s = SymbolOf(length, symbols_[static_cast<size_t>(code + first_place_[length]) & 255]);
  }
  return {s.length + s.size, s.run, Extend(TopBits(window << s.length, s.size), s.size)};
}

const HuffmanTable* HuffmanCache::Get(const HuffmanSpec& spec, bool dc, HuffmanUse use) {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.table->Is(spec, dc, use)) {
      entry.used = ++clock_;
      return entry.table.get();
    }
    if (!oldest || entry.used < oldest->used) oldest = &entry;
  }
  if (entries_.size() < kCapacity) {
    entries_.reserve(kCapacity);
    std::unique_ptr<HuffmanTable> table(new (std::nothrow) HuffmanTable);
    if (!table) return nullptr;
    oldest = &entries_.emplace_back(Entry{std::move(table), 0});
  }
  oldest->used = 0;
  if (!oldest->table->Build(spec, dc, use)) return nullptr;
  oldest->used = ++clock_;
  return oldest->table.get();
}

}  // namespace headrace::codec
