"""Headrace: the first shuffled batch of the loader."""

import sys

import headrace

dataset = headrace.open(sys.argv[1])
with dataset.loader(batch_size=64, seed=0, threads=1) as loader:
    batch = next(iter(loader))
    print("first", len(batch["bin"]), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), len(dataset), lambda index: dataset[index]["bin"])
