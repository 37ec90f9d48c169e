// Entropy-coded data of a JPEG without the zero bytes stuffed behind each FF. Used inside the codec
// only.
#pragma once

#include <cstdint>
#include <cstring>

namespace headrace::codec {

struct Destuffed {
  const uint8_t* read_end;  // the byte after the last one read: `end`, or the FF of a marker
  uint8_t* write_end;
};

// Copies [begin, end) to `out` up to the first marker, and calls on_stuffing(place in `out` after
// the FF) for each zero byte left out. A lone FF at the very end is copied. `out` has room for
// end - begin bytes.
template <typename OnStuffing>
Destuffed Destuff(const uint8_t* begin, const uint8_t* end, uint8_t* out, OnStuffing on_stuffing) {
  while (begin < end) {
    auto* mark =
        static_cast<const uint8_t*>(std::memchr(begin, 0xff, static_cast<size_t>(end - begin)));
    size_t plain = static_cast<size_t>((mark ? mark : end) - begin);
    std::memcpy(out, begin, plain);
    out += plain;
    begin += plain;
    if (!mark) break;
    if (mark + 1 < end && mark[1] != 0) break;
    *out++ = 0xff;
    begin += mark + 1 < end ? 2 : 1;
    on_stuffing(out);
  }
  return {begin, out};
}

}  // namespace headrace::codec
