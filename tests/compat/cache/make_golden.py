#!/usr/bin/env python3
"""Makes the golden files of the node cache from docs/formats/cache.md and side-files.md alone: a block
file, the name of an object version, and a side file. The program must read them and agree on the name.

Run it again with:  python3 make_golden.py   Output is the same each time.
"""

import hashlib
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
PAGE = 65536


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def block_file(high: int, low: int, number: int, data: bytes) -> bytes:
    pages = [data[i : i + PAGE] for i in range(0, len(data), PAGE)]
    used = 64 + 4 * len(pages) + 4
    size = (used + 4095) // 4096 * 4096
    header = b"HRBLOCK\n" + struct.pack(
        "<IIQQQIIIIQ", 1, size, high, low, number, len(data), PAGE, len(pages), 0, 0
    )
    header += b"".join(struct.pack("<I", crc32c(page)) for page in pages)
    header += struct.pack("<I", crc32c(header))
    return header.ljust(size, b"\0") + data


def identity(store: bytes, key: bytes, etag: bytes, size: int, block: int) -> str:
    sha = hashlib.sha256()
    for text in (b"headrace block 1", store, key, etag):
        sha.update(struct.pack("<Q", len(text)) + text)
    sha.update(struct.pack("<QQ", size, block))
    return sha.hexdigest()[:32]


MASK = (1 << 64) - 1


def mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def hash_key(*words: int) -> int:
    h = 0
    for word in words:
        h = mix(h + 0x9E3779B97F4A7C15 + mix(word + 0xD1B54A32D192ED03 & MASK) & MASK)
    return h


def side_name(*texts: bytes) -> str:
    sha = hashlib.sha256()
    for text in (b"headrace side file 1", *texts):
        sha.update(struct.pack("<Q", len(text)) + text)
    return sha.hexdigest()[:32]


def side_file(name: str, slots: int, records: dict[int, bytes]) -> tuple[bytes, bytes]:
    owner = hash_key(int(name[:16], 16), int(name[16:], 16), slots) | 1 << 63
    content, places = b"", [0] * slots
    for slot, record in records.items():
        entry = struct.pack("<IQQ", len(record), owner, slot) + record
        entry = struct.pack("<I", crc32c(entry)) + entry
        entry += bytes(-len(entry) % 8)
        places[slot] = len(content) // 8 << 24 | len(entry) // 8
        content += entry
    counted = -(-len(content) // 262144) * 262144
    head = struct.pack("<8Q", owner, len(content), counted, 0, 0, 0, 0, 0)
    return head + struct.pack(f"<{slots}Q", *places), content


def main() -> None:
    side = side_name(b"seek points 1 every 8", b"0123abcd", b"jpg")
    table, records = side_file(side, 5, {3: b"three", 0: b"", 4: bytes(range(256)) * 3})
    (HERE / f"{side}.table").write_bytes(table)
    (HERE / f"{side}.records").write_bytes(records)
    high, low, number = 0x8D7A0D2B0E3C1F5A, 0x6B7C8D9E0F102132, 5
    data = bytes((i * 31 + i // 251) & 0xFF for i in range(0x12345))
    name = f"{high:016x}{low:016x}-{number:x}-{len(data):x}.blk"
    (HERE / name).write_bytes(block_file(high, low, number, data))
    (HERE / "identity.txt").write_text(
        identity(b"s3://bucket", b"train/000.tar", b"abc", 123456, 4 << 20) + "\n"
    )


if __name__ == "__main__":
    main()
