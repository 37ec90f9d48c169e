#!/usr/bin/env python3
"""Measures Headrace and the loaders people use today, side by side, in one run.

    bench/run.py [--only w1,w2] [--repeats 3] [--quick] [--check] [--contenders Headrace,FFCV]

Every contender runs once, then every contender again: medians of interleaved repeats. The machine's
limits are measured in between. Writes bench/results/DATE-MACHINE.json with every single run and
renders bench/results/README.md; a whole campaign also renews the table of the repository's README.
With --check nothing is timed: all contenders decode one fixed crop, and counts, labels and channel
means must agree.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import bucket
import campaigns
import codec
import contenders
import dlio
import honesty
import limits
import network
import report
from contenders import BENCH, PEERS, REPOSITORY, Job
from data import Data, DataError
from harness import RunError, run_program

RUN_TIMEOUT_S = 600
SMALL_COUNTS = [1_000_000, 10_000_000]
SCALE_COUNTS = [10_000, 100_000, 1_000_000, 10_000_000]
QUICK_COUNTS = [20_000, 40_000]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(contenders.WORKS), help="works, by commas")
    parser.add_argument(
        "--corpora",
        default=",".join(contenders.CODEC_CORPORA),
        help="of the train pipeline and the codec, by commas",
    )
    parser.add_argument("--contenders", default="", help="only these names, by commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time each run at least this long"
    )
    parser.add_argument("--quick", action="store_true", help="few images, one short run each")
    parser.add_argument("--check", action="store_true", help="compare results instead of times")
    parser.add_argument("--prepare", action="store_true", help="make the data, measure nothing")
    parser.add_argument("--render", type=Path, help="only render this JSON file of results again")
    parser.add_argument("--codec", type=Path, help="use this headrace_codec_bench, build none")
    parser.add_argument("--no-limits", action="store_true", help="leave out the machine's limits")
    parser.add_argument(
        "--data", type=Path, default=BENCH / ".data", help="where the data are kept"
    )
    parser.add_argument("--results", type=Path, default=BENCH / "results")
    args = parser.parse_args()
    args.works = args.only.split(",")
    unknown = set(args.works) - set(contenders.WORKS)
    if unknown:
        parser.error(
            f"no such work: {', '.join(sorted(unknown))}; there are {', '.join(contenders.WORKS)}"
        )
    args.corpora = args.corpora.split(",")
    unknown = set(args.corpora) - set(contenders.CODEC_CORPORA)
    if unknown:
        known = ", ".join(contenders.CODEC_CORPORA)
        parser.error(f"no such corpus: {', '.join(sorted(unknown))}; there are {known}")
    if args.quick:
        args.repeats, args.seconds = 1, 0.3
    return args


def planned_jobs(args: argparse.Namespace) -> list[Job]:
    """What is to be run once per repeat, in order."""
    jobs = []
    if "w1" in args.works:
        for corpus in contenders.LOADER_CORPORA:
            jobs += contenders.train_jobs(corpus=corpus) if corpus in args.corpora else []
    if "w2" in args.works:
        jobs += contenders.raw_jobs()
    if "w3" in args.works:
        jobs += contenders.open_jobs(QUICK_COUNTS if args.quick else SMALL_COUNTS)
    if "w4" in args.works:
        jobs += contenders.pack_jobs()
    if "w5" in args.works:
        jobs += contenders.scale_jobs(QUICK_COUNTS if args.quick else SCALE_COUNTS)
    return chosen(args, jobs)


def needed_corpora(args: argparse.Namespace) -> list[str]:
    """The corpora that the works of this run read. The limits are those of the usual one."""
    works = set(args.works) - {"w3", "w5", *network.WORKS, "w12"}
    needed = set() if args.no_limits and not works else {"web"}
    if {"w1", "w6", "w7"} & set(args.works):
        needed |= set(args.corpora)
    return [name for name in contenders.CODEC_CORPORA if name in needed]


def chosen(args: argparse.Namespace, jobs: list[Job]) -> list[Job]:
    """The jobs of the contenders that --contenders names."""
    names = [name for name in args.contenders.split(",") if name]
    return [
        job for job in jobs if not names or any(job.contender.startswith(name) for name in names)
    ]


def runnable(jobs: list[Job], data: Data) -> tuple[list[Job], list[str]]:
    """The jobs that are installed and whose data could be packed; and what is left out, with why."""
    ready: list[Job] = []
    left_out: list[str] = []
    failed: set[Path] = set()
    for job in jobs:
        reason = ""
        if not job.is_installed():
            reason = "not installed"
        elif data.packed_folder(job) not in failed:
            try:
                data.prepare(job)
                ready.append(job)
                continue
            except RunError as error:
                print(f"bench: {job.contender}: {error}", file=sys.stderr)
                failed.add(data.packed_folder(job))
                reason = "its data could not be packed"
        if reason:
            left_out.append(f"{job.contender} ({reason})")
    return ready, sorted(set(left_out))


def read_all(folder: Path) -> None:
    """Bring all files of a folder into the page cache."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(16 << 20):
                    pass


