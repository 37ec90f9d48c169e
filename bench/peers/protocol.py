"""The side of the benchmark that runs inside a contender's process.

A runner is a program `NAME_runner.py WORK CONTENDER [options]`. It imports what it needs, calls
`imports_done()`, and hands an iterable to one of the measuring loops below, which print one JSON
object a line:

    {"event": "imported" | "timing" | "timed"}    the harness looks at memory, then answers a line
    {"result": {...}}                             what was measured

Every contender of a work goes through the same loop, so the consumer costs all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from accounting import machine_busy_seconds, tree_cpu_seconds

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
SIZE = 224  # pixels each way of a training image
SAMPLES_PER_SHARD = 500  # 35 MB of JPEGs
SEED = 7


def arguments() -> argparse.Namespace:
    """The command line of a runner, the same for all."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "work", choices=("pack", "train", "check", "raw", "small", "bucket", "origin")
    )
    parser.add_argument("contender")
    parser.add_argument("--images", type=Path, help="folder of JPEGs, one sub-folder a label")
    parser.add_argument("--packed", type=Path, help="folder of this contender's packed data")
    parser.add_argument("--workers", type=int, default=2, help="processes or threads")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--dtype", choices=("float32", "uint8"), default="float32")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time at least this long, in whole passes"
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="samples of the small dataset")
    parser.add_argument("--sample-bytes", type=int, default=100, help="of the small dataset")
    parser.add_argument("--url", help="where the packed data lie in a bucket")
    parser.add_argument("--cache", type=Path, help="folder for what is kept of the bucket")
    parser.add_argument("--cache-bytes", type=int, default=0, help="its limit; 0: none")
    parser.add_argument("--connections", type=int, default=8, help="to the bucket")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--step-s", type=float, default=0, help="the training takes for a batch")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    args = parser.parse_args()
    args.is_check = args.work == "check"
    return args


def emit(message: dict) -> None:
    """Print one line for the harness."""
    print(json.dumps(message), flush=True)


def event(name: str) -> None:
    """Tell the harness where this process is, and wait until it has looked."""
    emit({"event": name})
    if os.environ.get("HEADRACE_BENCH_HARNESS"):
        sys.stdin.readline()


def imports_done() -> None:
    """Everything a user would import is imported; the memory from here on is the contender's own."""
    event("imported")


def image_files(folder: Path) -> list[tuple[str, int]]:
    """(path, label) of each image; the label is the rank of its sub-folder."""
    found = []
    for label, name in enumerate(
        sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    ):
        found += [(str(path), label) for path in sorted((folder / name).iterdir())]
    return found


class Stopwatch:
    """Wall time, CPU time of the tree, and how many cores other work kept busy meanwhile."""

    def __init__(self) -> None:
        self._busy = machine_busy_seconds()
        self._cpu = tree_cpu_seconds()
        self._wall = time.monotonic()

    def read(self) -> dict:
        wall = time.monotonic() - self._wall
        cpu = tree_cpu_seconds() - self._cpu
        other = machine_busy_seconds() - self._busy - cpu
        return {"wall_s": wall, "cpu_s": cpu, "other_cores": max(0.0, other / wall)}


def rates(samples: int, spent: dict) -> dict:
    """The result fields that all timed works share."""
    tick = 0.01  # what /proc can tell apart
    return {
        "samples": samples,
        **spent,
        "per_s": samples / spent["wall_s"],
        "per_cpu_s": samples / max(spent["cpu_s"], tick),
    }


# ---------------------------------------------------------------- train, check


