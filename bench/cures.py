#!/usr/bin/env python3
"""Applies the doctor's cures to real faults, and sets predicted and measured gain side by side.

    bench/cures.py [--seconds 5] [--repeats 3] [--only decode-bound,throttled] [--output FILE.json]

The faults are those of the tests (tests/integration/injected_faults.py): a store that refuses
requests, a node with slow reads, decoding on one thread, more threads than processors, blocking
saves at each step, small files. Each job runs with the fault, the doctor reads its record and
predicts, then the same job runs with the cure. The last rows set `headrace doctor --without` beside
runs that really lack the part. Speeds are those of the slowest rank; of the repeats the median. Run
it on a quiet machine with at least two processors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from campaigns import commit_name
from contenders import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
import injected_faults
from injected_faults import Fault, Job, Removal

GOAL = 0.2  # how far a prediction may be off
SAMPLES = "headrace_loader_samples_total"


def speed_of(record: Path) -> float:
    """Samples a second of the slowest rank, without the window in which the first batch came."""
    speeds = []
    for path in sorted(record.glob("rank-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        windows = [line["snapshot"] for line in lines if line["type"] == "window"]
        counts = [
            sum(metric["value"] for metric in window["metrics"] if metric["name"] == SAMPLES)
            for window in windows
        ]
        first = next(i for i, count in enumerate(counts) if count > 0) + 1
        seconds = sum(window["window_ns"] for window in windows[first:]) * 1e-9
        speeds.append(sum(counts[first:]) / seconds)
    return min(speeds)


def longer(jobs: tuple[Job, ...], seconds: float) -> tuple[Job, ...]:
    """The same jobs for so many seconds each."""
    return tuple(replace(job, seconds=seconds) for job in jobs)


def measure(fault: Fault, seconds: float, folder: Path) -> dict:
    """Run a fault and its cure once."""
    (folder / "sick").mkdir(parents=True)
    (folder / "cured").mkdir()
    sick = injected_faults.run_jobs(longer(fault.jobs, seconds), folder / "sick")
    findings = injected_faults.doctor(sick, *fault.doctor)["findings"]
    found = next((one for one in findings if one["check"] == fault.check), None)
    cured = injected_faults.run_jobs(longer(fault.cured, seconds), folder / "cured")
    return {
        "found": found is not None,
        "predicted": found and found.get("gain"),
        "bound": bool(found and found.get("gain_at_most")),
        "measured": speed_of(cured) / speed_of(sick) - 1,
    }


def remove(removal: Removal, seconds: float, folder: Path) -> dict:
    """Run a job with and without a part of it once, and predict the latter from the former."""
    (folder / "with").mkdir(parents=True)
    (folder / "without").mkdir()
    whole = injected_faults.run_jobs(longer((removal.job,), seconds), folder / "with")
    rest = injected_faults.run_jobs(longer((removal.without,), seconds), folder / "without")
    return {
        "found": True,
        "predicted": injected_faults.doctor(whole, "--without", removal.part)["change"],
        "bound": False,
        "measured": speed_of(rest) / speed_of(whole) - 1,
    }


def verdict(row: dict) -> str:
    """Whether the prediction was good."""
    if row["predicted"] is None:
        return "not predicted"
    ratio = (1 + row["predicted"]) / (1 + row["measured"])
    if row["bound"]:
        return "holds" if ratio >= 1 - GOAL else "too low"
    return "within 20 %" if abs(ratio - 1) <= GOAL else f"off by {ratio - 1:+.0%}"


def table(rows: list[dict]) -> str:
    """The rows as Markdown."""
    lines = [
        "| fault | found | predicted gain | measured gain | prediction |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        predicted = "" if row["predicted"] is None else f"{row['predicted']:.0%}"
        most = "at most " if row["bound"] and predicted else ""
        lines.append(
            f"| {row['fault']} | {row['found']} of {row['repeats']} | {most}{predicted} "
            f"| {row['measured']:.0%} | {verdict(row)} |"
        )
    return "\n".join(lines)


def row_of(name: str, runs: list[dict]) -> dict:
    """The median of some runs."""
    predicted = [run["predicted"] for run in runs if run["predicted"] is not None]
    return {
        "fault": name,
        "bound": any(run["bound"] for run in runs),
        "repeats": len(runs),
        "found": sum(run["found"] for run in runs),
        "predicted": statistics.median(predicted) if predicted else None,
        "measured": statistics.median(run["measured"] for run in runs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each job")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="names of rows, by commas")
    parser.add_argument("--output", type=Path, help="write the rows to this JSON file")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "data").mkdir()
        with injected_faults.prepared(root / "data") as place:
            works = {
                fault.check: partial(measure, fault) for fault in injected_faults.all_faults(place)
            } | {
                f"without {removal.part}": partial(remove, removal)
                for removal in injected_faults.all_removals(place)
            }
            for work, run in works.items():
                if args.only and work not in args.only.split(","):
                    continue
                folders = [root / f"{work}-{i}" for i in range(args.repeats)]
                rows.append(row_of(work, [run(args.seconds, folder) for folder in folders]))
                print(table(rows[-1:]).splitlines()[-1], file=sys.stderr)
    print(table(rows))
    if args.output:
        report = {"commit": commit_name(), "rows": rows}
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
