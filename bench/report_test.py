"""Tests of the tables: medians, ratios and their direction, and the mark in the README."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import codec
import report

MACHINE = {"processor": "test", "cores": 2, "memory_gib": 8, "system": "none"}


def run(work: str, contender: str, variant: str, **result: float) -> dict:
    return {"work": work, "contender": contender, "variant": variant, "result": result}


def campaign(*runs: dict) -> dict:
    head = {"date": "2001-01-01", "commit": "abc", "machine": MACHINE, "repeats": 3, "quick": False}
    return {**head, "left_out": [], "runs": list(runs)}


def rows_of(page: str, contender: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith(f"| {contender}")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_row_is_the_median_with_the_lowest_and_the_highest() -> None:
    repeats = [run("w2", "MDS", "0 workers", per_cpu_s=value) for value in (900, 1000, 1300)]
    (row,) = rows_of(report.render(campaign(*repeats)), "MDS")
    assert row[2] == "1,000 (900 to 1,300)"


def test_ratios_are_above_one_where_headrace_is_better_in_both_directions() -> None:
    page = report.render(
        campaign(
            run("w2", "Headrace", "2 workers", per_cpu_s=4000, per_s=1),
            run("w2", "MDS", "0 workers", per_cpu_s=1000, per_s=1),
            run("w3", "Headrace, one sample", "5 samples", first_s=0.1),
            run("w3", "Grain", "5 samples", first_s=0.3),
        )
    )
    assert "4.00 x" in rows_of(page, "MDS")[0]
    assert "3.00 x" in rows_of(page, "Grain")[0]


def test_a_peer_is_compared_at_equal_settings() -> None:
    page = report.render(
        campaign(
            run("w4", "Headrace", "1 workers", per_cpu_s=3000),
            run("w4", "Headrace", "2 workers", per_cpu_s=9000),
            run("w4", "MDS", "1 workers", per_cpu_s=1000),
        )
    )
    assert "3.00 x" in rows_of(page, "MDS")[0]


def test_the_floor_is_the_one_of_the_same_data_type() -> None:
    page = report.render(
        campaign(
            run("limit", "floor", "floor float32", per_cpu_s=1000),
            run("limit", "floor", "floor uint8", per_cpu_s=2000),
            run("w1", "Headrace", "float32, 2 workers", per_cpu_s=900),
            run("w1", "Headrace", "uint8, 2 workers", per_cpu_s=1000),
        )
    )
    assert [row[-1] for row in rows_of(page, "Headrace")] == ["90%", "50%"]


def test_a_failed_contender_is_shown_and_a_disturbed_one_marked() -> None:
    failed = {"work": "w2", "contender": "MDS", "variant": "0 workers", "error": "it broke"}
    noisy = run("w2", "LitData", "0 workers", per_cpu_s=5, other_cores=0.9)
    page = report.render(campaign(failed, noisy))
    assert "failed: it broke" in page
    assert rows_of(page, "LitData")[0][0] == "LitData \\*"


def test_limits_are_not_peers_in_the_overview() -> None:
    table = report.overview(
        campaign(
            run("w4", "Headrace", "1 workers", per_cpu_s=200),
            run("w4", "GNU tar", "1 workers", per_cpu_s=300),
            run("w4", "MDS", "1 workers", per_cpu_s=100),
        )
    )
    assert "100 (MDS) | 2.0 x" in table
    assert "GNU tar" not in table


def test_peers_are_compared_with_the_default_settings_not_with_the_fastest() -> None:
    runs = campaign(
        run("w1", "Headrace", "float32, 2 workers", per_cpu_s=3000),
        run("w1", "Headrace, fast", "float32, 2 workers", per_cpu_s=4000),
        run("w1", "MDS", "float32, 2 workers", per_cpu_s=1000),
        run("w1", "MDS", "dense: float32, 2 workers", per_cpu_s=7000),
    )
    assert [row[-1] for row in rows_of(report.render(runs), "MDS")] == ["3.00 x", ""]
    assert "| 3,000 | 1,000 (MDS) | 3.0 x |" in report.overview(runs)


def program_result(**refusals: int) -> dict:
    measured = {"samples": 100, "failed": 0, "cpu_s": 1.0, "wall_s": 1.0, "per_s": 100.0}
    variants = {
        name: {**measured, "per_cpu_s": 250.0, "from_seek_points": 80}
        for name in (*codec.CONTENDERS, codec.BUILDING)
    }
    variants[codec.UNIT] = {**measured, "per_cpu_s": 100.0, "from_seek_points": 0}
    variants["fast"] = {"missing": "no such thing"}
    sizes = {"files": 100, "left_out": 0, "image_bytes": 5_000_000, "record_bytes": 50_000}
    return {**sizes, "refusals": refusals, "variants": variants}


def test_the_codec_is_compared_with_the_unit_of_the_same_run() -> None:
    rows, missing = codec.rows_of(program_result(none=100), "web, 1 thread", 0.0)
    assert missing == ["Headrace, fast (no such thing)"]
    page = report.render(campaign(*(run(*row[:3], **row[3]) for row in rows)))
    (exact,) = rows_of(page, "Headrace, exact |")
    assert exact[1:5] == ["250", "100", "2.50", "80.0%"]


def test_shares_of_seek_points_count_baseline_images_apart() -> None:
    refusals = {"none": 90, "progressive": 8, "sampling": 2}
    rows, _ = codec.rows_of(program_result(**refusals), "web, 1 thread", 0.0)
    page = report.render(campaign(*(run(*row[:3], **row[3]) for row in rows)))
    (row,) = rows_of(page, "web, 1 thread | 250")
    assert row[3:8] == ["1.00%", "100", "50.0", "90.0%", "97.8%"]
    assert "Without seek points in web: progressive 8, sampling 2." in page


@pytest.mark.parametrize("old", ["", "\nOLD\n<!-- /table -->"])
def test_the_readme_keeps_everything_but_the_table(old: str) -> None:
    readme = f"top\n<!-- table -->{old}\nbottom\n"
    once = report.put_into_readme(readme, "NEW")
    assert once == "top\n<!-- table -->\nNEW\n<!-- /table -->\nbottom\n"
    assert report.put_into_readme(once, "NEW") == once
    assert report.put_into_readme("no mark", "NEW") == "no mark"
