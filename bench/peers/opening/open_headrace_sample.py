"""Headrace: one sample by its number, without a loader."""

import sys

import headrace

dataset = headrace.open(sys.argv[1])
print("first", len(dataset[int(sys.argv[2]) // 3]["bin"]), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), len(dataset), lambda index: dataset[index]["bin"])