def plan_network(args: argparse.Namespace, data: Data) -> tuple[list[Job], list[str]]:
    """The jobs of the network works that can be run; and what is left out, with why."""
    jobs = chosen(args, network.planned(args.works, args.quick))
    if jobs and not bucket.find_server():
        return [], ["the network works (their S3 server is not installed)"]
    return runnable(jobs, data)


def run_job(job: Job, data: Data, seconds: float) -> dict:
    """Run one job in a process of its own."""
    packed = data.packed_folder(job)
    if job.work == "w5":  # other rows may have pushed these gigabytes out
        read_all(packed)
        read_all(packed.parent / "tar")
    if job.verb == "open":
        if job.packed.startswith("headrace"):
            packed = headrace_root(packed)
        command = [str(job.python), str(PEERS / job.program), str(packed), str(job.count)]
        return run_program(command, RUN_TIMEOUT_S, protocol=False)
    if job.verb == "pack":
        packed = pack_target(data)
    elif job.group == contenders.HEADRACE:
        packed = headrace_root(packed)
    program = contenders.program_name(job.contender, job.packed)
    command = [str(job.python), str(PEERS / job.program), job.verb, program]
    command += ["--packed", str(packed), "--workers", str(job.workers), "--dtype", job.dtype]
    command += ["--seconds", str(seconds)]
    images = str(data.corpora[job.corpus].images)
    command += ["--count", str(job.count)] if job.count else ["--images", images]
    return run_program(command, RUN_TIMEOUT_S)


def pack_target(data: Data) -> Path:
    """The folder that all contenders pack into, one after the other."""
    return data.root / "pack-target"


def headrace_root(folder: Path) -> Path:
    """Headrace packs into a new folder inside the given one, and indexes in place."""
    return folder / "set" if (folder / "set").exists() else folder


