"""Input stall over time: which share of each stretch of time was spent waiting for a batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from stream import Attempt

Interval = tuple[float, float]  # seconds from, to


@dataclass(frozen=True)
class Stall:
    """The waits of one consumer between `began` and `ended`, all in seconds on one clock."""

    began: float
    ended: float
    waits: Sequence[Interval]

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def shares(self, stretches: int) -> list[float]:
        """For each of `stretches` equal stretches of the time the share spent waiting, 0 to 1."""
        width = self.seconds / stretches
        waited = [0.0] * stretches
        for begin, end in self.waits:
            first = max(0, int((begin - self.began) / width))
            last = min(stretches - 1, int((end - self.began) / width))
            for i in range(first, last + 1):
                left = self.began + i * width
                waited[i] += max(0.0, min(end, left + width) - max(begin, left))
        return [min(1.0, seconds / width) for seconds in waited]


def of_attempt(attempt: Attempt) -> Stall:
    """The stall of an attempt by rank 0's journal, from the end of its first batch on."""
    lines = [batch.ranks[0] for _, batch in sorted(attempt.batches.items()) if 0 in batch.ranks]
    waits = []
    for before, line in itertools.pairwise(lines):
        waited = line["wait_seconds"] - before["wait_seconds"]
        waits.append((before["time"], before["time"] + waited))
    return Stall(lines[0]["time"], lines[-1]["time"], waits)


def of_pass(figures: dict) -> Stall:
    """The stall of a contender's pass, from the moment it asked for the first batch."""
    waits = [(done - compute - wait, done - compute) for done, wait, compute in figures["batches"]]
    return Stall(0.0, figures["batches"][-1][0], waits)
