"""Who is measured, in which work, with which program.

A plan is a list of `Job`s. The harness runs the whole list once, then again: repeats are interleaved,
so that a slow minute of the machine meets all contenders alike.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
REPOSITORY = BENCH.parent
PEERS = BENCH / "peers"
VENVS = PEERS / ".venvs"

HEADRACE = "headrace"
OURS = "Headrace"  # the contender with default settings

WORKS = {
    "w1": "Train pipeline: decode, random crop to 224, flip, normalize, collate",
    "w2": "Raw samples, shuffled",
    "w3": "Open a dataset of small samples",
    "w4": "Pack a folder of files",
    "w5": "Cost per sample by the size of the dataset",
    "w6": "JPEG codec alone, files in memory",
    "w7": "Seek points: building them, and the images that have them",
    "w8": "Resize alone, to 224 x 224 uint8",
    "w9": "Read a bucket, nothing kept: client CPU, throughput, memory",
    "w10": "A slow origin, and a cache for half of the dataset",
    "w11": "Bytes that nodes read from the origin",
    "w12": "The shortest training step that storage keeps up with",
}
LOADER_CORPORA = ("web", "dense", "large")  # of the train pipeline, w1
CODEC_CORPORA = (*LOADER_CORPORA, "foreign")


def interpreter(group: str) -> Path:
    """The Python of a group; "any" is the one that runs the harness.

    HEADRACE_BENCH_PYTHON names another one for Headrace, for instance where a wheel is installed.
    """
    if group == "any":
        return Path(sys.executable)
    if group == HEADRACE and "HEADRACE_BENCH_PYTHON" in os.environ:
        return Path(os.environ["HEADRACE_BENCH_PYTHON"])
    venv = REPOSITORY / ".venv" if group == HEADRACE else VENVS / group
    return venv / "bin" / "python"


def is_installed(group: str) -> bool:
    """Whether the set-up of a group was completed."""
    if group in ("any", HEADRACE):
        return interpreter(group).exists()
    return (VENVS / group / "installed").exists()


@dataclass(frozen=True)
class Job:
    """One process to run: a contender at a work, with its settings."""

    work: str  # w1 ... w5 and w9 ... w11; the others have no jobs
    contender: str  # the name in the tables
    group: str  # which environment runs it; "headrace" is the repository's own
    program: str  # below bench/peers
    verb: str  # what the program is told to do
    packed: str  # the folder of packed data, below packed/ or small/
    workers: int = 2
    dtype: str = "float32"
    count: int = 0  # samples of the small dataset
    sample_bytes: int = 100  # of the small dataset
    corpus: str = "web"

    @property
    def variant(self) -> str:
        """What tells the rows of one contender apart within a table."""
        if self.count:
            return f"{self.count:,} samples"
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        if self.work != "w1":
            return workers
        corpus = "" if self.corpus == "web" else f"{self.corpus}: "
        return f"{corpus}{self.dtype}, {workers}"

    @property
    def python(self) -> Path:
        """The interpreter that runs this job."""
        return interpreter(self.group)

    def is_installed(self) -> bool:
        """Whether the group's set-up was completed."""
        return is_installed(self.group)


@dataclass(frozen=True)
class Packing:
    """How the packed data of a contender comes to be: a job of the pack work, done once."""

    group: str
    program: str
    contender: str


# Folder below packed/ -> who makes it.
PACKED_IMAGES = {
    "headrace": Packing(HEADRACE, "headrace_runner.py", "headrace"),
    "headrace-plain": Packing(HEADRACE, "headrace_runner.py", "headrace-plain"),
    "webdataset": Packing("torch", "webdataset_runner.py", "webdataset"),
    "litdata": Packing("torch", "litdata_runner.py", "litdata"),
    "litdata-bytes": Packing("torch", "litdata_runner.py", "litdata-bytes"),
    "mds": Packing("torch", "mds_runner.py", "mds"),
    "tfrecord": Packing("tf", "tfdata_runner.py", "tfrecord"),
    "ffcv": Packing("ffcv", "ffcv_runner.py", "ffcv"),
    "grain": Packing("torch", "grain_runner.py", "grain"),
}

# Folder below small/COUNT/, or small/COUNTxBYTES/, -> who makes it. Headrace packs, or indexes, the
# tar shards.
PACKED_SMALL = {
    "tar": Packing("any", "plain_runner.py", "tar"),
    "files": Packing("any", "plain_runner.py", "files"),
    "headrace": Packing(HEADRACE, "headrace_runner.py", "headrace"),
    "headrace-index": Packing(HEADRACE, "headrace_runner.py", "headrace-index"),
    "headrace-beside": Packing(HEADRACE, "headrace_runner.py", "headrace-beside"),
    "litdata": Packing("torch", "litdata_runner.py", "litdata"),
    "mds": Packing("torch", "mds_runner.py", "mds"),
    "grain": Packing("torch", "grain_runner.py", "grain"),
    "tfrecord": Packing("tf", "tfdata_runner.py", "tfrecord"),
}

