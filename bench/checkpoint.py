#!/usr/bin/env python3
"""Measures saving and restoring of training states, Headrace and its peers side by side, in one run.

    bench/checkpoint.py --directory /nvme/bench [--repeats 3] [--quick] [--only speed,drain,...]

The same states for all: 2.19 GB in 360 tensors, and 20,000 small tensors. Every contender runs once in
a process of its own, then every contender again; the limits (a copy by one thread, and the best
O_DIRECT writes and reads that fio finds over block sizes and depths) are measured in between.
Writes bench/results/checkpoint-DATE.json with every single run and renders checkpoint-DATE.md beside
it. Peers are installed by `bench/peers/setup checkpoint`; those that are not there are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import campaigns
import checkpoint_report as report
from contenders import BENCH, HEADRACE, PEERS, REPOSITORY, interpreter
from harness import RunError, run_program

RUNNER = PEERS / "checkpoint" / "runner.py"
RANKS = PEERS / "checkpoint" / "ranks.py"
DRAIN = PEERS / "checkpoint" / "drain.py"
MANIFESTS = "checkpoint_bench"  # the program, and the target that builds it
TIMEOUT_S = 900
PARTS = ("speed", "faults", "kill", "ranks", "manifests", "drain")
MIB = 2**20
FIO_BLOCKS = (MIB, 2 * MIB, 4 * MIB)
FIO_WRITE_DEPTHS = (1, 2, 4, 8)
FIO_READ_DEPTHS = (4, 16, 64)

# Those whose files others restore come first.
CONTENDERS = (
    "copy",
    "Headrace",
    "torch.save",
    "torch.load mmap",
    "safetensors",
    "fastsafetensors",
    "Run:ai streamer",
    "DCP",
    "DCP, 2 threads",
    "DCP async",
    "DCP async, kept stager",
    "DeepSpeed FastFileWriter",
)
READS = {
    "torch.load mmap": "torch.save",
    "fastsafetensors": "safetensors",
    "Run:ai streamer": "safetensors",
}
OWN_ENVIRONMENT = ("fastsafetensors", "Run:ai streamer", "DeepSpeed FastFileWriter")
DAMAGED = ("Headrace", "torch.save", "safetensors", "fastsafetensors", "Run:ai streamer", "DCP")
KILLED = ("Headrace", "torch.save", "safetensors", "DCP")
SHARDED = ("Headrace", "DCP")
RESHARDINGS = ((2, 1), (1, 2), (2, 2))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--directory", type=Path, help="a folder on the disk that is measured")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by commas")
    parser.add_argument("--states", default="dense,many", help="of the speed, by commas")
    parser.add_argument("--contenders", default="", help="only these names, by semicolons")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--saves", type=int, default=3, help="in each process; the first is told apart"
    )
    parser.add_argument(
        "--kills", type=int, default=8, help="in the midst of a save, each contender"
    )
    parser.add_argument(
        "--drains", type=int, default=6, help="in each repeat, while a loader is at work"
    )
    parser.add_argument("--interval", type=float, default=12, help="seconds between these saves")
    parser.add_argument("--quick", action="store_true", help="does everything work? tiny states")
    parser.add_argument("--render", type=Path, help="only render this JSON file of results again")
    parser.add_argument("--results", type=Path, default=BENCH / "results")
    args = parser.parse_args()
    if args.render is None and args.directory is None:
        parser.error("--directory: which disk is to be measured?")
    args.parts = args.only.split(",")
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.damage_state = "tiny"
    args.shard_state = args.kill_state = "tiny" if args.quick else "small"
    args.drain_state = "small" if args.quick else "dense"
    args.reshardings = RESHARDINGS[:2] if args.quick else RESHARDINGS
    if args.quick:
        args.repeats, args.saves, args.kills, args.states = 1, 2, 1, "tiny,few"
        args.drains, args.interval = 2, 4
    return args


# ---------------------------------------------------------------- processes


def python_of(name: str) -> Path:
    """The interpreter that runs a contender: all that need but PyTorch and safetensors run in one."""
    return interpreter("checkpoint" if name in OWN_ENVIRONMENT else HEADRACE)


def command(verb: str, name: str, folder: Path, state: str, *more: str) -> list[str]:
    start = [str(python_of(name)), str(RUNNER), verb, name, "--folder", str(folder)]
    return [*start, "--state", state, *more]


def installed(names: list[str], directory: Path) -> tuple[list[str], list[str]]:
    """Who can be measured, and who is left out, with why."""
    ready, left_out = [], []
    for name in names:
        try:
            if not python_of(name).exists():
                raise RunError("not installed")
            run_program(command("speed", name, directory, "tiny", "--try"), TIMEOUT_S)
            ready.append(name)
        except RunError as error:
            left_out.append(f"{name} ({str(error)[-120:]})")
    return ready, left_out


def fresh(directory: Path) -> Path:
    """An empty folder on the disk that is measured."""
    folder = directory / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# ---------------------------------------------------------------- limits


def fio(path: Path, size: int, verb: str, block: int, depth: int) -> float:
    """GB/s of O_DIRECT writes of a new file, synced at the end, or of reads of it."""
    if verb == "write":
        path.unlink(missing_ok=True)
    more = ["--end_fsync=1"] if verb == "write" else []
    return campaigns.fio(path, size, verb, block, depth, *more)[verb]["bw_bytes"] / 1e9


def sweep(directory: Path, size: int) -> dict[str, list[dict]]:
    """Writes and reads of all block sizes and depths, the fastest first."""
    path = directory / "fio.tmp"
    found: dict[str, list[dict]] = {}
    for verb, depths in (("write", FIO_WRITE_DEPTHS), ("read", FIO_READ_DEPTHS)):
        rows = []
        for block in FIO_BLOCKS:
            for depth in depths:
                speed = fio(path, size, verb, block, depth)
                print(f"  fio {verb} {block // MIB} MiB x {depth}: {speed:.3f} GB/s", flush=True)
                rows.append({"block": block, "depth": depth, "gb_per_s": speed})
        found[verb] = sorted(rows, key=lambda row: -row["gb_per_s"])
    path.unlink()
    return found


def limit_runs(directory: Path, size: int, best: dict[str, list[dict]]) -> list[dict]:
    """The best two of the sweep, once more."""
    runs = []
    path = directory / "fio.tmp"
    for verb in ("write", "read"):
        for row in best.get(verb, [])[:2]:
            speed = fio(path, size, verb, row["block"], row["depth"])
            name = f"fio {verb}, {row['block'] // MIB} MiB x {row['depth']}"
            runs.append({"part": f"limit {verb}", "name": name, "result": {"gb_per_s": speed}})
    path.unlink(missing_ok=True)
    return runs


# ---------------------------------------------------------------- parts


def attempt(runs: list[dict], part: str, name: str, state: str, measure) -> None:
    """Run `measure()`, keep its result or its error, and print one line."""
    run = {"part": part, "name": name, "state": state}
    try:
        run["result"] = measure()
        line = report.one_line(part, run["result"])
    except (RunError, subprocess.SubprocessError, OSError) as error:
        run["error"] = str(error)
        line = f"FAILED: {error}"
    print(f"  {part:6} {state:6} {name:26} {line}", flush=True)
    runs.append(run)


def measure_speed(args: argparse.Namespace, names: list[str], runs: list[dict]) -> None:
    for state in args.states.split(","):
        kept = {name: args.directory / f"fixture-{i}" for i, name in enumerate(READS.values())}
        for name in names:
            more = ["--saves", str(args.saves)]
            if name in kept:
                more += ["--keep", str(kept[name])]
            if name in READS:
                if not kept[READS[name]].exists():
                    continue
                more += ["--fixture", str(kept[READS[name]])]
            folder = fresh(args.directory)
            line = command("speed", name, folder, state, *more)
            attempt(runs, "speed", name, state, lambda line=line: run_program(line, TIMEOUT_S))
        for folder in kept.values():
            shutil.rmtree(folder, ignore_errors=True)


def measure_faults(args: argparse.Namespace, names: list[str], runs: list[dict]) -> None:
    for name in (name for name in DAMAGED if name in names):
        line = command("faults", name, fresh(args.directory), args.damage_state)
        attempt(
            runs, "faults", name, args.damage_state, lambda line=line: run_program(line, TIMEOUT_S)
        )


def kill_one(args: argparse.Namespace, name: str, share: float) -> dict:
    """Save the old version whole, the new one to the same place, and kill that after a share of it."""
    folder, state = fresh(args.directory) / "saved", args.kill_state
    old = run_program(command("once", name, folder, state, "--version", "1"), TIMEOUT_S)
    process = subprocess.Popen(
        command("once", name, folder, state, "--version", "2"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    for line in process.stdout:
        if '"saving"' in line:
            break
    time.sleep(share * old["durable_s"])
    os.killpg(process.pid, signal.SIGKILL)
    finished = '"result"' in process.stdout.read()
    process.wait()
    found = run_program(command("which", name, folder, state), TIMEOUT_S)
    return {"share": share, "finished": finished, **found}


def measure_kills(args: argparse.Namespace, names: list[str], runs: list[dict]) -> None:
    shares = random.Random(1)
    for name in (name for name in KILLED if name in names):
        for turn in range(args.kills):
            share = (turn + shares.random()) / args.kills
            attempt(
                runs,
                "kill",
                name,
                args.kill_state,
                lambda name=name, share=share: kill_one(args, name, share),
            )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_ranks(verb: str, name: str, folder: Path, state: str, world: int) -> dict:
    """All ranks of one job; rank 0's result."""
    environment = {
        **os.environ,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    line = [str(python_of(name)), str(RANKS), verb, name, "--folder", str(folder), "--state", state]
    processes = [
        subprocess.Popen(
            line,
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        done = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    for process, (_, errors) in zip(processes, done, strict=True):
        if process.returncode != 0:
            raise RunError(f"a rank ended with code {process.returncode}: {errors.strip()[-300:]}")
    rows = [json.loads(row) for row in done[0][0].splitlines() if row.startswith('{"result"')]
    if not rows:
        raise RunError("rank 0 said nothing")
    return rows[-1]["result"]


def reshard(args: argparse.Namespace, name: str, saved: int, restored: int) -> dict:
    folder = fresh(args.directory) / "sharded"
    folder.mkdir()
    run_ranks("save", name, folder, args.shard_state, saved)
    return run_ranks("restore", name, folder, args.shard_state, restored)


def measure_ranks(args: argparse.Namespace, names: list[str], runs: list[dict]) -> None:
    for name in (name for name in SHARDED if name in names):
        for saved, restored in args.reshardings:
            attempt(
                runs,
                "ranks",
                name,
                f"{saved}to{restored}",
                lambda name=name, a=saved, b=restored: reshard(args, name, a, b),
            )


MANIFEST_LINE = re.compile(
    r"^(\w+) +(\d+) ranks x (\d+) boxes: assembled in ([\d.]+) CPU s, read in ([\d.]+) CPU s, "
    r"([\d.]+) bytes a box$"
)


def manifest_results(text: str) -> dict[str, dict]:
    """What bench/micro/checkpoint_bench.cc printed: how tensors are cut -> figures."""
    found = {}
    for line in text.splitlines():
        if match := MANIFEST_LINE.match(line):
            name, ranks, boxes, assemble, read, size = match.groups()
            found[name] = {
                "ranks": int(ranks),
                "boxes": int(boxes),
                "assemble_cpu_s": float(assemble),
                "read_cpu_s": float(read),
                "bytes_a_box": float(size),
            }
    return found


def run_manifests() -> dict[str, dict]:
    """Build the program where the product is built, and run it."""
    build = [str(REPOSITORY / "scripts" / "build.sh"), "dev", MANIFESTS]
    program = REPOSITORY / "build" / "src" / "headrace" / "checkpoint" / MANIFESTS
    for command in (build, [str(program)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise RunError(f"{command[0]}: {(done.stdout + done.stderr).strip()[-300:]}")
    found = manifest_results(done.stdout)
    if not found:
        raise RunError(f"{MANIFESTS} said nothing that is known: {done.stdout[-300:]}")
    return found


def measure_manifests(runs: list[dict]) -> None:
    try:
        found = run_manifests()
    except (RunError, subprocess.SubprocessError, OSError) as error:
        runs.append({"part": "manifests", "name": MANIFESTS, "state": "", "error": str(error)})
        print(f"  manifests FAILED: {error}", flush=True)
        return
    for name, result in found.items():
        attempt(runs, "manifests", name, "", lambda result=result: result)


def measure_drains(args: argparse.Namespace, runs: list[dict]) -> None:
    """Headrace alone: none of the others drains."""
    line = [str(interpreter(HEADRACE)), str(DRAIN), "--folder", str(fresh(args.directory))]
    line += ["--state", args.drain_state, "--drains", str(args.drains)]
    line += ["--interval", str(args.interval)]
    attempt(runs, "drain", "Headrace", args.drain_state, lambda: run_program(line, TIMEOUT_S))


# ---------------------------------------------------------------- run


def write(args: argparse.Namespace, campaign: dict) -> None:
    name = "checkpoint-quick" if args.quick else f"checkpoint-{campaign['date']}"
    campaigns.write_with_page(args.results, name, campaign, report.render(campaign))


def run_campaign(args: argparse.Namespace) -> int:
    args.directory.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in args.contenders.split(";") if name]
    names, left_out = installed(
        [n for n in CONTENDERS if not chosen or n in chosen], args.directory
    )
    size = 64 * MIB if args.quick else 2 * 1024 * MIB
    campaign = campaigns.begin(quick=args.quick, left_out=left_out, sweep={})
    print("bench: left out: " + (", ".join(left_out) or "nothing"), flush=True)
    has_fio = shutil.which("fio") is not None
    if "speed" in args.parts and has_fio:
        campaign["sweep"] = sweep(args.directory, size)
    elif not has_fio:
        print("bench: fio is not installed, so there is no limit of the disk", file=sys.stderr)
    for repeat in range(args.repeats):
        print(f"bench: repeat {repeat + 1} of {args.repeats}", flush=True)
        if "speed" in args.parts:
            campaign["runs"] += limit_runs(args.directory, size, campaign["sweep"])
            measure_speed(args, names, campaign["runs"])
        if repeat == 0 and "faults" in args.parts:
            measure_faults(args, names, campaign["runs"])
        if repeat == 0 and "kill" in args.parts:
            measure_kills(args, names, campaign["runs"])
        if "ranks" in args.parts:
            measure_ranks(args, names, campaign["runs"])
        if repeat == 0 and "manifests" in args.parts:
            measure_manifests(campaign["runs"])
        if "drain" in args.parts and "Headrace" in names:
            measure_drains(args, campaign["runs"])
        campaign["repeats"] = repeat + 1
        write(args, campaign)  # a campaign that is stopped keeps the repeats it has done
    shutil.rmtree(args.directory / "run", ignore_errors=True)
    return 1 if any("error" in run for run in campaign["runs"]) else 0


def main() -> int:
    args = arguments()
    if args.render:
        campaign = json.loads(args.render.read_text())
        args.render.with_suffix(".md").write_text(report.render(campaign))
        return 0
    return run_campaign(args)


if __name__ == "__main__":
    sys.exit(main())
