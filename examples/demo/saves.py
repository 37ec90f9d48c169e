"""What an attempt's saves and its restore cost, from the notes of its rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from stream import read_lines


@dataclass(frozen=True)
class Restore:
    """What an attempt began with."""

    step: int
    seconds: float
    bytes_from: dict[str, int]  # tier -> bytes that came from there

    @property
    def places(self) -> str:
        """The tiers that gave something, from the nearest: "memory"."""
        return " and ".join(tier for tier, count in self.bytes_from.items() if count)

    @property
    def in_words(self) -> str:
        megabytes = sum(self.bytes_from.values()) / 1e6
        return (
            f"restored step {self.step} in {1e3 * self.seconds:.0f} ms: "
            f"{megabytes:.1f} MB from {self.places}"
        )


@dataclass(frozen=True)
class Saves:
    """Seconds that each save of an attempt held the training up, and its restore."""

    stalls: list[float]
    restored: Restore | None


def read_saves(folder: Path) -> Saves:
    """Read the notes of an attempt's journal folder."""
    stalls, restored = [], None
    for note in read_lines(folder / "checkpoints.jsonl"):
        if "restored" in note:
            told = note["restored"]
            restored = Restore(told["step"], told["seconds"], told["from"])
        else:
            stalls.append(note["stall_seconds"])
    return Saves(stalls, restored)


def stalls_in_words(attempts: Sequence[Saves]) -> str:
    """What all saves of a run cost the training."""
    stalls = [1e3 * seconds for saves in attempts for seconds in saves.stalls]
    return (
        f"{len(stalls)} saves into the helper's memory held the training up for {median(stalls):.1f} ms "
        f"each (median; the longest {max(stalls):.1f} ms)"
    )
