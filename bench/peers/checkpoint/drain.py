"""What a drain does to the loader beside it: drain.py --state dense --drains 6 --interval 12 --folder F

A training whose steps have a fixed length takes batches of decoded, augmented images from a loader that
could give twice as many. It saves at regular times into a helper, which writes the state to a folder of
this disk and drains it from there to another one. Time from batch to batch, in the windows between the
drains and in those of the drains. Prints the result as a JSON line.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import states

import headrace
from headrace import transforms
from headrace.checkpoint import Checkpointer

BATCH = 16
PICTURES, COPIES = 250, 8
SHAPE = (500, 375)
SETTLE_S = 0.5  # behind a drain; belongs to no window
LATEST_S = 120.0  # a drain that takes longer has failed
LINGER_S = 30.0  # a helper does not outlive a failed run for long


def pack_pictures(folder: Path) -> Path:
    """A dataset of JPEGs with smooth parts and noise, each several times."""
    from PIL import Image

    source, packed = folder / "pictures", folder / "set"
    source.mkdir(parents=True)
    for number in range(PICTURES):
        noise = Image.effect_noise(SHAPE, 20 + number % 40).convert("RGB")
        slope = Image.linear_gradient("L").resize(SHAPE).convert("RGB")
        buffer = io.BytesIO()
        Image.blend(slope, noise, 0.3).save(buffer, "JPEG", quality=90)
        for copy in range(COPIES):
            (source / f"{copy}-{number:04}.jpg").write_bytes(buffer.getvalue())
    command = [sys.executable, "-m", "headrace", "pack", str(source), str(packed), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return packed


def endless(loader: Any) -> Iterator[Any]:
    """Batches of epoch after epoch."""
    while True:
        yield from loader


def seconds_of_a_batch(loader: Any) -> float:
    """Of the loader alone: a whole epoch, behind one that warms up."""
    took = 0.0
    for _ in range(2):
        start, count = time.perf_counter(), 0
        for _batch in loader:
            count += 1
        took = (time.perf_counter() - start) / count
    return took


class Training:
    """Steps of a fixed length; a step computes nothing on the processor."""

    def __init__(self, loader: Any, step_s: float) -> None:
        self._batches = endless(loader)
        self._step_s = step_s

    def steps_until(self, done: Callable[[], bool]) -> list[float]:
        """Seconds of each step, until `done()` says so."""
        took = []
        while not done():
            start = time.perf_counter()
            time.sleep(self._step_s)
            next(self._batches)
            took.append(time.perf_counter() - start)
        return took

    def steps_to(self, moment: float) -> list[float]:
        """Until a moment of time.perf_counter()."""
        return self.steps_until(lambda: time.perf_counter() >= moment)


def p99_ms(seconds: list[float]) -> float:
    """The value that 99 of 100 do not exceed."""
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1] * 1e3


def one_save(
    training: Training, checkpointer: Checkpointer, state: states.State, turn: int, interval: float
) -> dict:
    """A save, its drain, and a window without one, `interval` seconds in all."""
    states.change(state, turn)
    start = time.perf_counter()
    handle = checkpointer.save(turn, state)

    def reached(level: Any) -> bool:
        if time.perf_counter() > start + interval + LATEST_S:
            raise TimeoutError(f"the save did not reach {level}")
        return handle.done(level)

    training.steps_until(lambda: reached("local"))
    begin = time.perf_counter()
    draining = training.steps_until(lambda: reached("remote"))
    end = time.perf_counter()
    training.steps_to(end + SETTLE_S)
    idle = training.steps_to(start + interval)
    return {
        "draining": draining,
        "idle": idle,
        "drain_s": end - begin,
        "late": end > start + interval,
    }


def measure(args: argparse.Namespace) -> dict:
    """All saves of a run."""
    packed = pack_pictures(args.folder)
    state = states.make(args.state)
    checkpointer = Checkpointer(
        args.folder / "far", tiers=["memory", args.folder / "near"], keep=1, linger=LINGER_S
    )
    checkpointer.prepare(state)
    loader = headrace.open(packed).loader(
        batch_size=BATCH, seed=1, transforms={"jpg": transforms.imagenet_train(224)}
    )
    with checkpointer, loader:
        alone = seconds_of_a_batch(loader)
        training = Training(loader, 2 * alone)
        saves = [
            one_save(training, checkpointer, state, turn, args.interval)
            for turn in range(1, args.drains + 1)
        ]
    return {
        "loader_ms": alone * 1e3,
        "step_ms": 2 * alone * 1e3,
        "interval_s": args.interval,
        "idle_p99_ms": [p99_ms(save["idle"]) for save in saves if save["idle"]],
        "drain_p99_ms": [p99_ms(save["draining"]) for save in saves if save["draining"]],
        "drain_batches": [len(save["draining"]) for save in saves],
        "drain_s": [save["drain_s"] for save in saves],
        "late": sum(save["late"] for save in saves),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--state", default="dense")
    parser.add_argument("--drains", type=int, default=6)
    parser.add_argument("--interval", type=float, default=12.0, help="seconds from save to save")
    parser.add_argument("--folder", type=Path, required=True)
    print(json.dumps({"result": measure(parser.parse_args())}), flush=True)


if __name__ == "__main__":
    main()
