#!/usr/bin/env python3
"""Counts the instructions that the codec needs for an image, under callgrind.

    bench/instructions.py [--images 60] [--output FILE.json] [--compare FILE.json]

Times vary from run to run, counts hardly do: this is the figure to compare between commits. The
images are every so-manieth of the usual corpus; the JSON names the set by its checksum, and only
counts of one set can be compared. The processor that valgrind shows has AVX2 and no AVX-512.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import codec
from campaigns import commit_name
from contenders import BENCH
from data import Corpus, Data, DataError

TIMEOUT_S = 1800
COUNTED = "headrace_codec_counted"
VARIANTS = (
    codec.UNIT,
    "region",
    "exact",
    "fast",
    "exact, no seek points",
    "evaluation",
    codec.BUILDING,
)
NAMES = {**codec.CONTENDERS, codec.BUILDING: "Headrace, building seek points"}


def fixed_set(corpus: Corpus, count: int, folder: Path) -> tuple[Path, str]:
    """A list of `count` images of the corpus, and the checksum of their bytes."""
    names = corpus.file_list.read_text().splitlines()
    names = names[:: max(1, len(names) // count)][:count]
    digest = hashlib.sha256()
    for name in names:
        digest.update(Path(name).read_bytes())
    listing = folder / "files.txt"
    listing.write_text("".join(name + "\n" for name in names))
    return listing, digest.hexdigest()[:16]


def count_instructions(program: Path, variant: str, listing: Path, folder: Path) -> float | None:
    """Instructions for an image; None if this build has no such variant."""
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no"]
    command += [f"--toggle-collect={COUNTED}", f"--callgrind-out-file={folder / 'callgrind.out'}"]
    command += [str(program), "count", variant, str(listing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"callgrind ended with code {done.returncode}: {done.stderr[-800:]}")
    result = json.loads(done.stdout)["result"]
    if "missing" in result:
        return None
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if not collected or int(collected[1]) == 0:
        raise RuntimeError(f"callgrind counted nothing inside {COUNTED}: {done.stderr[-800:]}")
    return int(collected[1]) / result["samples"]


def table(report: dict, before: dict | None) -> str:
    """The counts, against the unit and against those of an earlier report."""
    unit = report["instructions"].get(codec.UNIT)
    lines = [
        f"{'instructions for an image':40} {'':>12} {'unit /':>8}" + (" before" if before else "")
    ]
    for variant, count in report["instructions"].items():
        if count is None:
            lines.append(f"{NAMES[variant]:40} {'not in this build':>12}")
            continue
        line = f"{NAMES[variant]:40} {count:12,.0f} {unit / count if unit else 0:8.2f}"
        earlier = before and before["instructions"].get(variant)
        lines.append(line + (f" {count / earlier - 1:+7.2%}" if earlier else ""))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=BENCH / ".data")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--program", type=Path, help="use this one instead of building it")
    parser.add_argument("--variants", default=";".join(VARIANTS), help="by semicolons")
    parser.add_argument("--output", type=Path, help="write the counts to this JSON file")
    parser.add_argument("--compare", type=Path, help="compare with the counts of this JSON file")
    args = parser.parse_args()
    before = json.loads(args.compare.read_text()) if args.compare else None
    data = Data(args.data)
    try:
        data.prepare_images("web")
        program = args.program or codec.build_program()
        with tempfile.TemporaryDirectory() as name:
            listing, checksum = fixed_set(data.corpora["web"], args.images, Path(name))
            if before and before["set"] != checksum:
                parser.error(
                    f"{args.compare} counted other images: {before['set']}, not {checksum}"
                )
            counts = {
                variant: count_instructions(program, variant, listing, Path(name))
                for variant in args.variants.split(";")
            }
    except (DataError, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 1
    report = {"commit": commit_name(), "set": checksum, "instructions": counts}
    print(table(report, before))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
