"""The codec alone (w6), seek points (w7) and the resize alone (w8): programs on files in memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from contenders import PEERS, REPOSITORY, interpreter, is_installed
from data import Corpus
from harness import RunError, run_program

sys.path.insert(0, str(PEERS))
from accounting import machine_busy_seconds

BUILD = Path(__file__).resolve().parent / "floor" / "build" / "product"
TARGET = "headrace_codec_bench"
TIMEOUT_S = 900

# Variant of the program -> contender in the table. The first is the unit of all others.
UNIT = "full"
CONTENDERS = {
    UNIT: "libjpeg-turbo, whole image",
    "region": "libjpeg-turbo, region and resize",
    "exact": "Headrace, exact",
    "fast": "Headrace, fast",
    "exact, no seek points": "Headrace, exact, no seek points",
    "fast, no seek points": "Headrace, fast, no seek points",
    "exact uint8": "Headrace, exact, uint8",
    "fast uint8": "Headrace, fast, uint8",
    "evaluation": "Headrace, evaluation, exact",
    "evaluation, fast": "Headrace, evaluation, fast",
    "evaluation, no seek points": "Headrace, evaluation, no seek points",
}
BUILDING = "build seek points"
# Reasons for which an image is not baseline JPEG at all.
NOT_BASELINE = ("not_jpeg", "progressive", "coding")

RESIZERS = {
    "Pillow, bilinear": "pillow",
    "OpenCV, area": "opencv-area",
    "OpenCV, bilinear without antialiasing": "opencv-linear",
}
RESIZED_IMAGES = 64


def build_program() -> Path:
    """Build Headrace's codec and the program that measures it, as the product is built."""
    commands = (
        ["cmake", "-S", str(REPOSITORY), "-B", str(BUILD), "-DHEADRACE_TESTS=OFF"],
        ["cmake", "--build", str(BUILD), "--target", TARGET, "-j", str(core_count())],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{TARGET} could not be built: {(done.stdout + done.stderr)[-800:]}")
    return BUILD / "bench" / TARGET


def core_count() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def thread_counts() -> list[int]:
    """One thread, and one for every core."""
    return sorted({1, core_count()})


def variant_name(corpus: str, threads: int) -> str:
    """What tells the rows of one contender apart."""
    return f"{corpus}, {threads} thread{'s' if threads > 1 else ''}"


class OtherWork:
    """How many cores other processes kept busy while a program of ours ran."""

    def __init__(self) -> None:
        self._busy, self._own = machine_busy_seconds(), _children_seconds()
        self._wall = time.monotonic()

    def cores(self) -> float:
        """Since the object was made; the program must have ended."""
        other = machine_busy_seconds() - self._busy - (_children_seconds() - self._own)
        return max(0.0, other / (time.monotonic() - self._wall))


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


Row = tuple[str, str, str, dict]  # work, contender, variant, result


def measure(program: Path, corpus: Corpus, threads: int, seconds: float) -> tuple[list[Row], list]:
    """Run all variants over a corpus. Returns the rows, and the contenders that this build lacks."""
    command = [str(program), "measure", str(corpus.file_list), str(seconds), str(threads)]
    watch = OtherWork()
    result = run_program(command, TIMEOUT_S)
    return rows_of(result, variant_name(corpus.name, threads), watch.cores())


def rows_of(result: dict, variant: str, other_cores: float) -> tuple[list[Row], list[str]]:
    """The rows of one run of the program, and the contenders that it says it lacks."""
    rows: list[Row] = []
    missing = []
    unit = result["variants"][UNIT]["per_cpu_s"]
    for name, contender in CONTENDERS.items():
        measured = result["variants"][name]
        if "missing" in measured:
            missing.append(f"{contender} ({measured['missing']})")
            continue
        taken = measured["from_seek_points"] / max(measured["samples"], 1)
        derived = {
            "of_unit": measured["per_cpu_s"] / unit,
            "from_seek_points_share": taken,
            "other_cores": other_cores,
        }
        rows.append(("w6", contender, variant, {**measured, **derived}))
    built = {**result["variants"][BUILDING], **seek_point_figures(result)}
    rows.append(("w7", "Headrace", variant, {**built, "other_cores": other_cores}))
    return rows, missing


def seek_point_figures(result: dict) -> dict:
    """Shares of a corpus, and how many images have no seek points for which reason."""
    refused = dict(result["refusals"])
    pointed = refused.pop("none", 0)
    baseline = result["files"] - sum(refused.get(reason, 0) for reason in NOT_BASELINE)
    return {
        "files": result["files"],
        "left_out": result["left_out"],
        "record_share": result["record_bytes"] / result["image_bytes"],
        "mean_kb": result["image_bytes"] / result["files"] / 1e3,
        "seekable_share": pointed / result["files"],
        "seekable_baseline_share": pointed / max(baseline, 1),
        **{f"refused_{reason}": count for reason, count in refused.items()},
    }


# ---------------------------------------------------------------- resize


def resize_pixels(corpus: Corpus) -> Path:
    """Decoded random crops for the resizers, made once."""
    target = corpus.root / "resize-pixels.bin"
    if not target.exists():
        command = [str(interpreter("images")), str(PEERS / "resize_runner.py"), "pixels"]
        command += [str(corpus.file_list), str(target), str(RESIZED_IMAGES)]
        run_program(command, TIMEOUT_S)
    return target


def resizers(program: Path, corpus: Corpus, seconds: float) -> dict[str, list[str]]:
    """Contender -> command of each resizer over the same pixels. Raises RunError."""
    if not is_installed("images"):
        raise RunError("the group images is not installed; see bench/peers/setup")
    pixels = str(resize_pixels(corpus))
    commands = {"Headrace": [str(program), "resize", pixels, str(seconds)]}
    runner = [str(interpreter("images")), str(PEERS / "resize_runner.py")]
    for contender, name in RESIZERS.items():
        commands[contender] = [*runner, name, pixels, str(seconds)]
    return commands
