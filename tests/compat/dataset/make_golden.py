#!/usr/bin/env python3
"""Writes index_v1.hridx, index_seek_v1.hridx, index_v2.hridx and manifest_v1.json from the pages.

It shares no code with the program: docs/formats/index.md and docs/formats/manifest.md are its
source. The C++ tests read the files, and write them again byte for byte. Files of version 1 never
change; a new version gets files of its own.
"""

import hashlib
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def zigzag(delta):
    return (delta << 1) ^ (-1 if delta < 0 else 0)


def index(names, samples, identity, seek_points=None, kind=1):
    """samples: (key, [(name, offset, length, crc32c or None) or (name, value bytes)]).

    A range that is an array has a fifth element, its form; with kind 3 a sample has a third, the
    offset, length and CRC32C of its record. seek_points: the record of each field of all samples,
    or None.
    """
    records, offsets, ordinal, unchecked, version = b"", [], 0, 0, 1 if kind < 3 else 2
    for key, fields, *record in samples:
        offsets.append(len(records))
        records += varint(len(key)) + key + varint(ordinal) + varint(len(fields))
        end = 0
        if kind == 3:
            end, length, crc = record[0]
            records += varint(end) + varint(length) + struct.pack("<I", crc)
        for field in fields:
            in_index = len(field) == 2
            is_array = len(field) == 5
            crc = crc32c(field[1]) if in_index else field[3]
            records += varint(names.index(field[0]))
            flags = (1 if crc is not None else 0) | (2 if in_index else 0) | (4 if is_array else 0)
            records += bytes([flags])
            if in_index:
                records += varint(len(field[1])) + field[1]
            else:
                records += varint(zigzag(field[1] - end)) + varint(field[2])
                end = field[1] + field[2]
            if is_array:
                records += varint(len(field[4])) + field[4]
                version = 2
            if crc is None:
                unchecked += 1
            else:
                records += struct.pack("<I", crc)
        ordinal += len(fields)
    offsets.append(len(records))
    hashes = sorted((crc32c(key), i) for i, (key, *_) in enumerate(samples))
    sections = [
        (1, struct.pack("<I", len(names)) + b"".join(struct.pack("<H", len(n)) + n for n in names)),
        (2, b"".join(struct.pack("<Q", o) for o in offsets)),
        (4, b"".join(struct.pack("<II", *h) for h in hashes)),
        (3, records),
    ]
    if seek_points is not None:
        starts = [sum(map(len, seek_points[:i])) for i in range(len(seek_points) + 1)]
        sections.append((7, index(names, samples, identity)[4092:4096]))
        sections.append((5, b"".join(struct.pack("<Q", s) for s in starts)))
        sections.append((6, b"".join(seek_points)))
    body, table = b"", b""
    for number, data in sections:
        body += b"\0" * (-len(body) % 8)
        table += struct.pack("<IIQQ", number, 1 if number <= 4 else 0, 4096 + len(body), len(data))
        body += data
    body += b"\0" * (-len(body) % 8)
    chunks = b"".join(
        struct.pack("<I", crc32c(body[i : i + 4096])) for i in range(0, len(body), 4096)
    )
    header = (
        b"HRIDX\r\n\x1a"
        + struct.pack(
            "<IIQQQQQIIQII",
            version,
            kind,
            4096 + len(body) + len(chunks),
            len(samples),
            ordinal,
            unchecked,
            *identity,
            4096 + len(body),
            crc32c(chunks),
            len(sections),
        )
        + table
    )
    header += b"\0" * (4092 - len(header))
    return header + struct.pack("<I", crc32c(header)) + body + chunks


def text(value):
    value = value if isinstance(value, bytes) else str(value).encode()
    return b"%d:%s," % (len(value), value)


def manifest_version(m):
    out = text("headrace-manifest-1") + text(m["kind"])
    for member in ("fields", "classes"):
        out += text(len(m[member])) + b"".join(text(t) for t in m[member])
    out += text(len(m["shards"]))
    for name, _, samples, size, crc, index_crc in m["shards"]:
        out += text(name) + text(samples) + text(size) + text("" if crc is None else crc)
        out += text(index_crc)
    return out


def main():
    samples = [
        (
            b"a/%04d" % i,
            [
                (b"jpg", 512 + i * 2048, 700 + i, 0xDEAD0000 + i),
                (b"cls", 512 + i * 2048 + 1536, 1, None),
            ],
        )
        for i in range(300)
    ]
    samples.append((b"line\nbreak\xff", [(b"cls", b"42")]))
    samples.append((b"", []))
    (HERE / "index_v1.hridx").write_bytes(index([b"jpg", b"cls"], samples, (1 << 20, 1, 2)))

    samples = [
        (b"0", [(b"jpg", 512, 9, 1), (b"cls", 1536, 1, 2)]),
        (b"1", [(b"cls", 2560, 1, 3), (b"jpg", 3584, 9, 4)]),
        (b"2", [(b"jpg", 4608, 9, 5), (b"n", b"42")]),
    ]
    seek_points = [b"a", b"", b"", b"bcd", b"", b""]
    (HERE / "index_seek_v1.hridx").write_bytes(
        index([b"jpg", b"cls", b"n"], samples, (8192, 1, 2), seek_points)
    )

    samples = [
        (
            b"x.tfrecord/%08d" % i,
            [
                (b"image", 12 + i * 1000 + 20, 900, 0xC0FFEE00 + i),
                (b"label", 12 + i * 1000 + 950, 2, None, b"\x0c\x01\x01"),
                (b"scattered", b"an array"),
            ],
            (12 + i * 1000, 984, 0xFEED0000 + i),
        )
        for i in range(100)
    ]
    samples.append((b"empty", [], (1 << 40, 0, 0)))
    (HERE / "index_v2.hridx").write_bytes(
        index([b"image", b"label", b"scattered"], samples, (1 << 41, 3, 4), kind=3)
    )

    m = {
        "kind": "tar",
        "fields": ["cls", "jpg"],
        "classes": ["cat", b"d\xffog\n\\"],
        "shards": [
            ("a/0.tar", "a/0.tar.hridx", 10, 4096, 0xDEADBEEF, 1),
            (b"\xfe.tar", "1.hridx", 1 << 31, 1 << 50, None, 2),
        ],
    }
    content = manifest_version(m)
    rest = content + text("a/0.tar.hridx") + text("1.hridx") + text("../data") + text("a" * 64)
    rest += text('first "cut"') + text("headrace 0.1.0")
    shards = []
    for name, index_name, count, size, crc, index_crc in m["shards"]:
        shard = {
            "name": name if isinstance(name, str) else "\\xfe.tar",
            "index": index_name,
            "samples": count,
            "bytes": size,
        }
        if crc is not None:
            shard["crc32c"] = crc
        shards.append(shard | {"index_header_crc32c": index_crc})
    (HERE / "manifest_v1.json").write_text(
        json.dumps(
            {
                "format": "headrace-manifest",
                "format_version": 1,
                "version": hashlib.sha256(content).hexdigest(),
                "created_by": "headrace 0.1.0",
                "kind": "tar",
                "samples": 10 + (1 << 31),
                "base": "../data",
                "message": 'first "cut"',
                "parents": ["a" * 64],
                "fields": m["fields"],
                "classes": ["cat", "d\\xffog\\n\\\\"],
                "shards": shards,
                "checksum": crc32c(rest),
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
