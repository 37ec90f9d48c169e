#!/usr/bin/env python3
"""Counts what the always-on timing costs: its share of the instructions of the loader's threads.

    bench/timing_cost.py [--images 60] [--folder JPEGS] [--output FILE.json]

Runs `headrace bench` on one thread under callgrind, over the images of bench/instructions.py or a
folder of JPEGs, and adds up what is spent in reading the clock and in booking, whoever calls it.
Only the loader's worker is counted, from its start to its end. Two figures are set on top, since
callgrind does not see them: valgrind makes a system call of each reading of the clock, so the
instructions of the kernel's fast path are added, and what the compiler put into the callers is
added for each call. Both are rounded up: the figure is a bound.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from campaigns import commit_name
from contenders import BENCH, REPOSITORY
from data import Data, DataError
from instructions import fixed_set

PROGRAM = REPOSITORY / "python" / "headrace" / "bin" / "headrace"  # where the build puts it
TIMEOUT_S = 3600
WORKER = "headrace::loader::LoaderImpl::Run"
CLOCK = re.compile(r"steady_clock::now|clock_gettime")
BOOKING = re.compile(r"headrace::((Shared)?StageRecorder::|StageClock::|NowNanos)")
FAST_PATH = 60  # instructions of clock_gettime in the vDSO of x86-64, where it reads the counter
INLINED = 12  # around a call: the difference, the arguments, what is done with the answer
GOAL = 0.01


@dataclass
class Profile:
    """What a file of callgrind says: instructions of functions, and of calls between them."""

    total: int = 0
    calls: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    spent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


def read_profile(lines: Iterable[str]) -> Profile:
    """Read callgrind's format (valgrind's manual, "Callgrind Format Specification")."""
    names: dict[str, str] = {}
    profile = Profile()
    caller, callee, calls = "", "", 0

    def name_in(text: str) -> str:
        match = re.fullmatch(r"\((\d+)\)(?: (.*))?", text)
        if match is None:
            return text
        if match[2]:
            names[match[1]] = match[2]
        return names[match[1]]

    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("fn="):
            caller = name_in(line[3:])
        elif line.startswith("cfn="):
            callee = name_in(line[4:])
        elif line.startswith("calls="):
            calls = int(line[6:].split()[0])
        elif re.match(r"[0-9+*-]", line):
            cost = int(line.split()[1])
            if calls:
                profile.calls[caller, callee] += calls
                profile.spent[caller, callee] += cost
                calls = 0
            else:
                profile.total += cost
    return profile


def timing_share(profile: Profile) -> dict:
    """The timing's part: calls from outside into it, with all below them."""

    def is_timing(name: str) -> bool:
        return bool(CLOCK.search(name) or BOOKING.search(name))

    spent = clocks = bookings = 0
    for (caller, callee), calls in profile.calls.items():
        if is_timing(callee) and not is_timing(caller):
            spent += profile.spent[caller, callee]
            bookings += calls
        if "steady_clock::now" in callee:
            clocks += calls
    unseen = clocks * FAST_PATH + bookings * INLINED
    whole = profile.total + clocks * FAST_PATH
    if not clocks or not whole:
        raise RuntimeError("callgrind saw no reading of the clock: was the worker counted?")
    return {
        "instructions": whole,
        "clock_readings": clocks,
        "timing_instructions": spent + unseen,
        "share": (spent + unseen) / whole,
    }


def count(program: Path, dataset: Path, mode: str, folder: Path) -> dict:
    """Run one pass under callgrind."""
    out = folder / f"callgrind.{mode}"
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=yes"]
    command += [f"--toggle-collect={WORKER}*", f"--callgrind-out-file={out}"]
    command += [str(program), "bench", str(dataset), "--threads", "1", "--passes", "1"]
    done = subprocess.run(
        [*command, "--mode", mode, "--quiet"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"callgrind ended with code {done.returncode}: {done.stderr[-800:]}")
    with out.open() as lines:
        return timing_share(read_profile(lines))


def packed(args: argparse.Namespace, program: Path, folder: Path) -> tuple[Path, str]:
    """A data set of the fixed images, and what names it."""
    if args.folder:
        source, name = args.folder, str(args.folder)
    else:
        data = Data(args.data)
        data.prepare_images("web")
        source, name = fixed_set(data.corpora["web"], args.images, folder)
    target = folder / "packed"
    subprocess.run([str(program), "pack", str(source), str(target), "--quiet"], check=True)
    return target, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=BENCH / ".data")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="of JPEGs, instead of the usual ones")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as name:
            dataset, images = packed(args, args.program, Path(name))
            modes = {
                mode: count(args.program, dataset, mode, Path(name)) for mode in ("train", "raw")
            }
    except (DataError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"timing_cost: {error}", file=sys.stderr)
        return 1
    for mode, figures in modes.items():
        print(
            f"{mode:6} {figures['share']:7.3%} of {figures['instructions']:,} instructions, "
            f"{figures['clock_readings']:,} readings of the clock"
        )
    if args.output:
        report = {"commit": commit_name(), "set": images, "modes": modes}
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if modes["train"]["share"] < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
