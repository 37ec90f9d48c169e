#!/usr/bin/env python3
"""Makes the golden files of the node cache from docs/formats/cache.md alone: a block file, and the name
of an object version. The program must read the one and agree on the other.

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


def main() -> None:
    high, low, number = 0x8D7A0D2B0E3C1F5A, 0x6B7C8D9E0F102132, 5
    data = bytes((i * 31 + i // 251) & 0xFF for i in range(0x12345))
    name = f"{high:016x}{low:016x}-{number:x}-{len(data):x}.blk"
    (HERE / name).write_bytes(block_file(high, low, number, data))
    (HERE / "identity.txt").write_text(
        identity(b"s3://bucket", b"train/000.tar", b"abc", 123456, 4 << 20) + "\n"
    )


if __name__ == "__main__":
    main()
