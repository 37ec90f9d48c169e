"""What the packers are compared with: the files joined by cat, and GNU tar."""

from __future__ import annotations

import subprocess

from protocol import arguments, imports_done, make_small, measure_pack, run, small_samples

SHARD_BYTES = 10_000_000  # of samples; tar adds to it
BLOCK = 512  # bytes of a tar header and of the unit that file contents are padded to


def join(args, files, folder) -> None:
    """All files one after the other in one file, by as few cat processes as the command line allows."""
    paths = "\0".join(path for path, _ in files)
    with open(folder / "joined", "wb") as out:
        subprocess.run(["xargs", "-0", "cat"], input=paths.encode(), stdout=out, check=True)


def tar(args, files, folder) -> None:
    """One archive of the whole folder."""
    archive = str(folder / "images.tar")
    subprocess.run(["tar", "-cf", archive, "-C", str(args.images), "."], check=True)


def pack(args) -> None:
    imports_done()
    work = {"cat": join, "tar": tar}[args.contender]
    measure_pack(args, lambda files, folder: work(args, files, folder))


def tar_header(name: str, size: int) -> bytes:
    """A USTAR header of a regular file."""
    fields = b"".join(
        (
            name.encode().ljust(100, b"\0"),
            b"0000644\0",
            b"0000000\0" * 2,
            b"%011o\0" % size,
            b"%011o\0" % 0,
            b" " * 8,  # the checksum is summed up as if it were blank
            b"0",
            b"\0" * 100,
            b"ustar\00000",
        )
    )
    header = bytearray(fields.ljust(BLOCK, b"\0"))
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def write_small_shard(first: int, end: int, size: int, path) -> None:
    """A plain USTAR shard of small samples `first` to `end` of `size` bytes."""
    template = tar_header("000000000.bin", size)
    digits_at_zero = sum(b"000000000")
    checksum = int(template[148:154], 8)
    head_rest = template[9:148]
    tail_rest = template[154:]
    padding = bytes(-size % BLOCK)
    with open(path, "wb", buffering=1 << 20) as out:
        for number, sample in enumerate(small_samples(first, end, size), first):
            name = b"%09d" % number
            mark = b"%06o" % (checksum - digits_at_zero + sum(name))
            out.write(b"".join((name, head_rest, mark, tail_rest, sample, padding)))
        out.write(bytes(2 * BLOCK))


def write_small_files(count: int, folder) -> None:
    """One file a sample, a thousand in a folder."""
    for number, sample in enumerate(small_samples(0, count)):
        parent = folder / f"{number // 1000:04d}"
        if number % 1000 == 0:
            parent.mkdir()
        with open(f"{parent}/{number:07d}.bin", "wb") as out:
            out.write(sample)


def small(args) -> None:
    """Plain files, or tar shards of 10 MB of small samples for WebDataset and Headrace."""
    shard_samples = SHARD_BYTES // args.sample_bytes

    def write(count, folder) -> None:
        if args.contender == "files":
            write_small_files(count, folder)
            return
        for shard, first in enumerate(range(0, count, shard_samples)):
            end = min(first + shard_samples, count)
            path = folder / f"shard-{shard:05d}.tar"
            write_small_shard(first, end, args.sample_bytes, path)

    make_small(args, write)


if __name__ == "__main__":
    run(arguments(), {"pack": pack, "small": small})
