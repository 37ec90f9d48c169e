#!/usr/bin/env python3
"""Writes the records of seek points of the JPEG files beside it, and seeds for their fuzz target.

Written from docs/formats/seek-points.md and the JPEG standard (ITU-T T.81) alone, with a Huffman
decoder of its own: the program must write the same bytes. NAME.jpg gives NAME.seek8 and NAME.seek4
with a point every 8 or 4 MCUs.

    tests/compat/codec/make_seek_golden.py
"""

from __future__ import annotations

import pathlib
import struct

HERE = pathlib.Path(__file__).parent
SEEDS = HERE.parents[2] / "fuzz" / "corpus" / "codec_seek"
# Of these there are truncated seeds, too.
CUT = {"gray", "progressive", "restart", "sampling_420", "sampling_422", "sampling_444", "ycck"}
PROGRESSIVE, CODING, COLOR_SPACE, SAMPLING, NON_INTERLEAVED = 4, 5, 6, 7, 8


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Refused(Exception):
    """The file has no seek points; args[0] is the reason."""


class Header:
    """What the segments up to the scan say."""

    def __init__(self, file: bytes) -> None:
        self.tables: dict[int, dict[tuple[int, int], int]] = {}
        self.restart = 0
        at = 2
        while True:
            marker, length = struct.unpack_from(">HH", file, at)
            body = file[at + 4 : at + 2 + length]
            at += 2 + length
            if marker == 0xFFC2:
                raise Refused(PROGRESSIVE)
            if marker in (0xFFC0, 0xFFC1):
                bits, self.height, self.width, count = struct.unpack_from(">BHHB", body)
                if bits != 8:
                    raise Refused(CODING)
                self.components = [tuple(body[6 + 3 * i : 9 + 3 * i]) for i in range(count)]
            elif marker == 0xFFC4:
                self.read_tables(body)
            elif marker == 0xFFDD:
                (self.restart,) = struct.unpack(">H", body)
            elif marker == 0xFFC9:
                raise Refused(CODING)
            elif marker == 0xFFDA:
                self.scan_tables = [body[2 + 2 * i] for i in range(body[0])]
                self.scan = at
                break
        self.check()

    def check(self) -> None:
        """Refuse what the format page refuses."""
        factors = [(c[1] >> 4, c[1] & 15) for c in self.components]
        if len(factors) == 1:
            return
        if len(factors) != 3:
            raise Refused(COLOR_SPACE)
        if len(self.scan_tables) != 3:
            raise Refused(NON_INTERLEAVED)
        if any(
            max(h for h, _ in factors) % h or max(v for _, v in factors) % v for h, v in factors
        ):
            raise Refused(SAMPLING)

    def read_tables(self, body: bytes) -> None:
        """Read a DHT segment: (length, code) to symbol."""
        while body:
            counts, code, at = body[1:17], 0, 17
            table = {}
            for length, count in enumerate(counts, 1):
                for symbol in body[at : at + count]:
                    table[length, code] = symbol
                    code += 1
                at += count
                code <<= 1
            self.tables[body[0]] = table
            body = body[at:]


class Bits:
    """The bits of a scan, one after the other; `position` counts those of the stored bytes."""

    def __init__(self, file: bytes, start: int) -> None:
        self.file, self.start = file, start
        self.byte, self.bit = start, 0

    @property
    def position(self) -> int:
        return (self.byte - self.start) * 8 + self.bit

    def next(self) -> int:
        value = self.file[self.byte] >> (7 - self.bit) & 1
        self.bit += 1
        if self.bit == 8:
            self.byte += 2 if self.file[self.byte : self.byte + 2] == b"\xff\x00" else 1
            self.bit = 0
        return value

    def number(self, size: int) -> int:
        value = 0
        for _ in range(size):
            value = value << 1 | self.next()
        return value

    def symbol(self, table: dict[tuple[int, int], int]) -> int:
        code = 0
        for length in range(1, 17):
            code = code << 1 | self.next()
            if (length, code) in table:
                return table[length, code]
        raise ValueError("no such code")

    def skip_restart(self) -> None:
        if self.bit:
            self.byte, self.bit = self.byte + 1, 0
        assert self.file[self.byte] == 0xFF and self.file[self.byte + 1] & 0xF8 == 0xD0
        self.byte += 2