def record(runs: list[dict], work: str, contender: str, variant: str, measure) -> None:
    """Run `measure()`, keep its result or its error, and print one line."""
    run = {"work": work, "contender": contender, "variant": variant}
    try:
        run["result"] = measure()
        shown = report.with_derived(run["result"])
        keys = (
            "per_cpu_s",
            "per_s",
            "of_unit",
            "record_share",
            "seekable_baseline_share",
            "gb_per_s",
            "first_s",
            "random_read_us",
            "pss_mb",
            "first_batch_s",
            "cpu_s_per_gb",
            "of_bound",
            "first_origin",
            "later_origin",
            "step_ms",
            "of_device",
        )
        line = "  ".join(f"{key} {shown[key]:,.4g}" for key in keys if shown.get(key) is not None)
    except (RunError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        run["error"] = str(error)
        line = f"FAILED: {error}"
    print(f"  {work:5} {contender:26} {variant:24} {line}", flush=True)
    runs.append(run)


def measure_limits(runs: list[dict], floor: Path, data: Data, seconds: float) -> None:
    """The limits of the machine, once."""
    file_list = data.corpora["web"].file_list
    for name in limits.FLOOR_MODES:
        record(
            runs,
            "limit",
            "floor",
            name,
            lambda name=name: limits.measure_floor(floor, name, file_list, seconds),
        )
    for name in limits.RATES:
        record(
            runs,
            "limit",
            "machine",
            name,
            lambda name=name: limits.measure_rate(floor, name, data.root, seconds),
        )


def measure_codec(runs: list[dict], program: Path, args: argparse.Namespace, data: Data) -> set:
    """W6 and W7, once. Returns the contenders that this build of Headrace lacks."""
    lacking: set[str] = set()
    for name in args.corpora:
        for threads in codec.thread_counts():
            try:
                corpus = data.corpora[name]
                rows, missing = codec.measure(program, corpus, threads, args.seconds)
            except RunError as error:
                variant = codec.variant_name(name, threads)
                record(runs, "w6", "Headrace", variant, lambda error=error: fail(error))
                continue
            lacking |= set(missing)
            for work, contender, variant, result in rows:
                if work in args.works:
                    record(runs, work, contender, variant, lambda result=result: result)
    return lacking


def fail(error: RunError) -> dict:
    """Raises what a program failed with, as the measuring of a row."""
    raise error


def measure_resize(runs: list[dict], program: Path, args: argparse.Namespace, data: Data) -> None:
    """W8, once."""
    commands = codec.resizers(program, data.corpora["web"], args.seconds)
    for contender, command in commands.items():
        measure = lambda command=command: run_program(command, RUN_TIMEOUT_S)  # noqa: E731
        record(runs, "w8", contender, "1 thread", measure)


def write_results(args: argparse.Namespace, campaign: dict) -> None:
    """Write every single run as JSON, then the page."""
    machine = campaign["machine"]
    kind = "quick" if args.quick else f"{machine['architecture']}-{machine['cores']}cores"
    path = args.results / f"{campaign['date']}-{kind}.json"
    campaigns.write(path, campaign)
    print(f"bench: wrote {path}")
    write_pages(args, campaign)


def write_pages(args: argparse.Namespace, campaign: dict) -> None:
    """Render the page of a campaign; one that has all its works also renews the README's table."""
    page = args.results / ("quick.md" if campaign["quick"] else "README.md")
    page.write_text(report.render(campaign))
    print(f"bench: wrote {page}")
    measured = {run["work"] for run in campaign["runs"]}
    ours = args.results == BENCH / "results"
    if ours and not campaign["quick"] and not args.contenders and measured >= report.OVERVIEW_WORKS:
        readme = REPOSITORY / "README.md"
        readme.write_text(report.put_into_readme(readme.read_text(), report.overview(campaign)))
        print(f"bench: renewed the table of {readme}")


def run_campaign(args: argparse.Namespace, data: Data) -> int:
    works = set(args.works)
    jobs, left_out = runnable(planned_jobs(args), data)
    network_jobs, network_left_out = plan_network(args, data)
    places, dlio_left_out = dlio.ready(data, args.quick) if "w12" in works else ([], [])
    left_out = sorted({*left_out, *network_left_out, *dlio_left_out})
    if args.prepare:
        print("bench: the data are ready; left out: " + (", ".join(left_out) or "nothing"))
        return 0
    with_floor = not args.no_limits or network_jobs or places
    floor = limits.build_floor() if with_floor else None
    program = args.codec
    if not program and works & {"w6", "w7", "w8"}:
        program = codec.build_program()
    campaign = campaigns.begin(quick=args.quick, left_out=left_out)
    for repeat in range(args.repeats):
        print(f"bench: repeat {repeat + 1} of {args.repeats}", flush=True)
        if not args.no_limits:
            measure_limits(campaign["runs"], floor, data, args.seconds)
        for job in jobs:
            record(
                campaign["runs"],
                job.work,
                job.contender,
                job.variant,
                lambda job=job: run_job(job, data, args.seconds),
            )
        if works & {"w6", "w7"}:
            lacking = measure_codec(campaign["runs"], program, args, data)
            campaign["left_out"] = sorted({*left_out, *lacking})
        if "w8" in works:
            measure_resize(campaign["runs"], program, args, data)
        network.measure(campaign["runs"], record, network_jobs, data, floor, args.seconds)
        dlio.measure(campaign["runs"], record, places, floor, args.seconds)
        shutil.rmtree(pack_target(data), ignore_errors=True)
        campaign["repeats"] = repeat + 1
        write_results(args, campaign)  # a campaign that is stopped keeps the repeats it has done
    return 1 if any("error" in run for run in campaign["runs"]) else 0


def run_check(args: argparse.Namespace, data: Data) -> int:
    """The honesty check. Returns the exit code."""
    jobs, left_out = runnable(chosen(args, contenders.train_jobs("check")), data)
    corpus = data.corpora["web"]
    floor = run_program([str(limits.build_floor()), "check", str(corpus.file_list)], RUN_TIMEOUT_S)
    folders = sorted(path for path in corpus.images.iterdir() if path.is_dir())
    label_sum = sum(rank * len(list(folder.iterdir())) for rank, folder in enumerate(folders))
    print(f"  {'floor':26} {'':8} images {floor['samples']}  means {floor['channel_means']}")
    bad = 0
    for job in jobs:
        try:
            result = run_job(job, data, args.seconds)
            faults = honesty.judge(job, result, floor, label_sum)
            line = f"labels {result['label_sum']}  means {result['channel_means']}"
        except RunError as error:
            faults, line = [str(error)], ""
        bad += bool(faults)
        print(
            f"  {job.contender:26} {job.dtype:8} {line}  {'; '.join(faults) or 'agrees'}",
            flush=True,
        )
    if left_out:
        print("bench: left out: " + ", ".join(left_out))
    return 1 if bad else 0


def main() -> int:
    args = arguments()
    if args.render:
        write_pages(args, json.loads(args.render.read_text()))
        return 0
    data = Data(args.data, args.quick)
    try:
        for corpus in ["web"] if args.check else needed_corpora(args):
            data.prepare_images(corpus)
        return run_check(args, data) if args.check else run_campaign(args, data)
    except (DataError, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
