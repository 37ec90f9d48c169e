"""Tests of the checkpoint tables: ratios and their direction, and what is counted."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import checkpoint
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


def test_the_best_durable_save_of_all_is_the_limit() -> None:
    size = 1_000_000_000
    page = page_of(
        run("limit write", "fio write, 1 MiB x 2", gb_per_s=1.0),
        run("speed", "A", bytes=size, saves=saves(0.1, 1.0), restores=[], file_bytes=size),
        run("speed", "B", bytes=size, saves=saves(0.1, 0.8), restores=[], file_bytes=size),
    )
    assert row(page, "A")[6] == "80%"
    assert row(page, "B")[6] == "100%"


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


def test_manifests_of_many_ranks_are_read_from_the_program() -> None:
    text = "grid     4096 ranks x 300 boxes: assembled in 0.731 CPU s, read in 0.252 CPU s, 21.5 bytes a box"
    found = checkpoint.manifest_results(f"noise\n{text}\n")
    page = page_of(run("manifests", "grid", "", **found["grid"]))
    assert row(page, "grid")[1:] == ["4,096 x 300", "0.731", "0.252", "21.5"]


def test_drains_are_compared_with_the_windows_between_them() -> None:
    result = {
        "step_ms": 10.0,
        "loader_ms": 5.0,
        "interval_s": 12.0,
        "idle_p99_ms": [10.0, 11.0, 10.5],
        "drain_p99_ms": [11.0, 12.0, 30.0],
        "drain_s": [2.0, 2.0, 2.0],
        "late": 1,
    }
    cells = row(page_of(run("drain", "Headrace", "dense", **result)), report.NAMES["dense"])
    assert cells[1:] == [
        "10.0",
        "10.5 (10.0 to 11.0)",
        "12.0 (11.0 to 30.0)",
        "1.14",
        "5.0",
        "2.00",
        "12",
        "1",
    ]


def test_a_drain_too_short_for_a_batch_has_no_ratio() -> None:
    result = {
        "step_ms": 10.0,
        "loader_ms": 5.0,
        "interval_s": 4.0,
        "idle_p99_ms": [10.0],
        "drain_p99_ms": [],
        "drain_s": [0.0],
        "late": 0,
    }
    cells = row(page_of(run("drain", "Headrace", "small", **result)), report.NAMES["small"])
    assert cells[3:5] == ["-", "-"]


def test_what_failed_is_named() -> None:
    page = page_of({"part": "speed", "name": "A", "state": "dense", "error": "it broke"})
    assert "Failed: A: it broke" in page
