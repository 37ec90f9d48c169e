"""Tests of the checkpoint tables: ratios and their direction, and what is counted."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import checkpoint_report as report

MACHINE = {
    "processor": "test",
    "cores": 2,
    "memory_gib": 8,
    "system": "none",
    "kernel": "1",
}


def run(part: str, name: str, state: str = "dense", **result: object) -> dict:
    return {"part": part, "name": name, "state": state, "result": result}


def saves(stall: float, durable: float, first: float | None = None) -> list[dict]:
    rows = [first or stall, stall, stall]
    return [{"stall_s": s, "durable_s": durable, "cpu_s": 0.5, "machine_cpu_s": 0.6} for s in rows]


def restores(cold: float, warm: float) -> list[dict]:
    return [
        {"cold": True, "s": cold, "cpu_s": 0.1},
        {"cold": False, "s": warm, "cpu_s": 0.1},
    ]


def page_of(*runs: dict) -> str:
    return report.render(
        {
            "date": "2001-01-01",
            "commit": "abc",
            "machine": MACHINE,
            "repeats": 1,
            "left_out": ["X (not installed)"],
            "runs": list(runs),
        }
    )


def row(page: str, name: str, table: int = 0) -> list[str]:
    lines = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in lines[table].strip("|").split("|")]


def test_saves_are_compared_with_the_copy_and_the_disk() -> None:
    size = 2_000_000_000
    page = page_of(
        run("limit write", "fio write, 1 MiB x 2", gb_per_s=2.0),
        run("limit write", "fio write, 4 MiB x 8", gb_per_s=1.0),
        run("speed", "copy", bytes=size, saves=saves(0.1, 0.1), restores=[]),
        run("speed", "A", bytes=size, saves=saves(0.2, 2.0, 0.4), restores=[], file_bytes=size),
    )
    cells = row(page, "A")
    assert cells[1:6] == ["0.200", "4.00", "2.00", "2.000", "50%"]
    assert cells[7] == "0.25"
    assert cells[9] == "1.000"
    assert "| copy |" not in page
    assert "X (not installed)" in page


def test_the_best_restore_of_all_is_the_limit() -> None:
    size = 1_000_000_000
    page = page_of(
        run("limit read", "fio read, 1 MiB x 4", gb_per_s=0.5),
        run("speed", "A", bytes=size, saves=[], restores=restores(1.0, 0.2), wrong=0),
        run("speed", "safetensors", bytes=size, saves=[], restores=restores(2.0, 0.4), wrong=3),
    )
    assert row(page, "A")[1:5] == ["1.000", "100%", "0.200", "0.50"]
    assert row(page, "safetensors")[2] == "50%"
    assert row(page, "safetensors")[-1] == "3"


def test_kills_and_damages_are_counted() -> None:
    page = page_of(
        *(run("kill", "A", "tiny", found=found) for found in ("old", "old", "none")),
        run("faults", "A", "tiny", tried=5, noticed=4, harmless=1, silent=0),
        run("ranks", "A", "2to1", of_unique=1.01),
    )
    assert row(page, "A", 0)[1:] == ["1.010"]
    assert row(page, "A", 1)[1:] == ["5", "4", "1", "0"]
    assert row(page, "A", 2)[1:] == ["3", "2", "0", "0", "1"]


def test_what_failed_is_named() -> None:
    page = page_of({"part": "speed", "name": "A", "state": "dense", "error": "it broke"})
    assert "Failed: A: it broke" in page
