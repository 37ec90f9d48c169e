#!/usr/bin/env python3
"""Applies the doctor's cures to real faults, and sets predicted and measured gain side by side.

    bench/cures.py [--seconds 3] [--repeats 3] [--only decode-bound,throttled] [--output FILE.json]

The faults are those of the tests (tests/integration/injected_faults.py) that have a cure. Each job runs
with the fault, the doctor reads its record and predicts, then the same job runs with the cure. The last
rows set `headrace doctor --without` beside runs that really lack the part. Speeds are those of the
slowest rank; of the repeats the median. Run it on a quiet machine with at least two processors; it takes
some eight minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import campaigns
from contenders import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
import injected_faults
from injected_faults import Fault, Job, Place, Removal

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
    before, after = speed_of(sick), speed_of(cured)
    return {
        "found": found is not None,
        "others": sorted(one["check"] for one in findings if one["check"] != fault.check),
        "predicted": found and found.get("gain"),
        "bound": bool(found and found.get("gain_at_most")),
        "before": before,
        "after": after,
        "measured": after / before - 1,
    }


def remove(removal: Removal, seconds: float, folder: Path) -> dict:
    """Run a job with and without a part of it once, and predict the latter from the former."""
    (folder / "with").mkdir(parents=True)
    (folder / "without").mkdir()
    whole = injected_faults.run_jobs(longer((removal.job,), seconds), folder / "with")
    rest = injected_faults.run_jobs(longer((removal.without,), seconds), folder / "without")
    before, after = speed_of(whole), speed_of(rest)
    return {
        "found": True,
        "others": [],
        "predicted": injected_faults.doctor(whole, "--without", removal.part)["change"],
        "bound": False,
        "before": before,
        "after": after,
        "measured": after / before - 1,
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
        "runs": runs,
    }


def repeated(run: Callable[[float, Path], dict], args: argparse.Namespace, folder: Path) -> list:
    """Run it some times, and keep nothing but what it says: records and checkpoints take room."""
    runs = []
    for _ in range(args.repeats):
        runs.append(run(args.seconds, folder))
        shutil.rmtree(folder)
    return runs


def works_of(place: Place) -> dict[str, Callable[[float, Path], dict]]:
    """What can be run, by its name in the table."""
    works = {
        fault.check: partial(measure, fault)
        for fault in injected_faults.all_faults(place)
        if fault.cured
    }
    return works | {
        f"without {removal.part}": partial(remove, removal)
        for removal in injected_faults.all_removals(place)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=3, help="of each job")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="names of rows, by commas")
    parser.add_argument("--output", type=Path, help="write the rows to this JSON file")
    args = parser.parse_args()
    rows = []
    only = set(filter(None, args.only.split(",")))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "data").mkdir()
        with injected_faults.prepared(root / "data") as place:
            works = works_of(place)
            if only - set(works):
                parser.error(f"--only: expected some of {', '.join(works)}")
            for work, run in works.items():
                if only and work not in only:
                    continue
                rows.append(row_of(work, repeated(run, args, root / "runs")))
                print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(rows))
    if args.output:
        settings = {"seconds": args.seconds, "seed": injected_faults.SEED}
        campaign = campaigns.begin(settings=settings, rows=rows)
        campaigns.write(args.output, campaign | {"repeats": args.repeats})
    return 0


if __name__ == "__main__":
    sys.exit(main())
