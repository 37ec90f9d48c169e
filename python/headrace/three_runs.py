"""Tell by three runs what part of a loop's time its input costs: reading, and everything after it.

The same steps run with data at hand (one batch again and again), with data in caches, and with data
that must be fetched. The differences are the prep stall (decoding, transforms, handing over) and the
fetch stall (disk or network), as in Mohan et al., "Analyzing and Mitigating Data Stalls in DNN
Training" (arXiv:2007.06775, section 3)::

    from headrace.three_runs import three_runs

    runs = three_runs("photos.hr", train_step, batch_size=64, transforms={...})
    print(runs.prep_stall, runs.fetch_stall)

Or for a step of a known length, without a program: ``python -m headrace.three_runs DATASET --step-ms 20``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace import observe
from headrace.dataset import Dataset
from headrace.errors import InvalidArgumentError

_LEAST_STEPS = 2


@dataclass(frozen=True)
class ThreeRuns:
    """What the runs took. Seconds of ``steps`` steps, without the first one of each run."""

    steps: int
    synthetic_s: float
    cached_s: float
    cold_s: float
    #: The input stall that the loader itself told of the cold run, to be set beside ``input_stall``.
    exported_stall: float

    @property
    def prep_stall(self) -> float:
        """Share of the cold run's time that decoding, transforms and handing over cost the loop."""
        return max(0.0, self.cached_s - self.synthetic_s) / self.cold_s

    @property
    def fetch_stall(self) -> float:
        """Share of the cold run's time that fetching and reading cost the loop."""
        return max(0.0, self.cold_s - max(self.cached_s, self.synthetic_s)) / self.cold_s

    @property
    def input_stall(self) -> float:
        """Both of them."""
        return self.prep_stall + self.fetch_stall


def three_runs(
    path: str | os.PathLike[str],
    step: Callable[[Any], object],
    *,
    batches: int | None = None,
    storage_options: Mapping[str, str | bool | int] | None = None,
    **settings: Any,
) -> ThreeRuns:
    """Run ``step(batch)`` over the same batches three times and compare.

    ``step`` should end with the work done: on a GPU, with a synchronization. Batches that are ready
    before the first step ends count for nothing, so take many more than the loader keeps ahead, and no
    more than the caches hold.

    Args:
        path: the data set. What is read over the network goes through a cache that begins empty;
            of local files the kernel is asked to forget the pages first (those that another program
            has mapped, and files in memory, stay).
        step: one training step.
        batches: how many, the first one included; default: an epoch's.
        storage_options: as for ``headrace.open``, without a cache.
        settings: of the loader.

    Raises:
        InvalidArgumentError: fewer than 3 batches, or more than an epoch has.
    """
    name = os.fspath(path)
    storage = dict(storage_options or {})
    with tempfile.TemporaryDirectory(prefix="headrace-cold-") as cache:
        if _is_remote(name):
            storage["cache_dir"] = cache
        dataset = headrace.open(name, storage_options=storage)
        if not _is_remote(name):
            _forget(name, dataset)
        before = observe.snapshot()["loop"]
        cold_s, steps, batch = _timed(dataset, step, batches, settings)
        exported_stall = _stall_between(before, observe.snapshot()["loop"])
        cached_s, _, _ = _timed(dataset, step, batches, settings)
    begun = time.perf_counter()
    for _ in range(steps):
        step(batch)
    synthetic_s = time.perf_counter() - begun
    return ThreeRuns(steps, synthetic_s, cached_s, cold_s, exported_stall)


def _timed(
    dataset: Dataset, step: Callable[[Any], object], batches: int | None, settings: dict[str, Any]
) -> tuple[float, int, Any]:
    """Return the seconds of all steps but the first, how many those are, and the last batch."""
    with dataset.loader(**settings) as loader:
        count = len(loader) if batches is None else batches
        if not _LEAST_STEPS < count <= len(loader):
            raise InvalidArgumentError(
                f"batches: expected {_LEAST_STEPS + 1} to {len(loader)}, an epoch's, found {count}"
            )
        given: Iterator[Any] = iter(loader)
        batch = next(given)
        step(batch)
        begun = time.perf_counter()
        for _ in range(count - 1):
            batch = next(given)
            step(batch)
        return time.perf_counter() - begun, count - 1, batch


def _stall_between(before: dict[str, int], after: dict[str, int]) -> float:
    waited = after["input_wait_ns"] - before["input_wait_ns"]
    between = after["between_batches_ns"] - before["between_batches_ns"]
    return waited / (waited + between) if waited + between else 0.0


def _is_remote(name: str) -> bool:
    return "://" in name and not name.startswith("file://")


def _forget(name: str, dataset: Dataset) -> None:
    """Ask the kernel to drop what it keeps of a data set's files."""
    root = Path(name.removeprefix("file://"))
    files = {root / shard for shard, _, _ in dataset.shards}
    for folder, _, names in os.walk(root):
        files |= {Path(folder, one) for one in names}
    for file in files:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.fsync(descriptor)  # what is not written yet cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _settings(dataset: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """The loader's settings: decode the images where there are some, else bytes as they are."""
    from headrace import transforms as T

    settings: dict[str, Any] = {"batch_size": options.batch_size, "threads": options.threads}
    if options.image_field in dataset.fields:
        settings["fields"] = [options.image_field]
        settings["transforms"] = {options.image_field: T.imagenet_train(options.size)}
    return settings


def _text(runs: ThreeRuns) -> str:
    lines = [f"{'run':10} {'s':>8} {'ms a step':>10}"]
    for name, seconds in (
        ("synthetic", runs.synthetic_s),
        ("cached", runs.cached_s),
        ("cold", runs.cold_s),
    ):
        lines.append(f"{name:10} {seconds:8.2f} {seconds / runs.steps * 1e3:10.2f}")
    lines.append(
        f"prep stall {runs.prep_stall:.1%}, fetch stall {runs.fetch_stall:.1%}; "
        f"the loader told an input stall of {runs.exported_stall:.1%}"
    )
    return "\n".join(lines)


def main() -> int:
    """Run the method for a step that sleeps."""
    parser = argparse.ArgumentParser(prog="python -m headrace.three_runs", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("dataset", help="by path or URL")
    parser.add_argument("--step-ms", type=float, required=True, help="what a training step takes")
    parser.add_argument("--batches", type=int, help="default: an epoch's")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, help="default: one for each processor")
    parser.add_argument("--size", type=int, default=224, help="side of the images in pixels")
    parser.add_argument("--image-field", default="jpg")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    options = parser.parse_args()
    try:
        settings = _settings(headrace.open(options.dataset), options)
        runs = three_runs(
            options.dataset,
            lambda batch: time.sleep(options.step_ms / 1e3),
            batches=options.batches,
            **settings,
        )
    except headrace.HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 2
    shares = {"prep_stall": runs.prep_stall, "fetch_stall": runs.fetch_stall}
    print(json.dumps(asdict(runs) | shares) if options.json else _text(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