def points_of(header: Header, file: bytes, spacing: int) -> tuple[list[tuple[int, list[int]]], int]:
    """Walk the scan: (bit, predictors) of each point, and the number of points in a row."""
    grey = len(header.components) == 1
    factors = [(1, 1)] if grey else [(c[1] >> 4, c[1] & 15) for c in header.components]
    columns = -(-header.width // (8 * max(h for h, _ in factors)))
    rows = -(-header.height // (8 * max(v for _, v in factors)))
    bits, dc, points = Bits(file, header.scan), [0] * len(factors), []
    for mcu in range(columns * rows):
        if header.restart and mcu and mcu % header.restart == 0:
            bits.skip_restart()
            dc = [0] * len(factors)
        if mcu % columns % spacing == 0:
            points.append((bits.position, list(dc)))
        for c, (h, v) in enumerate(factors):
            tables = header.scan_tables[c]
            for _ in range(h * v):
                size = bits.symbol(header.tables[tables >> 4])
                value = bits.number(size)
                dc[c] += value if size == 0 or value >> (size - 1) else value - (1 << size) + 1
                k = 1
                while k < 64:
                    symbol = bits.symbol(header.tables[0x10 | (tables & 15)])
                    bits.number(symbol & 15)
                    if symbol == 0:
                        break
                    k += (symbol >> 4) + 1
    return points, -(-columns // spacing)


def record_of(file: bytes, spacing: int) -> bytes:
    """The record of a JPEG, as docs/formats/seek-points.md says."""
    try:
        header = Header(file)
    except Refused as refused:
        return bytes([1, refused.args[0]])
    limit = len(file) // 100 * 16 // spacing
    while True:
        record = encode(header, file, spacing)
        if len(record) <= limit or spacing == 32:
            return record
        spacing *= 2


def encode(header: Header, file: bytes, spacing: int) -> bytes:
    """The record with a point every `spacing` MCUs."""
    points, per_row = points_of(header, file, spacing)
    starts = [points[i // per_row * per_row][0] for i in range(len(points))]
    deltas = [point[0] - start for point, start in zip(points, starts, strict=True)]
    count = len(header.components)
    least = [min(p[1][c] for p in points) for c in range(count)]
    widths = [max(p[1][c] - least[c] for p in points).bit_length() for c in range(count)]
    position = max(deltas).bit_length()
    sampling = 0
    if count == 3:
        sampling = max(c[1] >> 4 for c in header.components) - 1
        sampling |= (max(c[1] & 15 for c in header.components) - 1) << 2 | 16
    pad = [0] * (3 - count)
    head = struct.pack(
        "<BBBBHHII",
        *(1, 0, spacing.bit_length() - 1, sampling, header.width, header.height),
        *(crc32c(file), header.scan),
    )
    head += struct.pack("<4B3hH", position, *widths, *pad, *least, *pad, 0)
    body = b"".join(struct.pack("<I", s) for s in starts[::per_row])
    value = at = 0
    for i, (_, dc) in enumerate(points):
        if i % per_row:
            value |= deltas[i] << at
            at += position
        for c in range(count):
            value |= (dc[c] - least[c]) << at
            at += widths[c]
    body += value.to_bytes((at + 7) // 8, "little")
    return head + struct.pack("<I", crc32c(head + body)) + body


def main() -> None:
    """Write all records and seeds."""
    SEEDS.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("*.jpg")):
        file = path.read_bytes()
        for spacing in (8, 4):
            path.with_suffix(f".seek{spacing}").write_bytes(record_of(file, spacing))
        if len(file) < 20_000:
            # No changes to the record, then one.
            (SEEDS / path.name).write_bytes(b"\x00" + file)
            (SEEDS / f"changed_{path.name}").write_bytes(b"\x01\x20\x00\x01" + file)
        if path.stem in CUT:
            for part, name in ((3, "third"), (2, "half")):
                seed = b"\x00" + file[: len(file) // part]
                (SEEDS / f"cut_to_a_{name}_{path.name}").write_bytes(seed)


if __name__ == "__main__":
    main()
