"""Tests of the cures' table: speeds from a record, and what counts as a good prediction."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cures


def window(samples: float, seconds: float) -> str:
    metrics = [{"name": cures.SAMPLES, "value": samples}, {"name": "headrace_other", "value": 9}]
    snapshot = {"window_ns": int(seconds * 1e9), "metrics": metrics}
    return json.dumps({"type": "window", "snapshot": snapshot})


def test_the_slowest_rank_counts_without_its_start(tmp_path: Path) -> None:
    start = [json.dumps({"type": "run"}), window(0, 5), window(7, 5)]
    for rank, samples in ((0, 100), (1, 40)):
        lines = [*start, window(samples, 1), "", window(samples, 1)]
        (tmp_path / f"rank-{rank}.jsonl").write_text("\n".join(lines))
    assert cures.speed_of(tmp_path) == 40


@pytest.mark.parametrize(
    ("predicted", "measured", "bound", "words"),
    [
        (1.0, 1.1, False, "within 20 %"),
        (1.0, 3.0, False, "off by -50%"),
        (5.0, 1.0, False, "off by +200%"),
        (5.0, 1.0, True, "holds"),
        (0.5, 2.0, True, "too low"),
        (None, 2.0, False, "not predicted"),
    ],
)
def test_a_prediction_is_judged(
    predicted: float | None, measured: float, bound: bool, words: str
) -> None:
    row = {"predicted": predicted, "measured": measured, "bound": bound}
    assert cures.verdict(row) == words


def test_each_fault_is_a_row() -> None:
    row = {"fault": "throttled", "found": 2, "repeats": 3, "bound": True}
    rows = [row | {"predicted": 0.5, "measured": 0.25}, row | {"predicted": None, "measured": 0.25}]
    lines = cures.table(rows).splitlines()
    assert lines[2] == "| throttled | 2 of 3 | at most 50% | 25% | holds |"
    assert lines[3] == "| throttled | 2 of 3 |  | 25% | not predicted |"
