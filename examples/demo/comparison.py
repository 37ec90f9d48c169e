"""Measures Headrace and PyTorch's DataLoader on the same images, in turns, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO

CONTENDER = Path(__file__).resolve().parent / "contender.py"
IMAGE_SIZE = 224
PARALLEL = 2  # threads of Headrace, worker processes of the DataLoader
SETTLE_SECONDS = 0.3  # between two passes
SHARE_OF_LIMIT = 0.8  # the accelerator's speed, of what Headrace decodes here
SHARED_MEMORY = Path("/dev/shm")


class ContenderError(Exception):
    """A contender failed. The message has the end of what it wrote."""


@dataclass
class Loader:
    """One contender and its passes."""

    name: str
    arguments: list[str]
    free: list[dict] = field(default_factory=list)  # as fast as it goes
    paced: list[dict] = field(default_factory=list)  # in front of the emulated accelerator
    process: subprocess.Popen | None = None
    errors: IO[str] = field(default_factory=lambda: tempfile.TemporaryFile("w+"))

    @property
    def images_per_second(self) -> float:
        return median(p["images"] / p["seconds"] for p in self.free)

    @property
    def images_per_cpu_second(self) -> float:
        return median(p["images"] / p["cpu_seconds"] for p in self.free)

    @property
    def stall(self) -> float:
        return median(p["stall"] for p in self.paced)

    def start(self, batch_size: int) -> None:
        command = [sys.executable, str(CONTENDER), *self.arguments]
        command += ["--batch-size", str(batch_size), "--image-size", str(IMAGE_SIZE)]
        command += ["--parallel", str(PARALLEL)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def one_pass(self, rate: float | None) -> dict:
        assert self.process is not None and self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps({"rate": rate}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.process.wait()
            self.errors.seek(0)
            end = "\n".join(self.errors.read().splitlines()[-15:])
            raise ContenderError(f"{self.name} failed:\n{end}")
        return json.loads(answer)

    def stop(self) -> None:
        if self.process is not None:
            if self.process.poll() is None and self.process.stdin:
                self.process.stdin.close()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass
class Comparison:
    """The loaders' figures; the first is Headrace, the last the DataLoader."""

    loaders: list[Loader]
    rate: float  # images/s of the emulated accelerator
    batch_size: int
    repeats: int

    def rows(self) -> list[list[str]]:
        """The table: a head and one row a loader."""
        rows = [["", "images/s", "images/CPU-s", "input stall", "AU"]]
        for loader in self.loaders:
            speed, per_cpu = (
                f"{loader.images_per_second:,.0f}",
                f"{loader.images_per_cpu_second:,.0f}",
            )
            rows.append(
                [loader.name, speed, per_cpu, f"{loader.stall:.1%}", f"{1 - loader.stall:.1%}"]
            )
        ours, *_, theirs = self.loaders
        speed = ours.images_per_second / theirs.images_per_second
        per_cpu = ours.images_per_cpu_second / theirs.images_per_cpu_second
        rows.append(["first to last", f"{speed:.2f}", f"{per_cpu:.2f}", "", ""])
        return rows

    def figures(self) -> dict:
        """All figures, pass by pass."""
        every = {"accelerator_images_per_second": self.rate, "batch_size": self.batch_size}
        for loader in self.loaders:
            passes = [
                {k: v for k, v in p.items() if k != "batches"} for p in loader.free + loader.paced
            ]
            every[loader.name] = {
                "images_per_second": loader.images_per_second,
                "images_per_cpu_second": loader.images_per_cpu_second,
                "input_stall": loader.stall,
                "au": 1 - loader.stall,
                "passes": passes,
            }
        return every


def batch_size_that_fits() -> int:
    """64, or 16 where shared memory is too small for the DataLoader's batches (as in many containers)."""
    try:
        free = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 16
    return 64 if free.f_bavail * free.f_frsize > 500e6 else 16


def compare(
    photos: Path, dataset: Path, repeats: int, report: Callable[[int, int], None]
) -> Comparison:
    """Run `repeats` rounds of free passes, then of paced ones; within a round the loaders take turns."""
    batch_size = batch_size_that_fits()
    loaders = [
        Loader("Headrace, 2 threads", ["headrace", str(dataset)]),
        # The folder itself has no index, so no seek points.
        Loader("without seek points", ["headrace", str(photos)]),
        Loader("DataLoader, 2 workers", ["pytorch", str(photos)]),
    ]
    passes = len(loaders) * (1 + 2 * repeats)
    done = 0

    def take_turn(loader: Loader, rate: float | None) -> dict:
        nonlocal done
        report(done, passes)
        time.sleep(SETTLE_SECONDS)
        figures = loader.one_pass(rate)
        done += 1
        return figures

    try:
        for loader in loaders:
            loader.start(batch_size)
        for loader in loaders:
            take_turn(loader, None)  # warms the files, the threads and the workers
        for _ in range(repeats):
            for loader in loaders:
                loader.free.append(take_turn(loader, None))
        rate = round(SHARE_OF_LIMIT * loaders[0].images_per_second, -1) or 10.0
        for _ in range(repeats):
            for loader in loaders:
                loader.paced.append(take_turn(loader, rate))
    finally:
        for loader in loaders:
            loader.stop()
    return Comparison(loaders, rate, batch_size, repeats)
