"""Headrace itself: a contender like the others.

headrace            pack: with seek points, without waiting for the disk, as all the others
headrace-plain      pack: without seek points, so that no image is looked into
headrace-durable    pack: likewise, and everything on the disk before it returns
headrace-index      small: tar shards indexed where they lie
headrace-beside     small: links to the tar shards, with their indexes beside them
headrace-fast       train: images are resized before their colours are converted
headrace-memory     bucket: without a cache's folder, by plan through memory
headrace-direct     bucket: without a cache, each sample is a request of its own
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from protocol import (
    SAMPLES_PER_SHARD,
    SEED,
    SIZE,
    arguments,
    image_files,
    imports_done,
    make_small,
    measure_pack,
    measure_raw,
    measure_train,
    run,
)
from remote import measure_epochs, measure_passes

# Of the epochs that keep: the shards that are mixed at a time must be a small part of a cache, as they
# are with large datasets, which have thousands. These are 4 lanes of 2 shards of 10 MB.
LANES = 4

# Holds the shards that the default order mixes of the datasets of bucket.
MEMORY_BYTES = 2 << 30

PROGRAM = Path(sys.executable).parent / "headrace"


def call_program(*arguments_: object) -> None:
    """Run the headrace program; it says on standard error why it failed."""
    command = [str(PROGRAM), *map(str, arguments_)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def train(args) -> None:
    import numpy  # noqa: F401  counted as an import

    import headrace
    from headrace import transforms

    imports_done()
    if args.is_check:
        image = transforms.imagenet_eval(SIZE, short_side=SIZE, dtype=args.dtype)
    else:
        quality = {"quality": "fast"} if args.contender == "headrace-fast" else {}
        image = transforms.imagenet_train(SIZE, dtype=args.dtype, **quality)
    dataset = headrace.open(args.packed)
    with dataset.loader(
        batch_size=args.batch_size,
        seed=SEED,
        threads=args.workers,
        tail="uneven",  # the last batch is short, as with all the others
        transforms={"jpg": image, "cls": transforms.label()},
    ) as loader:

        def epoch(number: int):
            loader.set_epoch(number)
            for batch in loader:
                yield batch["jpg"], batch["cls"]

        measure_train(args, epoch, len(dataset))


def raw(args) -> None:
    import headrace

    imports_done()
    # Small samples have one field, images also a label that the other contenders leave alone.
    field = "jpg" if args.images else "bin"
    dataset = headrace.open(args.packed, fields=[field])
    with dataset.loader(
        batch_size=args.batch_size, seed=SEED, threads=max(args.workers, 1), tail="uneven"
    ) as loader:

        def epoch(number: int):
            loader.set_epoch(number)
            for batch in loader:
                yield batch[field]

        expected = len(image_files(args.images)) if args.images else args.count
        measure_raw(args, epoch, expected)


def pack(args) -> None:
    imports_done()

    # Shards of the same size and mixed order as those of the other tar shards.
    options = ["--threads", max(args.workers, 1), "--shuffle", SEED]
    options += ["--shard-samples", SAMPLES_PER_SHARD]
    if args.contender != "headrace-durable":
        options.append("--no-fsync")
    if args.contender != "headrace":
        options.append("--seek-points=off")

    def write(files, folder) -> None:
        call_program("pack", *options, args.images, folder / "set")

    measure_pack(args, write)


def small(args) -> None:
    """Pack the tar shards that --images names, or index them where they lie."""

    def write(count, folder) -> None:
        if args.contender == "headrace-beside":
            for shard in sorted(args.images.glob("*.tar")):
                os.link(shard, folder / shard.name)
            call_program("index", "--checksums", folder)
        elif args.contender == "headrace-index":
            call_program("index", "--checksums", "--output", folder / "set", args.images)
        else:
            call_program("pack", args.images, folder / "set")

    make_small(args, write)


def storage_options(args, cache: Path | None, **more: str) -> dict:
    """How to reach the bucket; what else there is to say is in the environment."""
    # Half of the connections may go to one host.
    options: dict[str, str | int] = {"connections": 2 * args.connections, **more}
    if cache is not None:
        options["cache_dir"] = str(cache)
        if args.cache_bytes:
            options["cache_bytes"] = str(args.cache_bytes)
    return options


def bucket(args) -> None:
    import headrace

    imports_done()
    memory = {"headrace-direct": 0, "headrace-memory": MEMORY_BYTES}.get(args.contender)

    def one_pass(number: int, folder: Path):
        if memory is None:
            storage = storage_options(args, folder)
        else:
            storage = storage_options(args, None, cache_memory_bytes=str(memory))
        dataset = headrace.open(args.url, fields=["bin"], storage_options=storage)
        with dataset.loader(
            batch_size=args.batch_size, seed=SEED, threads=max(args.workers, 1), tail="uneven"
        ) as loader:
            loader.set_epoch(number)
            for batch in loader:
                yield batch["bin"]

    measure_passes(args, one_pass)


def origin(args) -> None:
    import headrace

    imports_done()
    # All of the cache is on the disk: a second one in memory would hold half of these datasets.
    storage = storage_options(args, args.cache, cache_memory_bytes="0")
    dataset = headrace.open(args.url, fields=["bin"], storage_options=storage)
    with dataset.loader(
        batch_size=args.batch_size,
        seed=SEED,
        threads=max(args.workers, 1),
        tail="uneven",
        lanes=LANES,
        rank=args.rank,
        world_size=args.world_size,
    ) as loader:

        def epoch(number: int):
            loader.set_epoch(number)
            for batch in loader:
                yield batch["bin"]

        measure_epochs(args, epoch)


if __name__ == "__main__":
    works = {"train": train, "raw": raw, "pack": pack, "small": small}
    run(arguments(), {**works, "bucket": bucket, "origin": origin})