class ImageConsumer:
    """Takes batches as a training loop would, without the training."""

    def __init__(self, look_at_every_pixel: bool) -> None:
        import numpy

        self._numpy = numpy
        self._every_pixel = look_at_every_pixel
        self.images = 0
        self.label_sum = 0
        self.dtype = ""
        self.layout = ""
        self._totals = numpy.zeros(3)

    def take(self, images, labels) -> None:
        """Count one batch. Touches one pixel an image, or all of them in a check."""
        numpy = self._numpy
        images, labels = numpy.asarray(images), numpy.asarray(labels)
        self.layout = "NCHW" if images.shape[1] == 3 else "NHWC"
        self.dtype = str(images.dtype)
        expected = (3, SIZE, SIZE) if self.layout == "NCHW" else (SIZE, SIZE, 3)
        if images.shape[1:] != expected or len(labels) != len(images):
            raise ValueError(
                f"expected images {expected} and as many labels, found {images.shape}, {labels.shape}"
            )
        self.images += len(images)
        self.label_sum += int(labels.sum())
        if self.layout == "NHWC":
            images = images.transpose(0, 3, 1, 2)
        pixels = (
            images
            if self._every_pixel
            else images[:, :, SIZE // 2 : SIZE // 2 + 1, SIZE // 2 : SIZE // 2 + 1]
        )
        self._totals += pixels.mean(axis=(2, 3), dtype=numpy.float64).sum(axis=0)

    def channel_means(self) -> list[float]:
        """Mean of each channel in 0..1, whatever the data type was."""
        means = self._totals / max(self.images, 1)
        if self.dtype == "uint8":
            means = means / 255
        else:
            means = means * self._numpy.array(IMAGENET_STD) + self._numpy.array(IMAGENET_MEAN)
        return [round(float(mean), 4) for mean in means]


def measure_train(
    args: argparse.Namespace, epoch: Callable[[int], Iterable], expected: int
) -> None:
    """Time whole passes over (images, labels) batches.

    `epoch(n)` starts pass n. Pass 0 warms up and gives the time to the first batch; then passes are
    timed until --seconds are over. In a check there is one pass, and every pixel counts.
    """
    first_batch_s = None
    consumer = ImageConsumer(args.is_check)
    started = time.monotonic()
    for images, labels in epoch(0):
        if first_batch_s is None:
            first_batch_s = time.monotonic() - started
        consumer.take(images, labels)
        del images, labels  # a batch's memory goes back before the next one is asked for
    if args.is_check:
        spent = {}
    else:
        _expect(consumer.images, expected)
        event("timing")
        consumer = ImageConsumer(False)
        watch, passes = Stopwatch(), 0
        deadline = time.monotonic() + args.seconds
        while passes == 0 or time.monotonic() < deadline:
            passes += 1
            for images, labels in epoch(passes):
                consumer.take(images, labels)
                del images, labels
        spent = {"passes": passes, **rates(consumer.images, watch.read())}
        expected *= passes
        event("timed")
    _expect(consumer.images, expected)
    emit(
        {
            "result": {
                **spent,
                "samples": consumer.images,
                "label_sum": consumer.label_sum,
                "channel_means": consumer.channel_means(),
                "dtype": consumer.dtype,
                "layout": consumer.layout,
                "first_batch_s": first_batch_s,
            }
        }
    )


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"expected {expected} samples from this contender, found {found}")


# ---------------------------------------------------------------- raw


def measure_raw(args: argparse.Namespace, epoch: Callable[[int], Iterable], expected: int) -> None:
    """Time whole passes over byte strings (or lists of them): pass 0 warms up, then --seconds."""
    started = time.monotonic()
    first_s = None
    for _ in epoch(0):
        first_s = first_s or time.monotonic() - started
    event("timing")
    watch, passes, samples, size = Stopwatch(), 0, 0, 0
    deadline = time.monotonic() + args.seconds
    while passes == 0 or time.monotonic() < deadline:
        passes += 1
        for item in epoch(passes):
            if isinstance(item, list):
                samples += len(item)
                size += sum(map(len, item))
            else:
                samples += 1
                size += len(item)
    spent = watch.read()
    event("timed")
    _expect(samples, expected * passes)
    gigabytes_per_s = size / spent["wall_s"] / 1e9
    emit(
        {
            "result": {
                "passes": passes,
                **rates(samples, spent),
                "gb_per_s": gigabytes_per_s,
                "first_s": first_s,
            }
        }
    )


