"""The measuring loops of readers of a bucket: whole passes with nothing kept, and epochs that keep.

A reader yields byte strings or lists of them; what it keeps of the bucket lies in a folder that it is
told. The harness counts at the link what the bucket gave away.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from protocol import Stopwatch, emit, event, rates

Items = Iterable  # of bytes, or of lists of bytes
ENDING_S = 60  # a process that has read everything may take so long to end


def count_items(items: Items) -> tuple[int, int]:
    """Samples and bytes of all items."""
    samples = size = 0
    for item in items:
        batch = item if isinstance(item, list) else (item,)
        samples += len(batch)
        size += sum(map(len, batch))
    return samples, size


def measure_passes(args: argparse.Namespace, one_pass: Callable[[int, Path], Items]) -> None:
    """Time whole passes, each in a forked process of its own with an empty folder.

    `one_pass(n, folder)` opens the dataset and reads all of it. What a pass keeps, in the folder or in
    the process, is gone before the next one. Pass 0 warms up; then passes are timed until --seconds
    are over, their opening included.
    """
    _in_child(one_pass, 0, args.cache)
    shutil.rmtree(args.cache / "0", ignore_errors=True)
    event("timing")
    spent = {"wall_s": 0.0, "cpu_s": 0.0, "outside_s": 0.0}
    passes = samples = size = 0
    while passes == 0 or spent["wall_s"] < args.seconds:
        passes += 1
        watch = Stopwatch()
        counted = _in_child(one_pass, passes, args.cache)
        once = watch.read()
        shutil.rmtree(args.cache / str(passes), ignore_errors=True)
        once["outside_s"] = once["other_cores"] * once["wall_s"]
        spent = {name: total + once[name] for name, total in spent.items()}
        samples += counted[0]
        size += counted[1]
    event("timed")
    _expect(samples, args.count * passes)
    gigabytes = size / 1e9
    more = {
        "passes": passes,
        "bytes": size,
        "gb_per_s": gigabytes / spent["wall_s"],
        "cpu_s_per_gb": spent["cpu_s"] / gigabytes,
    }
    emit({"result": {**rates(samples, spent), **more}})


def _in_child(one_pass: Callable[[int, Path], Items], number: int, parent: Path) -> tuple[int, int]:
    """Run one pass in a forked process, in the folder of its number; returns samples and bytes."""
    folder = parent / str(number)
    folder.mkdir(parents=True)
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)

    def read_all() -> None:
        sender.send(count_items(one_pass(number, folder)))

    process = fork.Process(target=read_all)
    process.start()
    sender.close()
    try:
        counted = receiver.recv()
    except EOFError:
        counted = None
    process.join(ENDING_S)
    if process.exitcode is None:
        process.kill()
        raise RuntimeError(f"the process of pass {number} was done and did not end")
    if counted is None or process.exitcode != 0:
        raise RuntimeError(f"pass {number} ended with exit code {process.exitcode}")
    return counted


def measure_epochs(args: argparse.Namespace, epoch: Callable[[int], Items]) -> None:
    """Time --epochs epochs with a training that takes --step-s for each --batch-size samples.

    What was kept of one epoch may serve the next. Before each epoch, and after the last, the harness
    is told, so that it can look at the link's counters while all processes stand still.
    """
    measured = []
    for number in range(args.epochs):
        event("epoch")
        watch = Stopwatch()
        samples = size = 0
        steps_s = 0.0
        first_s = None
        started = time.monotonic()
        for item in epoch(number):
            if first_s is None:
                first_s = time.monotonic() - started
            batch = item if isinstance(item, list) else [item]
            samples += len(batch)
            size += sum(map(len, batch))
            step = args.step_s * len(batch) / args.batch_size
            steps_s += step
            time.sleep(step)
        spent = watch.read()
        measured.append(
            {
                "samples": samples,
                "bytes": size,
                "wall_s": spent["wall_s"],
                "cpu_s": spent["cpu_s"],
                "steps_s": steps_s,
                "first_s": first_s,
            }
        )
    event("epoch")
    emit({"result": {"epochs": measured}})


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"expected {expected} samples from this contender, found {found}")
