"""Real faults of a small training job, each with its cure: for the doctor's tests and benchmark.

The faults are so strong that every machine shows them: a loop that computes next to nothing, reads
that sleep, threads that share one processor, saves at every step. How strong exactly is drawn by a
seed (``HEADRACE_FAULT_SEED``). Nothing here measures a time. Where threads are not the fault there is
one, so that a machine with other work to do has not too many.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
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
SEED = int(os.environ.get("HEADRACE_FAULT_SEED") or 1)
TEXTS, TEXT_SHARDS = 1600, 8
BLOBS, BLOB_BYTES = 48, 48 << 10

# Runs until there are enough windows and enough batches, however long that takes.
JOB = """
import contextlib, json, os, sys, time
job = json.loads(sys.argv[1])
with contextlib.suppress(OSError):
    os.nice(-10)  # where it is allowed: what else runs here is not the fault
if job["processors"]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["processors"]])
import headrace
from headrace import run_record
from headrace import transforms as T
from headrace.checkpoint import Checkpointer


def spin(data):
    count = 0
    for i in range(job["python_loops"]):
        count += i & 1
    return count

made = {"decode": {"jpg": T.imagenet_train(224)}, "python": {"txt": spin}, "raw": {}}
# Each sample is asked for: what was read once and stays in memory would hide a bad server.
options = {"cache_memory_bytes": "0"}
if job["cache_bytes"]:
    options |= {"cache_dir": job["cache"], "cache_bytes": str(job["cache_bytes"])}

def forget():
    for shard, _, _ in loader_dataset.shards:
        file = os.open(os.path.join(job["dataset"], shard), os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)

loader_dataset = headrace.open(job["dataset"], storage_options=options)
loader = loader_dataset.loader(
    batch_size=job["batch_size"], threads=job["threads"], seed=1, fields=job["fields"],
    rank=job["rank"], world_size=job["world_size"], transforms=made[job["work"]])
saver = Checkpointer(job["store"], rank=0, world_size=1) if job["save_bytes"] else None
for _ in range(job["epochs_before"]):
    for batch in loader:
        pass
run_record.start(job["record"], interval=0.1)
begun, batches, enough = time.monotonic(), 0, False
while not enough:
    if job["cold"]:
        forget()
    for batch in loader:
        time.sleep(job["compute_s"])
        batches += 1
        if saver is not None and batches % job["save_every"] == 0:
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
    work: str = "raw"  # or decode, or python
    python_loops: int = 0  # of each sample, with work "python"
    cold: bool = False  # forget what memory holds of the data's files before each epoch
    cache_bytes: int = 0  # of a cache on the node's disk; 0: none
    batch_size: int = 4
    threads: int = 1
    processors: int = 0  # that it may use; 0: all
    compute_s: float = 0.0  # of a step
    save_bytes: int = 0  # 0: no saves
    save_every: int = 1  # steps
    wait: str = "local"  # level that a save waits for
    rank: int = 0
    world_size: int = 1
    epochs_before: int = 0  # the record begins after them
    batches: int = 20
    seconds: float = 1.2


@dataclass(frozen=True)
class Fault:
    """Jobs with a fault in them, the check that must find it, and the same jobs without it."""

    check: str
    jobs: tuple[Job, ...]
    cured: tuple[Job, ...] = ()  # none: the cure makes no such job faster
    doctor: tuple[str, ...] = ()  # more arguments
    memory_bytes: int = 0  # that the record is to say of the machine; 0: what it has


@dataclass(frozen=True)
class Removal:
    """A job, a part of it as `headrace doctor --without` names it, and the job without the part."""

    part: str
    job: Job
    without: Job


