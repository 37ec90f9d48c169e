#!/usr/bin/env python3
"""Makes the golden files of a checkpoint store from docs/formats/checkpoint.md alone: a rank manifest, a
manifest, a file of checksums, head and catalog. The program must write and read the same bytes.

Run it again with:  python3 make_golden.py   Output is the same each time.
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
U8, BF16, F32 = 5, 15, 18


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


def hash_bytes(high: int, low: int) -> bytes:
    return struct.pack("<QQ", low, high)


def section_file(magic: bytes, sections: list[tuple[int, int, bytes]]) -> bytes:
    at = 24 + 32 * len(sections) + 4
    table, body = b"", b""
    for kind, flags, content in sections:
        gap = -at % 8
        body += b"\0" * gap + content
        at += gap
        table += struct.pack("<IIQQII", kind, flags, at, len(content), crc32c(content), 0)
        at += len(content)
    head = magic + struct.pack("<IIQ", 1, len(sections), at) + table
    return head + struct.pack("<I", crc32c(head)) + body


def info(world: int, rank: int) -> bytes:
    numbers = [1000, 3, 2, world, rank]
    times = zigzag(1_700_000_000_000_000_000) + zigzag(-5)
    texts = text(b"full") + text("v\xe9".encode()) + text(b"headrace 0.1.0")
    return b"".join(map(varint, numbers)) + times + texts


def tensors(rows: list[tuple[bytes, int, list[int]]]) -> bytes:
    out = varint(len(rows))
    for path, dtype, shape in rows:
        out += text(path) + bytes([dtype]) + varint(len(shape)) + b"".join(map(varint, shape))
    return out


def files(rows: list[tuple[int, int, int, int]]) -> bytes:
    out = varint(len(rows))
    for name, size, rank, flags in rows:
        out += hash_bytes(name, name + 1) + varint(size) + struct.pack("<I", name * 3)
        out += varint(rank) + bytes([flags])
    return out


def boxes(rows: list[tuple[int, int, int, int, int, list[int]]]) -> bytes:
    out, before, ends = varint(len(rows)), 0, {}
    for tensor, file, offset, size, flags, numbers in rows:
        out += zigzag(tensor - before) + varint(file) + zigzag(offset - ends.get(file, 0))
        out += bytes([flags]) + b"".join(map(varint, numbers))
        out += struct.pack("<I", 77 + tensor) + hash_bytes(1 << 63, tensor)
        before, ends[file] = tensor, offset + size
    return out


TENSORS = [
    (b"/model/layers.0.weight", BF16, [300, 7]),
    (b"/optimizer/state/0/exp_avg", F32, [2]),
    (b"/step", U8, []),
]


def rank_manifest() -> bytes:
    rows = [
        (2, 1, 5000, 1, 3, []),
        (0, 0, 4096, 2 * 100 * 7, 0, [200, 100, 0, 7]),
        (0, 0, 4096 + 2 * 100 * 7, 0, 0, [300, 0, 0, 7]),
        (1, 1, 4096, 8, 1, []),
    ]
    return section_file(
        b"HRCKR\r\n\x1a",
        [
            (1, 1, info(2, 1)),
            (2, 1, tensors(TENSORS)),
            (3, 1, files([(10, 5496, 1, 0), (20, 5001, 1, 1)])),
            (4, 1, boxes(rows)),
            (5, 1, b'{"model": 1}'),
            (6, 0, b"\x00\xff state"),
        ],
    )


def manifest() -> bytes:
    rows = [
        (0, 1, 4096, 2 * 200 * 7, 0, [0, 200, 0, 7]),
        (0, 0, 4096, 2 * 100 * 7, 0, [200, 100, 0, 7]),
        (1, 2, 4096, 8, 1, []),
        (2, 2, 5000, 1, 1, []),
    ]
    texts = varint(2) + text(b"{}") + text(b'{"model": 1}') + varint(2) + varint(0) + varint(1)
    states = varint(1) + text(b"") + varint(2) + varint(0) + varint(0)
    return section_file(
        b"HRCKM\r\n\x1a",
        [
            (1, 1, info(2, 0)),
            (2, 1, tensors(TENSORS)),
            (3, 1, files([(10, 5496, 0, 0), (15, 6896, 0, 0), (20, 5001, 1, 1)])),
            (4, 1, boxes(rows)),
            (7, 1, texts),
            (8, 1, states),
        ],
    )


def sums(data: bytes) -> bytes:
    chunks = [data[i : i + 65536] for i in range(0, len(data), 65536)]
    out = b"HRCRC\r\n\x1a" + struct.pack("<IIQ", 1, 65536, len(data)) + hash_bytes(1 << 60, 9)
    out += b"".join(struct.pack("<I", crc32c(chunk)) for chunk in chunks)
    return out + struct.pack("<I", crc32c(out))


def head() -> str:
    members: dict[str, object] = {
        "format": "headrace-checkpoint-head",
        "format_version": 1,
        "epoch": 3,
        "owner": "node\\x01 pid 77",
        "catalog": "catalogs/000000000002-00000000000000050000000000000006.json",
        "catalog_bytes": 800,
        "catalog_hash": f"{5:016x}{6:016x}",
    }
    line = json.dumps(members)
    members["checksum"] = crc32c(line.encode())
    return json.dumps(members, indent=1) + "\n"


def catalog() -> str:
    def entry(step: int, epoch: int, level: str, kind: str) -> dict[str, object]:
        return {
            "step": step,
            "epoch": epoch,
            "attempt": 1,
            "kind": kind,
            "level": level,
            "published_ns": 1_700_000_000_000_000_000,
            "data_bytes": 2_194_477_056,
            "new_bytes": 4096,
            "manifest": f"manifests/{step:012}-{epoch:06}-0001-{7:016x}{8:016x}.hrckm",
            "manifest_bytes": 1234,
            "manifest_hash": f"{7:016x}{8:016x}",
        }

    members = {
        "format": "headrace-checkpoints",
        "format_version": 1,
        "sequence": 2,
        "checkpoints": [entry(200, 1, "remote", "full"), entry(100, 2, "local", "light")],
    }
    return json.dumps(members, indent=1) + "\n"


def main() -> None:
    (HERE / "rank_manifest_v1.hrckr").write_bytes(rank_manifest())
    (HERE / "manifest_v1.hrckm").write_bytes(manifest())
    (HERE / "sums_v1.crc").write_bytes(sums(bytes(i * 7 % 251 for i in range(70000))))
    (HERE / "head_v1.json").write_text(head())
    (HERE / "catalog_v1.json").write_text(catalog())


if __name__ == "__main__":
    main()
