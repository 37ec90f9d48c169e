"""W12: how short a training step may be before its data come too late, measured through DLIO.

DLIO emulates the training of known workloads: it takes batches from a loader and sleeps for the time
that the computing would take. The loader is DLIO's own reader, or Headrace through DLIO's own hook for
others. What is searched for is the shortest compute time of a step at which the accelerator
utilization (AU: compute time over total time) still holds. The shapes of samples and batches are
those of known workloads, scaled down to a small machine. These are no results of any published
benchmark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from contenders import HEADRACE, OURS, PEERS, interpreter, is_installed
from data import Data
from harness import RunError, run_program

GROUP = "dlio"
RUNNER = "dlio_runner.py"
TIMEOUT_S = 1800
INDEX_FOLDER = "headrace"  # below a workload's folder; the plug-in opens it
DEVICE = "the device, read past the page cache"
CONTENDERS = {"DLIO's own reader": "own", OURS: "headrace"}


@dataclass(frozen=True)
class Workload:
    """The shape of a workload, with fewer files.

    A batch of the 3D U-Net has 7 samples in the original, 2 here: of 56 files there would be 8 steps,
    and what was read ahead during the first one, which AU leaves out, would be half of them.
    """

    name: str
    framework: str
    format: str
    files: int
    samples_per_file: int
    record_bytes: float
    record_bytes_stdev: float
    resized_bytes: int
    batch: int
    threads: int
    shuffle: int  # samples of the shuffle buffer of DLIO's own reader for TFRecord
    au: float  # that must hold


_tfrecord = partial(Workload, framework="tensorflow", format="tfrecord")

WORKLOADS = (
    Workload(
        name="3D U-Net: npz of 140 MB, 2 a batch",
        framework="pytorch",
        format="npz",
        files=56,
        samples_per_file=1,
        record_bytes=146_600_628,
        record_bytes_stdev=68_341_808,
        resized_bytes=2_097_152,
        batch=2,
        threads=4,
        shuffle=1024,
        au=0.9,
    ),
    _tfrecord(
        name="ResNet-50: TFRecord of 115 kB, 400 a batch",
        files=16,
        samples_per_file=1251,
        record_bytes=114_660.07,
        record_bytes_stdev=0,
        resized_bytes=150_528,
        batch=400,
        threads=8,
        shuffle=1024,
        au=0.9,
    ),
    _tfrecord(
        name="CosmoFlow: TFRecord of 2.8 MB, 1 a batch",
        files=1000,
        samples_per_file=1,
        record_bytes=2_828_486,
        record_bytes_stdev=71_311,
        resized_bytes=2_828_486,
        batch=1,
        threads=4,
        shuffle=2,
        au=0.7,
    ),
)


def quick(workload: Workload) -> Workload:
    """Small enough for a look whether everything works."""
    shape = asdict(workload)
    shape["files"] = {56: 28, 16: 4, 1000: 100}[workload.files]
    if workload.format == "npz":
        shape["record_bytes"] /= 16
        shape["record_bytes_stdev"] /= 16
    return Workload(**shape)


def workloads(is_quick: bool) -> list[Workload]:
    """What is measured."""
    return [quick(workload) if is_quick else workload for workload in WORKLOADS]


class Place:
    """A workload's data below the benchmark's folder."""

    def __init__(self, workload: Workload, data: Data) -> None:
        self.workload = workload
        kind = workload.name.partition(":")[0].lower().replace(" ", "-")
        size = f"{workload.files}x{int(workload.record_bytes)}"
        self.folder = data.root / "dlio" / f"{kind}-{size}"

    @property
    def train(self) -> Path:
        """Where DLIO puts the files that are trained on."""
        return self.folder / "train"

    def prepare(self) -> None:
        """Let DLIO make the files, and Headrace an index of them. Raises RunError."""
        note = self.folder / "made.json"
        if note.exists():
            return
        print(f"bench: making {self.folder.name}", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        run_program(self.command("generate", "own"), TIMEOUT_S, environment=environment())
        program = interpreter(HEADRACE).parent / "headrace"
        command = [program, "index", "--checksums", "--output", self.folder / INDEX_FOLDER]
        done = subprocess.run([*map(str, command), str(self.train)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RunError(f"headrace index failed: {done.stderr[-500:]}")
        sizes = [path.stat().st_size for path in self.train.iterdir()]
        note.write_text(json.dumps({"files": len(sizes), "bytes": sum(sizes)}) + "\n")

    def step_bytes(self) -> float:
        """Mean bytes of a batch."""
        made = json.loads((self.folder / "made.json").read_text())
        samples = self.workload.files * self.workload.samples_per_file
        return float(made["bytes"] / samples * self.workload.batch)

    def command(self, verb: str, reader: str) -> list[str]:
        """The command line of DLIO's runner."""
        shape = json.dumps(asdict(self.workload))
        python = str(interpreter(GROUP))
        return [python, str(PEERS / RUNNER), verb, shape, str(self.folder), reader]


def environment() -> dict[str, str]:
    """This process's variables, and where the package headrace lies."""
    question = "import headrace, os; print(os.path.dirname(os.path.dirname(headrace.__file__)))"
    done = subprocess.run(
        [str(interpreter(HEADRACE)), "-c", question], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RunError(f"Headrace cannot be imported: {done.stderr[-500:]}")
    return {**os.environ, "PYTHONPATH": done.stdout.strip()}


def ready(data: Data, is_quick: bool) -> tuple[list[Place], list[str]]:
    """The workloads whose data could be made, and what is left out, with why."""
    if not is_installed(GROUP):
        return [], ["DLIO (not installed)"]
    places, left_out = [], []
    for workload in workloads(is_quick):
        place = Place(workload, data)
        try:
            place.prepare()
            places.append(place)
        except (RunError, OSError) as error:
            left_out.append(f"{workload.name} (its data could not be made: {error})")
    return places, left_out


def find_step(place: Place, reader: str, device: dict) -> dict:
    """The shortest step of a reader, and how near it comes to what the device allows."""
    result = run_program(place.command("search", reader), TIMEOUT_S, environment=environment())
    per_step = place.step_bytes()
    result["step_ms"] = result["step_s"] * 1e3
    result["mb_per_s"] = per_step * result["au"] / result["step_s"] / 1e6
    if "gb_per_s" in device:
        allowed_s = place.workload.au * per_step / (device["gb_per_s"] * 1e9)
        result["of_device"] = allowed_s / result["step_s"]
    return result


def read_device(place: Place, floor: Path, seconds: float) -> dict:
    """How fast the files of a workload can be read past the page cache."""
    command = [str(floor), "read", str(place.train), str(max(0.3, seconds / 3))]
    result = run_program(command, TIMEOUT_S)
    step_s = place.workload.au * place.step_bytes() / (result["gb_per_s"] * 1e9)
    return {**result, "step_ms": step_s * 1e3, "mb_per_s": result["gb_per_s"] * 1e3}


Record = Callable[[list, str, str, str, Callable[[], dict]], None]


def measure(
    runs: list[dict], record: Record, places: list[Place], floor: Path, seconds: float
) -> None:
    """Run all workloads once, the readers one after the other, the device before them."""
    for place in places:
        variant = place.workload.name
        record(runs, "w12", DEVICE, variant, partial(read_device, place, floor, seconds))
        device = runs[-1].get("result", {})
        for contender, reader in CONTENDERS.items():
            search = partial(find_step, place, reader, device)
            record(runs, "w12", contender, variant, search)
