"""The stream of samples that a training run saw, put together from its logs and checked.

A run is a list of attempts, each with its own number of processes. An attempt that was killed leaves
batches behind its last checkpoint that the next attempt does again; the training state has seen only
the second time, and so does the stream here. Both times must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class StreamError(Exception):
    """The logs do not say what a sound run's logs say. The message says what and where."""


@dataclass
class Batch:
    """One global batch as one attempt did it."""

    world: int
    ranks: dict[int, dict] = field(default_factory=dict)  # rank -> its line of the log

    @property
    def is_whole(self) -> bool:
        """Whether every rank did it; a kill can fall between two ranks."""
        return len(self.ranks) == self.world

    @property
    def keys(self) -> list[str]:
        """The keys in the order of their positions: position p is with rank p mod world."""
        size = sum(len(line["keys"]) for line in self.ranks.values())
        first = next(iter(self.ranks.values()))["batch"] * size
        streams: dict[int, Iterator[str]] = {
            r: iter(line["keys"]) for r, line in self.ranks.items()
        }
        try:
            return [next(streams[p % self.world]) for p in range(first, first + size)]
        except StopIteration:
            raise StreamError(
                f"the ranks' shares of batch {first // size} do not fit together"
            ) from None

    @property
    def loss(self) -> float:
        """Mean over the samples of the global batch."""
        rows = sum(len(line["keys"]) for line in self.ranks.values())
        return sum(line["loss_sum"] for line in self.ranks.values()) / rows


@dataclass
class Attempt:
    """One start of the training program."""

    batches: dict[int, Batch]  # number over all epochs -> batch
    world: int

    @property
    def start(self) -> int:
        return min(self.batches)

    @property
    def whole(self) -> dict[int, Batch]:
        return {n: batch for n, batch in sorted(self.batches.items()) if batch.is_whole}


def read_lines(path: Path) -> Iterator[dict]:
    """The lines of a rank's log. A line that a kill cut off has no end and is not one."""
    text = path.read_text()
    for line in text[: text.rfind("\n") + 1].splitlines():
        yield json.loads(line)


def read_attempt(folder: Path, batches_per_epoch: int) -> Attempt:
    """Read the logs of one attempt. Raises StreamError if there are none, or of several sizes."""
    batches: dict[int, Batch] = {}
    worlds = set()
    for path in sorted(folder.glob("rank-*.jsonl")):
        for line in read_lines(path):
            worlds.add(line["world"])
            number = line["epoch"] * batches_per_epoch + line["batch"]
            batches.setdefault(number, Batch(line["world"])).ranks[line["rank"]] = line
    if len(worlds) != 1:
        raise StreamError(f"expected logs of one world size in {folder}, found {sorted(worlds)}")
    return Attempt(batches, worlds.pop())


@dataclass
class Run:
    """What the training state saw, and what was done twice to get there."""

    batches: list[Batch]  # number over all epochs -> the batch that counts
    attempt_of: list[int]  # number over all epochs -> which attempt that was
    redone: int = 0  # batches done again after a kill

    @property
    def keys(self) -> list[list[str]]:
        return [batch.keys for batch in self.batches]


def join(attempts: list[Attempt], total: int) -> Run:
    """Join the attempts of one run of `total` global batches. Raises StreamError for a gap or a change."""
    run = Run([], [])
    for index, attempt in enumerate(attempts):
        again = run.batches[attempt.start :]
        for number, earlier in enumerate(again, attempt.start):
            later = attempt.whole.get(number)
            if later is not None and later.keys != earlier.keys:
                raise StreamError(
                    f"attempt {index + 1} has other samples in batch {number} than before"
                )
        run.redone += len(again)
        del run.batches[attempt.start :], run.attempt_of[attempt.start :]
        for number, batch in attempt.whole.items():
            if number != len(run.batches):
                raise StreamError(
                    f"attempt {index + 1} has batch {number} where {len(run.batches)} was due"
                )
            run.batches.append(batch)
            run.attempt_of.append(index)
    if len(run.batches) != total:
        raise StreamError(f"expected {total} global batches, found {len(run.batches)}")
    return run


def first_difference(found: list[list[str]], expected: list[list[str]]) -> str | None:
    """Where two streams part, in words; None if they are equal."""
    if len(found) != len(expected):
        return f"{len(found)} global batches against {len(expected)}"
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if len(ours) != len(theirs):
            return f"global batch {number} has {len(ours)} samples against {len(theirs)}"
        for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return f"global batch {number}, row {row}: {one} against {other}"
    return None
