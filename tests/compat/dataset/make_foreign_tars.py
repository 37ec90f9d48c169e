#!/usr/bin/env python3
"""Makes the small foreign tars in this folder, and what a reader must find in them.

Writers: GNU tar in each of its formats, Python's tarfile in each of its formats, the dialect of
WebDataset's writer (a PAX header with a float mtime before every member), and bytes patched where
no writer at hand makes the dialect. `expected.txt` has one line a member: tar, kind, size, CRC32C
of the data, path as hex. It is written from what went in, not from our reader.

Run it again with:  python3 make_foreign_tars.py   (needs GNU tar). Output is the same each time, but for
the process number that GNU tar puts into the PAX headers of sparse files.
"""

import io
import pathlib
import subprocess
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LONG = "a-folder-with-a-rather-long-name/" * 4 + "k" * 120  # over 100 and over 255 bytes together
PREFIX = "a-folder-with-a-rather-long-name/" * 4 + "0007"  # fits USTAR's prefix + name
FILES = {
    "plain/0001.jpg": b"first picture",
    "plain/0001.cls": b"7",
    "plain/0002.seg.png": bytes(range(256)) * 3,
    "plain/0002.cls": b"",
    PREFIX + ".jpg": b"found through the prefix",
    PREFIX + ".cls": b"8",
}
LONG_FILES = {LONG + ".jpg": b"found through a long name", LONG + ".cls": b"9"}
UTF8_FILES = {"\u00fcber/\u4e00.jpg": b"not ASCII"}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


EXPECTED = []


def expect(tar, files, kind="file"):
    for name, data in files.items():
        name = name if isinstance(name, bytes) else name.encode()
        EXPECTED.append(f"{tar} {kind} {len(data)} {crc32c(data):08x} {name.hex()}")


def write_files(root, files):
    for name, data in files.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def gnu_tar(tar, files, *options):
    with tempfile.TemporaryDirectory() as root:
        write_files(root, files)
        command = [
            "tar",
            "-C",
            root,
            "-cf",
            str(HERE / tar),
            "--blocking-factor=1",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=0644",
            *options,
            *files,
        ]
        subprocess.run(command, check=True)


def python_tar(tar, files, fmt, mtime=0, **settings):
    with tarfile.open(HERE / tar, "w", format=fmt, **settings) as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            out.addfile(info, io.BytesIO(data))


def add_checksum(block, signed=False):
    block[148:156] = b" " * 8
    total = sum(b - 256 if signed and b > 127 else b for b in block)
    block[148:156] = b"%06o\0 " % total
    return bytes(block)


def raw_member(name, data, signed=False, base256=False, magic=b"ustar\x0000"):
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    size = len(data).to_bytes(12, "big") if base256 else b"%011o\0" % len(data)
    block[124:136] = bytes([size[0] | 0x80]) + size[1:] if base256 else size
    block[136:148] = b"00000000000\0"
    block[156:157] = b"0"
    block[257:265] = magic
    return add_checksum(block, signed) + data + b"\0" * (-len(data) % 512)


def main():
    for fmt in ("v7", "oldgnu", "gnu", "ustar", "posix"):
        files = {k: v for k, v in FILES.items() if fmt != "v7" or len(k) < 100}
        if fmt in ("oldgnu", "gnu", "posix"):
            files = files | LONG_FILES
        if fmt != "v7":
            files = files | UTF8_FILES
        # The posix name of a PAX header holds the process's number unless it is told otherwise.
        pax = ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
        gnu_tar(f"gnutar-{fmt}.tar", files, f"--format={fmt}", *(pax if fmt == "posix" else []))
        expect(f"gnutar-{fmt}.tar", files)

    every = FILES | LONG_FILES | UTF8_FILES
    python_tar("python-ustar.tar", FILES, tarfile.USTAR_FORMAT)
    expect("python-ustar.tar", FILES)
    python_tar("python-gnu.tar", every, tarfile.GNU_FORMAT)
    expect("python-gnu.tar", every)
    python_tar("python-pax.tar", every, tarfile.PAX_FORMAT)
    expect("python-pax.tar", every)
    python_tar("webdataset-writer.tar", every, tarfile.PAX_FORMAT, mtime=1700000000.25)
    expect("webdataset-writer.tar", every)
    python_tar(
        "python-pax-global.tar",
        {"a.txt": b"named by itself"},
        tarfile.PAX_FORMAT,
        pax_headers={"comment": "for all members"},
    )
    expect("python-pax-global.tar", {"a.txt": b"named by itself"})

    with tarfile.open(HERE / "kinds.tar", "w", format=tarfile.USTAR_FORMAT) as out:
        for name, kind, link in (
            ("d", tarfile.DIRTYPE, ""),
            ("s.jpg", tarfile.SYMTYPE, "d/a.jpg"),
            ("h.jpg", tarfile.LNKTYPE, "d/a.jpg"),
            ("f.jpg", tarfile.FIFOTYPE, ""),
            ("c.jpg", tarfile.CHRTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            out.addfile(info)
        info = tarfile.TarInfo("d/a.jpg")
        info.size = 3
        out.addfile(info, io.BytesIO(b"abc"))
    for name, kind in (
        ("d/", "directory"),
        ("s.jpg", "link"),
        ("h.jpg", "link"),
        ("f.jpg", "other"),
        ("c.jpg", "other"),
        ("d/a.jpg", "file"),
    ):
        expect("kinds.tar", {name: b"abc" if kind == "file" else b""}, kind)

    latin = "caf\u00e9.jpg".encode("latin-1")
    raw = {
        latin: b"name is no UTF-8",
        b"line\nbreak.jpg": b"2",
        b"../up.jpg": b"3",
        b"/abs.jpg": b"4",
    }
    (HERE / "raw-names.tar").write_bytes(
        b"".join(raw_member(n, d) for n, d in raw.items()) + bytes(1024)
    )
    expect("raw-names.tar", raw)
    (HERE / "signed-checksum.tar").write_bytes(
        raw_member(latin, b"old sum", signed=True) + bytes(1024)
    )
    expect("signed-checksum.tar", {latin: b"old sum"})
    (HERE / "base256.tar").write_bytes(raw_member(b"a.jpg", b"12345", base256=True) + bytes(1024))
    expect("base256.tar", {"a.jpg": b"12345"})
    (HERE / "no-end-blocks.tar").write_bytes(raw_member(b"a.jpg", b"x" * 600))
    expect("no-end-blocks.tar", {"a.jpg": b"x" * 600})
    (HERE / "no-padding.tar").write_bytes(raw_member(b"a.jpg", b"x" * 600)[: 512 + 600])
    expect("no-padding.tar", {"a.jpg": b"x" * 600})

    with tempfile.TemporaryDirectory() as root:
        with open(pathlib.Path(root, "holes.bin"), "wb") as f:
            f.seek(1 << 20)
            f.write(b"end")
        for fmt, version in (("gnu", ""), ("posix", "0.1"), ("posix", "1.0")):
            name = f"sparse-{fmt}{version}.tar"
            options = [f"--sparse-version={version}"] if version else []
            subprocess.run(
                [
                    "tar",
                    "-C",
                    root,
                    "-cf",
                    str(HERE / name),
                    "--blocking-factor=1",
                    "--sparse",
                    f"--format={fmt}",
                    "--mtime=@0",
                    "--owner=0",
                    "--group=0",
                    *(
                        ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
                        if fmt == "posix"
                        else []
                    ),
                    *options,
                    "holes.bin",
                ],
                check=True,
            )
    (HERE / "expected.txt").write_text("\n".join(EXPECTED) + "\n")


if __name__ == "__main__":
    main()