class UnwellServer(web.RangeServer):
    """Serves shards late, refuses some reads of them, or has a link of a set rate."""

    # So much of a link's idle time is made up for later: a busy machine that asks late gets as much.
    CREDIT_S = 0.5

    def __init__(
        self, root: Path, late_s: float = 0, refuses_each: int = 0, bytes_per_s: float = 0
    ) -> None:
        super().__init__(root)
        self.RequestHandlerClass = UnwellHandler
        self.late_s, self.refuses_each, self.bytes_per_s = late_s, refuses_each, bytes_per_s
        self.reads = 0
        self.link_free_s = 0.0

    def pass_link(self, size: int) -> None:
        """Wait until so many bytes are through the link."""
        with self.lock:
            now = time.monotonic()
            begin = max(self.link_free_s, now - self.CREDIT_S)
            self.link_free_s = begin + size / self.bytes_per_s
            wait = self.link_free_s - now
        time.sleep(max(0.0, wait))


class UnwellHandler(web.RangeHandler):
    server: UnwellServer

    def give(self, failing: bool) -> None:
        server = self.server
        if self.is_read():
            time.sleep(server.late_s)
            with server.lock:
                server.reads += 1
                refuses = server.refuses_each > 0 and server.reads % server.refuses_each == 0
                failing = failing or refuses
        super().give(failing)

    def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if self.is_read() and self.server.bytes_per_s > 0:
            self.server.pass_link(len(body))
        super().send(status, headers, body)

    def is_read(self) -> bool:
        return self.command == "GET" and self.path.endswith(".tar")


@dataclass(frozen=True)
class Place:
    """Data and servers that the faults need, and what the strength of each fault is drawn from."""

    root: Path
    seed: int
    urls: dict[str, str]  # of `root`, by what the server does: well, refuses, late, slow_link
    link_bytes_per_s: int

    def draws(self, fault: str) -> random.Random:
        """Return the generator of a fault's strengths."""
        return random.Random(f"{self.seed} {fault}")

    def local(self, name: str) -> str:
        """Return the path of a data set."""
        return str(self.root / name)


def _pack(source: Path, target: Path, shard_samples: int) -> None:
    command = [*PROGRAM, "pack", str(source), str(target), "--quiet"]
    subprocess.run([*command, "--shard-samples", str(shard_samples)], check=True)