# ---------------------------------------------------------------- pack


def measure_pack(
    args: argparse.Namespace, pack: Callable[[list[tuple[str, int]], Path], None]
) -> None:
    """Time `pack(files, folder)` into an empty folder, the sources in the page cache.

    Packs anew until --seconds are over; what was packed before is removed off the clock.
    """
    files = image_files(args.images)
    source_bytes = 0
    for path, _ in files:
        with open(path, "rb") as file:
            source_bytes += len(file.read())
    event("timing")
    spent = {"wall_s": 0.0, "cpu_s": 0.0, "other_cores": 0.0}
    passes = 0
    while passes == 0 or spent["wall_s"] < args.seconds:
        passes += 1
        shutil.rmtree(args.packed, ignore_errors=True)
        args.packed.mkdir(parents=True)
        os.sync()  # what others have written must not be flushed on our time
        watch = Stopwatch()
        pack(files, args.packed)
        once = watch.read()
        # The mean of the cores that other work used, weighted by time.
        busy = spent["other_cores"] * spent["wall_s"] + once["other_cores"] * once["wall_s"]
        spent["wall_s"] += once["wall_s"]
        spent["cpu_s"] += once["cpu_s"]
        spent["other_cores"] = busy / spent["wall_s"]
    event("timed")
    packed_bytes = sum(path.stat().st_size for path in args.packed.rglob("*") if path.is_file())
    emit(
        {
            "result": {
                "passes": passes,
                **rates(len(files) * passes, spent),
                "mb_per_s": source_bytes * passes / spent["wall_s"] / 1e6,
                "source_bytes": source_bytes,
                "packed_bytes": packed_bytes,
            }
        }
    )


def in_processes(work: Callable[[list], None], jobs: list, workers: int) -> None:
    """Run `work(share)` on `workers` shares of `jobs`, each in its own forked process."""
    if workers <= 1:
        work(jobs)
        return
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=work, args=(jobs[rank::workers],)) for rank in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"a packing process ended with exit code {process.exitcode}")


def shuffled_shards(files: list[tuple[str, int]]) -> list[tuple[int, list[tuple[str, int]]]]:
    """The files in random order, cut into numbered shards: formats read in sequence want it so."""
    import random

    order = list(files)
    random.Random(SEED).shuffle(order)
    starts = range(0, len(order), SAMPLES_PER_SHARD)
    return [
        (number, order[start : start + SAMPLES_PER_SHARD]) for number, start in enumerate(starts)
    ]


# ---------------------------------------------------------------- small


def small_samples(first: int, end: int, size: int = 100) -> Iterator[bytes]:
    """Samples `first` to `end` of the small dataset: `size` bytes each, the first 8 its number."""
    import random

    block = random.Random(SEED).randbytes(1 << 20)
    rest = size - 8
    for number in range(first, end):
        offset = number * 97 % (len(block) - rest)
        yield number.to_bytes(8, "big") + block[offset : offset + rest]


def make_small(args: argparse.Namespace, write: Callable[[int, Path], None]) -> None:
    """Write the small dataset with `write(count, folder)` into an empty folder."""
    shutil.rmtree(args.packed, ignore_errors=True)
    args.packed.mkdir(parents=True)
    watch = Stopwatch()
    write(args.count, args.packed)
    packed_bytes = sum(path.stat().st_size for path in args.packed.rglob("*") if path.is_file())
    emit({"result": {**rates(args.count, watch.read()), "packed_bytes": packed_bytes}})


def run(args: argparse.Namespace, works: dict[str, Callable[[argparse.Namespace], None]]) -> None:
    """Run the work that the command line names; a check is a train work with one fixed crop."""
    name = "train" if args.is_check else args.work
    if name not in works:
        sys.exit(f"{args.contender} has no work {args.work}; it has {', '.join(works)}")
    works[name](args)