# name, group, program, packed data
_TRAINERS = (
    ("Headrace", HEADRACE, "headrace_runner.py", "headrace"),
    ("Headrace, fast", HEADRACE, "headrace_runner.py", "headrace"),
    ("Headrace, no seek points", HEADRACE, "headrace_runner.py", "headrace-plain"),
    ("FFCV", "ffcv", "ffcv_runner.py", "ffcv"),
    ("tf.data", "tf", "tfdata_runner.py", "tfrecord"),
    ("DALI on the CPU", "dali", "dali_runner.py", "webdataset"),
    ("LitData", "torch", "litdata_runner.py", "litdata"),
    ("DataLoader + torchvision", "torch", "dataloader_runner.py", ""),
    ("MDS + torchvision", "torch", "mds_runner.py", "mds"),
    ("WebDataset + torchvision", "torch", "webdataset_runner.py", "webdataset"),
    ("SPDL", "spdl", "spdl_runner.py", ""),
    ("DataLoader + Pillow", "torch", "dataloader_runner.py", ""),
    ("Grain + Pillow", "torch", "grain_runner.py", "grain"),
)

_PROGRAM_NAMES = {
    "DataLoader + torchvision": "dataloader-torchvision",
    "DataLoader + Pillow": "dataloader-pillow",
    "DataLoader, plain files": "dataloader-files",
    "LitData, bytes": "litdata-bytes",
    "Headrace, fast": "headrace-fast",
    "Headrace, no cache": "headrace-direct",
    "Headrace, memory alone": "headrace-memory",
}


def program_name(contender: str, packed: str) -> str:
    """What a runner calls the contender."""
    return _PROGRAM_NAMES.get(contender, packed)


def train_jobs(verb: str = "train", corpus: str = "web") -> list[Job]:
    """W1, or its honesty check, in both data types. Headrace also runs on one thread."""
    jobs = []
    for dtype in ("float32", "uint8"):
        for name, group, program, packed in _TRAINERS:
            jobs.append(Job("w1", name, group, program, verb, packed, 2, dtype, corpus=corpus))
        if verb == "train":
            ours = _TRAINERS[0]
            jobs.append(Job("w1", *ours[:3], verb, "headrace", 1, dtype, corpus=corpus))
    return jobs


def raw_jobs() -> list[Job]:
    """W2, each peer with the number of workers that gives it most samples per CPU-second."""
    return [
        Job("w2", "Headrace", HEADRACE, "headrace_runner.py", "raw", "headrace", 2),
        Job("w2", "Headrace", HEADRACE, "headrace_runner.py", "raw", "headrace", 1),
        Job("w2", "DataLoader, plain files", "torch", "dataloader_runner.py", "raw", "", 0),
        Job("w2", "LitData", "torch", "litdata_runner.py", "raw", "litdata-bytes", 0),
        Job("w2", "tf.data TFRecord", "tf", "tfdata_runner.py", "raw", "tfrecord", 2),
        Job("w2", "MDS", "torch", "mds_runner.py", "raw", "mds", 0),
        Job("w2", "WebDataset", "torch", "webdataset_runner.py", "raw", "webdataset", 0),
    ]


def open_jobs(counts: list[int]) -> list[Job]:
    """W3. Only Headrace opens more than the first count; plain files stop there too."""
    peers = (
        ("import numpy (no loader)", HEADRACE, "opening/open_numpy.py", "tar"),
        ("Headrace, first batch", HEADRACE, "opening/open_headrace.py", "headrace"),
        ("Headrace, one sample", HEADRACE, "opening/open_headrace_sample.py", "headrace"),
        ("Grain", "torch", "opening/open_grain.py", "grain"),
        ("WebDataset", "torch", "opening/open_webdataset.py", "tar"),
        ("LitData", "torch", "opening/open_litdata.py", "litdata"),
        ("MDS", "torch", "opening/open_mds.py", "mds"),
        ("tf.data TFRecord", "tf", "opening/open_tfrecord.py", "tfrecord"),
        ("plain files, names known", HEADRACE, "opening/open_files.py", "files"),
    )
    jobs = []
    for count in counts:
        for name, group, program, packed in peers:
            if count == counts[0]:
                jobs.append(Job("w3", name, group, program, "open", packed, count=count))
            elif name.startswith("Headrace"):
                jobs.append(Job("w3", name, group, program, "open", "headrace-index", count=count))
    return jobs


def pack_jobs() -> list[Job]:
    """W4. The joined files and GNU tar are limits, not contenders; both use one process.

    Nobody waits for the disk but "Headrace, durable", to be compared with the disk's limit.
    """
    jobs = [
        Job("w4", "cat (files joined)", "any", "plain_runner.py", "pack", "cat", 1),
        Job("w4", "GNU tar", "any", "plain_runner.py", "pack", "tar", 1),
    ]
    for workers in (1, 2):
        jobs += [
            Job(
                "w4",
                "Headrace, durable",
                HEADRACE,
                "headrace_runner.py",
                "pack",
                "headrace-durable",
                workers,
            ),
            Job(
                "w4", "Headrace", HEADRACE, "headrace_runner.py", "pack", "headrace-plain", workers
            ),
            Job(
                "w4",
                "Headrace, with seek points",
                HEADRACE,
                "headrace_runner.py",
                "pack",
                "headrace",
                workers,
            ),
            Job("w4", "WebDataset", "torch", "webdataset_runner.py", "pack", "webdataset", workers),
            Job("w4", "MDS", "torch", "mds_runner.py", "pack", "mds", workers),
            Job("w4", "LitData", "torch", "litdata_runner.py", "pack", "litdata", workers),
            Job("w4", "FFCV", "ffcv", "ffcv_runner.py", "pack", "ffcv", workers),
        ]
    return jobs


def scale_jobs(counts: list[int]) -> list[Job]:
    """W5: Headrace alone, raw small samples through one thread."""
    return [
        Job("w5", "Headrace", HEADRACE, "headrace_runner.py", "raw", "headrace-index", 1, count=n)
        for n in counts
    ]
