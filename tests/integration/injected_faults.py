"""Real faults of a small training job, each with its cure: for the doctor's tests and benchmark.

The faults are so strong that every machine shows them: a loop that computes next to nothing, reads
that sleep, threads that share one processor, saves at every step. Nothing here measures a time. Where
threads are not the fault there is one, so that a machine with other work to do has not too many.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "servers"))
import answering

import web

DEADLINE_S = 300
PROGRAM = [sys.executable, "-m", "headrace"]

# Runs until there are enough windows and enough batches, however long that takes.
JOB = """
import json, os, sys, time
job = json.loads(sys.argv[1])
if job["processors"]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["processors"]])
import headrace
from headrace import run_record
from headrace import transforms as T
from headrace.checkpoint import Checkpointer

made = {"decode": {"jpg": T.imagenet_train(224)}, "raw": {}}
# Each sample is asked for: what was read once and stays in memory would hide a bad server.
options = {"cache_memory_bytes": "0"}
loader = headrace.open(job["dataset"], storage_options=options).loader(
    batch_size=job["batch_size"], threads=job["threads"], seed=1, fields=job["fields"],
    rank=job["rank"], world_size=job["world_size"], transforms=made[job["work"]])
saver = Checkpointer(job["store"], rank=0, world_size=1) if job["save_bytes"] else None
run_record.start(job["record"], interval=0.1)
begun, batches, enough = time.monotonic(), 0, False
while not enough:
    for batch in loader:
        time.sleep(job["compute_s"])
        batches += 1
        if saver is not None:
            state = {"weights": batches.to_bytes(8, "little") * (job["save_bytes"] // 8)}
            saver.save(batches, state, wait=job["wait"])
        enough = batches >= job["batches"] and time.monotonic() - begun > job["seconds"]
        if enough:
            break
run_record.stop()
if saver is not None:
    saver.close()
loader.close()
"""


@dataclass(frozen=True)
class Job:
    """One rank of a training job."""

    dataset: str
    fields: tuple[str, ...] = ("txt",)
    work: str = "raw"  # or decode
    batch_size: int = 4
    threads: int = 1
    processors: int = 0  # that it may use; 0: all
    compute_s: float = 0.0  # of a step
    save_bytes: int = 0  # at each step; 0: no saves
    wait: str = "local"  # level that a save waits for
    rank: int = 0
    world_size: int = 1
    batches: int = 20
    seconds: float = 1.5


@dataclass(frozen=True)
class Fault:
    """Jobs with a fault in them, the check that must find it, and the same jobs without it."""

    check: str
    jobs: tuple[Job, ...]
    cured: tuple[Job, ...]
    doctor: tuple[str, ...] = ()  # more arguments


@dataclass(frozen=True)
class Removal:
    """A job, a part of it as `headrace doctor --without` names it, and the job without the part."""

    part: str
    job: Job
    without: Job


class UnwellServer(web.RangeServer):
    """Serves shards late, or refuses every second read of them."""

    def __init__(self, root: Path, late_s: float = 0, refuses: bool = False) -> None:
        super().__init__(root)
        self.RequestHandlerClass = UnwellHandler
        self.late_s, self.refuses = late_s, refuses
        self.reads = 0


class UnwellHandler(web.RangeHandler):
    server: UnwellServer

    def give(self, failing: bool) -> None:
        server = self.server
        if self.command == "GET" and self.path.endswith(".tar"):
            time.sleep(server.late_s)
            with server.lock:
                server.reads += 1
                failing = failing or (server.refuses and server.reads % 2 == 0)
        super().give(failing)


@dataclass(frozen=True)
class Place:
    """Data and servers that the faults need."""

    folder: Path  # small files
    packed: Path
    photos: Path
    throttled: str  # URLs of `packed`
    slow: str


def _pack(source: Path, target: Path, shard_samples: int) -> None:
    command = [*PROGRAM, "pack", str(source), str(target), "--quiet"]
    subprocess.run([*command, "--shard-samples", str(shard_samples)], check=True)


def _make_data(root: Path) -> None:
    from PIL import Image

    (root / "folder").mkdir()
    for i in range(400):
        (root / "folder" / f"{i:04}.txt").write_bytes(b"x" * (200 + i))
    _pack(root / "folder", root / "packed", 50)
    # Large, so that decoding is what takes the time; all the same, since none is to be special.
    photo = Image.effect_noise((1600, 1200), 60).convert("RGB")
    out = io.BytesIO()
    photo.save(out, "JPEG", quality=90)
    (root / "pictures").mkdir()
    for i in range(24):
        (root / "pictures" / f"{i:02}.jpg").write_bytes(out.getvalue())
    _pack(root / "pictures", root / "photos", 8)


@contextlib.contextmanager
def prepared(root: Path) -> Iterator[Place]:
    """Make the data in a folder, and serve them until the end of the block."""
    _make_data(root)
    with (
        answering.running(UnwellServer(root, refuses=True)) as throttled,
        answering.running(UnwellServer(root, late_s=0.02)) as slow,
    ):
        yield Place(
            folder=root / "folder",
            packed=root / "packed",
            photos=root / "photos",
            throttled=f"{throttled.url}/packed",
            slow=f"{slow.url}/packed",
        )


def all_faults(place: Place) -> list[Fault]:
    """Return the faults, each with its jobs."""
    text = Job(str(place.packed))
    refused = replace(text, dataset=place.throttled)
    decode = Job(str(place.photos), fields=("jpg",), work="decode", batch_size=2, batches=10)
    crowded = replace(decode, threads=8, processors=1)
    saving = replace(text, compute_s=0.001, save_bytes=1 << 20)
    # Large batches, so that taking them costs the loop next to nothing.
    files = replace(text, dataset=str(place.folder), batch_size=64)
    ranks = tuple(
        replace(text, compute_s=0.005, rank=rank, world_size=3, batches=40) for rank in range(3)
    )
    return [
        Fault("throttled", (refused,), (text,)),
        Fault("slow-node", (*ranks[:2], replace(ranks[2], dataset=place.slow)), ranks),
        Fault("decode-bound", (decode,), (replace(decode, threads=2),)),
        Fault("too-many-threads", (crowded,), (replace(crowded, threads=1),)),
        Fault("save-stutter", (saving,), (replace(saving, wait="memory"),)),
        Fault(
            "small-files",
            (files,),
            (replace(files, dataset=str(place.packed)),),
            doctor=("--disk-limit", "1TB"),
        ),
    ]


def all_removals(place: Place) -> list[Removal]:
    """Return parts that can really be taken out of a job."""
    text = Job(str(place.packed))
    decode = Job(str(place.photos), fields=("jpg",), work="decode", batch_size=2, batches=10)
    saving = replace(text, compute_s=0.005, save_bytes=1 << 20)
    return [
        Removal("decode", decode, replace(decode, work="raw")),
        Removal("network", replace(text, dataset=place.slow), text),
        Removal("saves", saving, replace(saving, save_bytes=0)),
    ]


def healthy(place: Place) -> Job:
    """Return a job whose step takes far longer than its input."""
    return Job(str(place.packed), compute_s=0.05)


def run_jobs(jobs: tuple[Job, ...], folder: Path) -> Path:
    """Run the ranks, one after the other, out of each other's way; return the record."""
    record = folder / "record"
    for job in jobs:
        settings = asdict(job) | {"record": str(record), "store": str(folder / f"s{job.rank}")}
        environment = os.environ | {"HEADRACE_ADMIN": "off"}
        subprocess.run(
            [sys.executable, "-c", JOB, json.dumps(settings)],
            env=environment,
            check=True,
            timeout=DEADLINE_S,
        )
    return record


def doctor(record: Path, *arguments: str) -> dict[str, Any]:
    """What the doctor says of a record; with ``--without``, what it predicts."""
    done = subprocess.run(
        [*PROGRAM, "doctor", str(record), "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
