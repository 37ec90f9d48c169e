#!/usr/bin/env python3
"""Measures reads of cached blocks against what the disk and the memory can do, in one run.

    bench/cache_reads.py --directory /nvme/bench [--repeats 5] [--gigabytes 2] [--quick]

Cold: a first round of fio finds the block size and depth at which O_DIRECT reads of the same disk are
fastest; then fio's best and Headrace take turns. Warm: reads from the page cache and copies that
are checked take turns of 0.3 s inside one program. Writes bench/results/cache-DATE.json with every
single run and renders cache-DATE.md beside it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import campaigns
from codec import core_count
from contenders import BENCH, REPOSITORY
from harness import RunError, run_program

BUILD = BENCH / "floor" / "build" / "product"
TARGET = "headrace_cache_bench"
TIMEOUT_S = 900

KIB, MIB = 2**10, 2**20
BLOCK = 4 * MIB
FIO_SIZES = (64 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB)
FIO_DEPTHS = (1, 4, 16, 64)
# name -> mode of the program, reads in flight, bytes of each
COLD = {
    "around the page cache, blocks of 4 MiB": ("always", 8, BLOCK),
    "through the page cache, blocks of 4 MiB": ("never", 8, BLOCK),
    "around the page cache, 1 MiB": ("always", 16, MIB),
}
SAMPLE = 128 * KIB
GOAL_COLD, GOAL_WARM = 0.90, 0.80


@dataclass(frozen=True)
class Row:
    """Something that is measured once in each round."""

    part: str  # cold or warm
    name: str
    measure: Callable[[], dict]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--directory", type=Path, required=True, help="a folder on the disk that is measured"
    )
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the cache")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each warm row and fio run")
    parser.add_argument("--quick", action="store_true", help="does everything work?")
    parser.add_argument("--program", type=Path, help=f"use this {TARGET}, build none")
    parser.add_argument("--results", type=Path, default=BENCH / "results")
    args = parser.parse_args()
    if args.quick:
        args.repeats, args.seconds, args.gigabytes = 1, 1.0, 0.25
    return args


def build_program() -> Path:
    """Build the program as the product is built."""
    for command in (
        ["cmake", "-S", str(REPOSITORY), "-B", str(BUILD), "-DHEADRACE_TESTS=OFF"],
        ["cmake", "--build", str(BUILD), "--target", TARGET, "-j", str(core_count())],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{TARGET} could not be built: {(done.stdout + done.stderr)[-800:]}")
    return BUILD / "bench" / TARGET


# ---------------------------------------------------------------- fio


def fio(path: Path, size: int, block: int, depth: int, seconds: float) -> dict:
    """Sequential O_DIRECT reads of one file, in GB/s."""
    timed = ["--time_based", f"--runtime={max(1, round(seconds))}"]
    job = campaigns.fio(path, size, "read", block, depth, *timed)
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    gigabytes = job["read"]["io_bytes"] / 1e9
    return {"gb_per_s": job["read"]["bw_bytes"] / 1e9, "cpu_s_per_gb": cpu_s / gigabytes}


def sweep(path: Path, size: int, seconds: float) -> list[dict]:
    """Every block size at every depth, the fastest first."""
    found = []
    for block in FIO_SIZES:
        for depth in FIO_DEPTHS:
            run = {"block": block, "depth": depth, **fio(path, size, block, depth, seconds)}
            print(f"  fio {block // KIB} KiB x {depth}: {run['gb_per_s']:.3f} GB/s", flush=True)
            found.append(run)
    return sorted(found, key=lambda run: -run["gb_per_s"])


def limit_of_disk(path: Path, size: int, seconds: float) -> list[dict]:
    """The sweep; empty, after a line that says why, where fio cannot be used."""
    reason = "fio is not installed"
    if shutil.which("fio"):
        try:
            return sweep(path, size, seconds)
        except (RunError, subprocess.SubprocessError) as error:
            reason = f"fio failed: {error}"
    print(f"bench: {reason}, so there is no limit of the disk", file=sys.stderr)
    return []


# ---------------------------------------------------------------- rows


def cold_rows(program: Path, cache: Path, best: list[dict], file: Path, args) -> list[Row]:
    """The best two of fio, and Headrace."""
    rows = []
    size = file.stat().st_size if best else 0
    for one in best[:2]:
        block, depth = one["block"], one["depth"]
        rows.append(
            Row(
                "cold",
                f"fio, {block // KIB} KiB x {depth}",
                lambda block=block, depth=depth: fio(file, size, block, depth, args.seconds),
            )
        )
    for name, (mode, in_flight, size_each) in COLD.items():
        command = [str(program), "cold", str(cache), mode, str(in_flight), str(size_each)]
        rows.append(Row("cold", f"Headrace, {name}", lambda c=command: run_program(c, TIMEOUT_S)))
    return rows


def warm_rows(program: Path, cache: Path, args: argparse.Namespace) -> list[Row]:
    """Whole blocks and samples, on one core and on all."""
    rows = []
    for threads in sorted({1, core_count()}):
        for name, size in (("blocks of 4 MiB", BLOCK), ("samples of 128 KiB", SAMPLE)):
            command = [str(program), "warm", str(cache), str(size), str(threads), str(args.seconds)]
            title = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
            rows.append(Row("warm", title, lambda c=command: run_program(c, TIMEOUT_S)))
    return rows


def with_shares(result: dict) -> dict:
    """With the share of the faster way to copy and check, and of plain reads that are checked."""
    ways = ("copy_in_one_pass_gb_per_s", "copy_in_two_passes_gb_per_s")
    return {
        **result,
        "of_copy": result["gb_per_s"] / max(result[way] for way in ways),
        "of_system": result["gb_per_s"] / result["system_gb_per_s"],
    }


# ---------------------------------------------------------------- page


def figures(campaign: dict, part: str) -> dict[str, dict[str, list[float]]]:
    """Row -> figure -> its values, in the order of the rows."""
    rows: dict[str, dict[str, list[float]]] = {}
    for run in campaign["runs"]:
        if run["part"] != part or "result" not in run:
            continue
        result = with_shares(run["result"]) if part == "warm" else run["result"]
        for key, value in result.items():
            if isinstance(value, (int, float)):
                rows.setdefault(run["name"], {}).setdefault(key, []).append(value)
    return rows


def cell(values: list[float] | None, form: str = ".2f") -> str:
    """Median (lowest to highest)."""
    if not values:
        return "-"
    low, middle, high = min(values), statistics.median(values), max(values)
    spread = "" if format(low, form) == format(high, form) else f" ({low:{form}} to {high:{form}})"
    return f"{middle:{form}}{spread}"


def cold_table(campaign: dict) -> list[str]:
    rows = figures(campaign, "cold")
    speeds = {name: statistics.median(row["gb_per_s"]) for name, row in rows.items()}
    best = max((speed for name, speed in speeds.items() if name.startswith("fio")), default=None)
    lines = [
        "## Cold",
        "",
        "Every block is read once after the page cache was told to forget it. The limit is the best "
        "O_DIRECT read that fio found over block sizes and depths; the goal is "
        f"{GOAL_COLD:.0%} of it.",
        "",
        "| | GB/s | of fio's best | CPU-seconds per GB |",
        "|---|---|---|---|",
    ]
    for name, row in rows.items():
        share = f"{speeds[name] / best:.0%}" if best else "-"
        cpu = cell(row.get("cpu_s_per_gb"))
        lines.append(f"| {name} | {cell(row['gb_per_s'])} | {share} | {cpu} |")
    return [*lines, ""]


def warm_table(campaign: dict) -> list[str]:
    lines = [
        "## Warm",
        "",
        "Blocks lie in the page cache, and each read is checked. The limit is the same number of "
        "bytes copied from memory and checked by CRC32C by as many threads, in one pass or in two, "
        f"whichever is faster; the goal is {GOAL_WARM:.0%} of it. No read can be faster than the "
        "system's copy out of the page cache: the last columns are plain `pread` of the same files "
        "with CRC32C.",
        "",
        "| | GB/s | CPU-seconds per GB | copy and check in one pass | in two | of the limit "
        "| pread and check | of that |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in figures(campaign, "warm").items():
        cells = [
            cell(row["gb_per_s"]),
            cell(row["cpu_s_per_gb"], ".3f"),
            cell(row["copy_in_one_pass_gb_per_s"]),
            cell(row["copy_in_two_passes_gb_per_s"]),
            cell(row["of_copy"], ".0%"),
            cell(row["system_gb_per_s"]),
            cell(row["of_system"], ".0%"),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def render(campaign: dict) -> str:
    machine = campaign["machine"]
    lines = [
        "# Cached reads",
        "",
        f"{campaign['date']}, Headrace {campaign['commit']}. {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, kernel "
        f"{machine['kernel']}. Made by `bench/cache_reads.py`; do not edit.",
        "",
        f"Median of {campaign['repeats']} interleaved runs (lowest to highest); a cache of "
        f"{campaign['gigabytes']:g} GB; reads by {campaign['driver'] or 'an unknown driver'}.",
        "",
        *cold_table(campaign),
        *warm_table(campaign),
    ]
    failed = [f"{run['name']}: {run['error']}" for run in campaign["runs"] if "error" in run]
    if failed:
        lines += ["Failed: " + "; ".join(failed), ""]
    return "\n".join(lines)


# ---------------------------------------------------------------- run


def write(args: argparse.Namespace, campaign: dict) -> None:
    name = "cache-quick" if args.quick else f"cache-{campaign['date']}"
    campaigns.write_with_page(args.results, name, campaign, render(campaign))


def run_rounds(args: argparse.Namespace, rows: list[Row], campaign: dict) -> None:
    for repeat in range(args.repeats):
        for row in rows:
            run: dict = {"part": row.part, "name": row.name}
            try:
                run["result"] = row.measure()
                campaign["driver"] = run["result"].get("driver", campaign["driver"])
                print(f"  {row.part} {row.name}: {run['result']['gb_per_s']:.3f} GB/s", flush=True)
            except (RunError, subprocess.SubprocessError) as error:
                run["error"] = str(error)
                print(f"  {row.part} {row.name}: FAILED: {error}", flush=True)
            campaign["runs"].append(run)
        campaign["repeats"] = repeat + 1
        write(args, campaign)


def main() -> int:
    args = arguments()
    program = args.program or build_program()
    cache, file = args.directory / "cache", args.directory / "fio.tmp"
    args.directory.mkdir(parents=True, exist_ok=True)
    size = round(args.gigabytes * 1e9)
    campaign = campaigns.begin(gigabytes=args.gigabytes, driver="", sweep=[])
    try:
        run_program([str(program), "fill", str(cache), str(size)], TIMEOUT_S)
        campaign["sweep"] = limit_of_disk(file, size, args.seconds / 4)
        rows = cold_rows(program, cache, campaign["sweep"], file, args)
        run_rounds(args, rows + warm_rows(program, cache, args), campaign)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        shutil.rmtree(Path(f"{cache}.origin"), ignore_errors=True)
        Path(f"{cache}.bytes").unlink(missing_ok=True)
        file.unlink(missing_ok=True)
    return 1 if any("error" in run for run in campaign["runs"]) else 0


if __name__ == "__main__":
    sys.exit(main())
