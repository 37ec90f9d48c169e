"""Runs DLIO over one workload, with its own reader or with Headrace, and finds the shortest step.

    dlio_runner.py generate|search WORKLOAD FOLDER own|headrace

WORKLOAD is the JSON of bench/dlio.py. AU is what DLIO reports: compute time over total time, the first
step left out. Each trial is one epoch of DLIO's training loop, after the kernel was told to forget the
files. The shortest step is searched for by halving the distance between one that holds the AU and one
that does not.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path

from protocol import emit

PLUGINS = Path(__file__).resolve().parent / "dlio"
CLASS = "headrace_loader.HeadraceLoader"
NEARLY_NO_TIME = 1e-4  # seconds that a training takes which only waits for data
PRECISION = 1.04  # of the step found, as a factor
MOST_TRIALS = 12


def configuration(workload: dict, folder: Path, output: str, generate: bool, own: bool) -> dict:
    """The workload as DLIO wants it. Names of options of its release and of later ones."""
    dataset = {
        "data_folder": str(folder),
        "format": workload["format"],
        "num_files_train": workload["files"],
        "num_samples_per_file": workload["samples_per_file"],
    }
    for name, value in (
        ("record_length", workload["record_bytes"]),
        ("record_length_stdev", workload["record_bytes_stdev"]),
        ("record_length_resize", workload["resized_bytes"]),
    ):
        dataset[name] = value
        dataset[name.replace("length", "length_bytes")] = value
    framework = workload["framework"]
    reader = {
        "data_loader": framework,
        "batch_size": workload["batch"],
        "read_threads": workload["threads"],
        "computation_threads": workload["threads"],
        "file_shuffle": "seed",
        "sample_shuffle": "seed",
        "shuffle_size": workload["shuffle"],
    }
    if not own:
        reader |= {"data_loader_classname": CLASS, "data_loader_sampler": "iterative"}
    return {
        "framework": framework,
        "workflow": {"generate_data": generate, "train": not generate, "checkpoint": False},
        "dataset": dataset,
        "reader": reader,
        "train": {"epochs": 1, "computation_time": NEARLY_NO_TIME},
        "checkpoint": {"checkpoint_folder": f"{output}/checkpoints"},
        "output": {"folder": output},
        "metric": {"au": workload["au"]},
    }


def forget_files(folder: Path) -> None:
    """Tell the kernel that these files will not be read again."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


class Trials:
    """DLIO's training loop, run again and again with other compute times."""

    def __init__(self, benchmark, folder: Path) -> None:
        self._benchmark = benchmark
        self._folder = folder
        self.tried: list[dict] = []

    def au(self, step_s: float) -> float:
        """The AU of one epoch whose steps compute for `step_s`."""
        from dlio_benchmark.utils.statscounter import StatsCounter

        forget_files(self._folder)
        benchmark = self._benchmark
        benchmark.computation_time = benchmark.args.computation_time = step_s
        benchmark.stats = StatsCounter()
        benchmark.run()
        (percent,) = benchmark.stats.summary["metric"]["train_au_percentage"]
        self.tried.append({"step_s": step_s, "au": percent / 100})
        return float(percent) / 100


def shortest_step(trials: Trials, goal: float) -> tuple[float, float]:
    """The shortest compute time that held the AU, and that AU."""
    waiting = trials.au(NEARLY_NO_TIME)
    period = NEARLY_NO_TIME / max(waiting, 1e-9)  # seconds a step takes when nothing is computed
    step = goal * period  # it would hold if reading and computing overlapped perfectly
    too_short = 0.0
    held: tuple[float, float] | None = None
    while len(trials.tried) < MOST_TRIALS:
        au = trials.au(step)
        if au >= goal:
            held = (step, au)
        else:
            too_short = step
        if held is None:
            waited = (
                step / max(au, 1e-6) - step
            )  # per step; if it stays so, this one is long enough:
            step = min(max(waited * goal / (1 - goal), 1.1 * step), 4 * step)
        elif too_short == 0:
            step *= 0.8
        elif held[0] / too_short <= PRECISION:
            break
        else:
            step = math.sqrt(held[0] * too_short)
    if held is None:
        raise RuntimeError(f"no step up to {step:.3f} s held an AU of {goal:.0%}: {trials.tried}")
    return held


def main() -> None:
    verb, text, name, reader = sys.argv[1:]
    workload, folder = json.loads(text), Path(name)
    sys.path.insert(0, str(PLUGINS))
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from dlio_benchmark.main import DLIOBenchmark
    from dlio_benchmark.utils.utility import DLIOMPI
    from omegaconf import OmegaConf

    with tempfile.TemporaryDirectory() as output:
        settings = configuration(workload, folder, output, verb == "generate", reader == "own")
        DLIOMPI.get_instance().initialize()
        benchmark = DLIOBenchmark(OmegaConf.create(settings))
        benchmark.initialize()
        if verb == "generate":
            emit({"result": {"files": workload["files"]}})
        else:
            trials = Trials(benchmark, folder)
            step_s, au = shortest_step(trials, workload["au"])
            emit({"result": {"step_s": step_s, "au": au, "trials": trials.tried}})
    sys.stdout.flush()
    os._exit(0)  # workers of the readers may not end by themselves


if __name__ == "__main__":
    main()
