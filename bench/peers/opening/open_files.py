"""Plain files: what reading one of many small files costs, the names known beforehand."""

import sys

folder = sys.argv[1]


def read(index: int) -> bytes:
    with open(f"{folder}/{index // 1000:04d}/{index:07d}.bin", "rb") as file:
        return file.read()


print("first", len(read(0)), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), None, read)