def _make_texts(root: Path) -> None:
    (root / "folder").mkdir()
    for i in range(TEXTS):
        (root / "folder" / f"{i:04}.txt").write_bytes(b"x" * (200 + i % 400))
    _pack(root / "folder", root / "packed", TEXTS // TEXT_SHARDS)
    # Two of 40 shards, as by a pattern that matched too little.
    _pack(root / "folder", root / "many", TEXTS // 40)
    some = sorted((root / "many").glob("*.tar"))[:2]
    command = [*PROGRAM, "index", "--quiet", "--seek-points=off", "--output", str(root / "sliver")]
    subprocess.run([*command, *map(str, some)], check=True)


def _make_blobs(root: Path) -> None:
    (root / "raw").mkdir()
    for i in range(BLOBS):
        (root / "raw" / f"{i:02}.bin").write_bytes(bytes([i]) * BLOB_BYTES)
    _pack(root / "raw", root / "blobs", 8)


def _jpeg(width: int, height: int, **options: bool) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    noise = Image.effect_noise((width, height), 60).convert("RGB")
    noise.save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def _make_pictures(root: Path) -> None:
    # Large, so that decoding is what takes the time; all the same, since none is to be special.
    photo = _jpeg(1600, 1200)
    (root / "pictures").mkdir()
    for i in range(24):
        (root / "pictures" / f"{i:02}.jpg").write_bytes(photo)
    _pack(root / "pictures", root / "photos", 8)
    # Small ones, and one in twenty that takes some hundred times as long.
    small, heavy = _jpeg(64, 64), _jpeg(4000, 3000, progressive=True)
    (root / "kinds").mkdir()
    for i in range(40):
        (root / "kinds" / f"{i:02}.jpg").write_bytes(heavy if i % 20 == 7 else small)
    _pack(root / "kinds", root / "mixed", 10)


@contextlib.contextmanager
def prepared(root: Path, seed: int = SEED) -> Iterator[Place]:
    """Make the data in a folder, and serve them until the end of the block."""
    _make_texts(root)
    _make_blobs(root)
    _make_pictures(root)
    draws = random.Random(seed)
    rate = draws.randrange(1_500_000, 2_500_000)
    servers = {
        "well": UnwellServer(root),
        "refuses": UnwellServer(root, refuses_each=draws.choice([2, 3])),
        "late": UnwellServer(root, late_s=draws.uniform(0.02, 0.04)),
        "slow_link": UnwellServer(root, bytes_per_s=rate),
    }
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(answering.running(server))
        urls = {name: server.url for name, server in servers.items()}
        yield Place(root, seed, urls, rate)


def _input_faults(place: Place) -> list[Fault]:
    """Return the faults of storage and network."""
    text, blob = _text(place), _blob(place)
    far = replace(blob, compute_s=0.002, dataset=f"{place.urls['slow_link']}/blobs")
    # Room for a part of the blocks, and for what is kept beside them.
    part = int(BLOBS * BLOB_BYTES * place.draws("small-cache").uniform(0.3, 0.5)) + 400_000
    small = replace(far, cache_bytes=part, epochs_before=1)
    # Large batches, so that taking them costs the loop next to nothing.
    files = replace(text, dataset=place.local("folder"), batch_size=64)
    ranks = tuple(
        replace(text, compute_s=0.005, rank=rank, world_size=3, batches=40) for rank in range(3)
    )
    slow = replace(ranks[2], dataset=f"{place.urls['late']}/packed")
    return [
        Fault(
            "throttled",
            (replace(text, compute_s=0.002, dataset=f"{place.urls['refuses']}/packed"),),
            (replace(text, compute_s=0.002, dataset=f"{place.urls['well']}/packed"),),
        ),
        Fault(
            "network-full",
            (far,),
            (replace(blob, compute_s=0.002),),
            doctor=("--network-limit", str(place.link_bytes_per_s)),
        ),
        Fault("small-cache", (small,), (replace(small, cache_bytes=64 << 20),)),
        Fault("slow-node", (*ranks[:2], slow), ranks),
        Fault(
            "small-files",
            (files,),
            (replace(files, dataset=place.local("packed")),),
            doctor=("--disk-limit", "1TB"),
        ),
    ]


def _loop_faults(place: Place) -> list[Fault]:
    """Return the faults of decoding, threads and the training loop itself."""
    text, decode = _text(place), _decode(place)
    crowded = replace(decode, threads=8, processors=1)
    saving = replace(text, compute_s=0.01, save_bytes=1 << 20)
    loops = place.draws("python-transform").randrange(50_000, 100_000)
    python = replace(text, compute_s=0.005, work="python", python_loops=loops)
    # The loop takes 4 ms of a sample: the small ones come quicker on any machine.
    mixed = replace(decode, dataset=place.local("mixed"), batch_size=8, compute_s=0.032, batches=15)
    return [
        Fault("decode-bound", (decode,), (replace(decode, threads=2),)),
        Fault("slow-samples", (mixed,)),
        Fault("too-many-threads", (crowded,), (replace(crowded, threads=1),)),
        Fault("python-transform", (python,), (replace(python, work="raw"),)),
        Fault("save-stutter", (saving,), (replace(saving, wait="memory"),)),
    ]


def _misleading(place: Place) -> list[Fault]:
    """Return what costs a job its data, or whoever looks at it the truth, rather than its speed."""
    text = replace(_text(place), compute_s=0.02)
    world = place.draws("few-shards").randrange(TEXT_SHARDS + 1, 3 * TEXT_SHARDS)
    photos = replace(_decode(place), work="raw", compute_s=0.02)
    return [
        Fault("few-shards", (replace(text, world_size=world),)),
        Fault("sliver", (replace(text, dataset=place.local("sliver")),)),
        # The files lie in memory since they were packed. A machine on which they would have no room
        # there cannot be had, so that the record says it.
        Fault("page-cache-luck", (photos,), doctor=("--disk-limit", "1MB"), memory_bytes=1 << 20),
    ]


def all_faults(place: Place) -> list[Fault]:
    """Return the faults, each with its jobs."""
    return [*_input_faults(place), *_loop_faults(place), *_misleading(place)]


def two_at_once(place: Place) -> dict[tuple[str, str], Job]:
    """Return jobs with two faults each, by what must be found."""
    loops = place.draws("two at once").randrange(150_000, 250_000)
    refused = replace(_text(place), dataset=f"{place.urls['refuses']}/packed")
    return {
        ("python-transform", "throttled"): replace(refused, work="python", python_loops=loops),
        ("few-shards", "save-stutter"): replace(
            _text(place), world_size=12, compute_s=0.005, save_bytes=1 << 20
        ),
    }


def all_removals(place: Place) -> list[Removal]:
    """Return parts that can really be taken out of a job."""
    text = replace(_text(place), compute_s=0.005)
    decode = replace(_decode(place), compute_s=0.01)
    saving = replace(text, save_bytes=1 << 20)
    python = replace(text, work="python", python_loops=75_000)
    refused = replace(text, dataset=f"{place.urls['refuses']}/packed")
    cold = replace(decode, work="raw", cold=True, compute_s=0.002)
    return [
        Removal("decode", decode, replace(decode, work="raw")),
        Removal("network", replace(text, dataset=f"{place.urls['late']}/packed"), text),
        Removal("disk", cold, replace(cold, cold=False)),
        Removal("back-off", refused, replace(refused, dataset=f"{place.urls['well']}/packed")),
        Removal("python", python, replace(python, work="raw")),
        Removal("saves", saving, replace(saving, save_bytes=0)),
    ]


def healthy(place: Place) -> Job:
    """Return a job whose step takes far longer than its input."""
    return replace(_text(place), compute_s=0.05)


def _text(place: Place) -> Job:
    return Job(place.local("packed"))


def _blob(place: Place) -> Job:
    return Job(place.local("blobs"), fields=("bin",), batch_size=2)


def _decode(place: Place) -> Job:
    return Job(place.local("photos"), fields=("jpg",), work="decode", batch_size=2, batches=10)


def run_jobs(jobs: tuple[Job, ...], folder: Path, longer: float = 1) -> Path:
    """Run the ranks, one after the other, out of each other's way; return the record.

    They run ``longer`` times as long as they say.
    """
    folder.mkdir(exist_ok=True)
    record = folder / "record"
    for job in jobs:
        places = {
            "record": str(record),
            "store": str(folder / f"s{job.rank}"),
            "cache": str(folder / f"c{job.rank}"),
        }
        settings = asdict(job) | places | {"seconds": job.seconds * longer}
        environment = os.environ | {"HEADRACE_ADMIN": "off"}
        subprocess.run(
            [sys.executable, "-c", JOB, json.dumps(settings)],
            env=environment,
            check=True,
            timeout=DEADLINE_S,
        )
    return record


def say_memory(record: Path, memory_bytes: int) -> None:
    """Let a record say that its machine has so much memory."""
    for path in record.glob("rank-*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        for line in lines:
            if line["type"] == "run":
                line["machine"]["memory_bytes"] = memory_bytes
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def diagnose(fault: Fault, folder: Path, longer: float = 1) -> dict[str, Any]:
    """Run the jobs of a fault, and return what the doctor says of their record."""
    record = run_jobs(fault.jobs, folder, longer)
    if fault.memory_bytes:
        say_memory(record, fault.memory_bytes)
    return doctor(record, *fault.doctor)


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
