"""The works over the network: readers of a bucket (w9), a slow origin (w10), several nodes (w11).

The server runs on this machine and shares its cores; its CPU time is not counted to the readers. One
dataset lies in the bucket at a time, uploaded anew for each repeat.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import bucket
from contenders import HEADRACE, OURS, PEERS, Job, program_name
from data import Data
from harness import RunError, run_program

sys.path.insert(0, str(PEERS))
from accounting import tree_cpu_seconds

WORKS = ("w9", "w10", "w11")
TIMEOUT_S = 900
START_S = 120  # a reader may take so long to import and to open
BARRIER_S = 10
PATIENCE = 5  # an epoch may take so many times what its bytes take over the link

SAMPLE_BYTES = 69_000  # as the images of the usual corpus
COUNTS = {"full": 32_000, "quick": 8_000}
BATCH = 64
CONNECTIONS = 8
SHARDS = "headrace-beside"  # the tar shards with their indexes: Headrace's, WebDataset's, libcurl's
FLOOR = "libcurl"
RANGE_BYTES = {"4 MiB ranges": 4 << 20, "64 KiB ranges": 64 << 10}

EATEN_PER_S = 160e6  # bytes that the training of w10, or all the nodes of w11, eat in a second
LINK_PER_S = EATEN_PER_S / 2
CACHED_SHARE = 0.5
LINK_PROBE_SHARDS = 8  # objects that libcurl fetches to find out what the link gives
SLOW_EPOCHS = 3

Record = Callable[[list, str, str, str, Callable[[], dict]], None]


@dataclass(frozen=True)
class Fleet:
    """Processes that read the same dataset at the same time."""

    name: str
    processes: int
    nodes: int  # cache folders; the processes of a node share one
    world_size: int  # 1: each process reads everything
    cache_share: float  # of the dataset, on each node
    epochs: int


FLEETS = (
    Fleet("one node, two jobs that read everything", 2, 1, 1, 1.5, 1),
    Fleet("one node, two ranks of a job", 2, 1, 2, 1.5, 1),
    Fleet("four nodes, an eighth cached on each", 4, 4, 4, CACHED_SHARE / 4, 4),
    Fleet("four nodes, a good quarter cached on each", 4, 4, 4, 1.1 / 4, 4),
)


def planned(works: Iterable[str], quick: bool) -> list[Job]:
    """What is to be run once per repeat. Peers of w9 use no workers: they need least CPU so."""
    ours = (HEADRACE, "headrace_runner.py")
    mds, litdata = ("torch", "mds_runner.py"), ("torch", "litdata_runner.py")
    jobs = [
        ("w9", "Headrace", *ours, "bucket", SHARDS, 2),
        ("w9", "Headrace, memory alone", *ours, "bucket", SHARDS, 2),
        ("w9", "Headrace, no cache", *ours, "bucket", SHARDS, CONNECTIONS),
        ("w9", "WebDataset", "torch", "webdataset_runner.py", "bucket", SHARDS, 0),
        ("w9", "MDS", *mds, "bucket", "mds", 0),
        ("w9", "LitData", *litdata, "bucket", "litdata", 0),
        ("w10", "Headrace", *ours, "origin", SHARDS, 2),
        ("w10", "MDS", *mds, "origin", "mds", 2),
        ("w10", "LitData", *litdata, "origin", "litdata", 2),
        ("w11", "Headrace", *ours, "origin", SHARDS, 2),
    ]
    count = COUNTS["quick" if quick else "full"]
    return [Job(*job, count=count, sample_bytes=SAMPLE_BYTES) for job in jobs if job[0] in works]


class Scene:
    """A server with one dataset in its bucket, and what measures against it."""

    def __init__(self, floor: Path, filled: bucket.Bucket, prefix: str, scratch: Path) -> None:
        self.bucket = filled
        self.prefix = prefix
        self.scratch = scratch
        self._curl = floor.parent / "headrace_curl_get"
        self._link = floor.parent / "headrace_origin_link"

    def link(self, bytes_per_second: float = 0) -> bucket.Link:
        """A link to the server, without a limit by default."""
        return bucket.Link(self._link, self.bucket, bytes_per_second)

    def command(self, job: Job, url: str, cache: Path, *more: object) -> list[str]:
        """The command line of a reader."""
        command = [job.python, PEERS / job.program, job.verb]
        command += [program_name(job.contender, job.packed), "--url", url, "--cache", cache]
        command += ["--workers", job.workers, "--count", job.count, "--batch-size", BATCH]
        command += ["--connections", CONNECTIONS, *more]
        return [str(part) for part in command]

    def libcurl(self, range_bytes: int, seconds: float) -> dict:
        """What bare libcurl fetches of the shards, in ranges of this size."""
        urls = self.bucket.list_signed(self.scratch / "urls", self.prefix, ".tar", sizes=True)
        return self._fetch(urls, range_bytes, seconds)

    def link_rate(self, link: bucket.Link, seconds: float) -> float:
        """Bytes per second that libcurl gets through the link."""
        reached = self.bucket.through(link)
        largest = sorted(reached.sizes, key=lambda key: -reached.sizes[key])
        reached.sizes = {key: reached.sizes[key] for key in largest[:LINK_PROBE_SHARDS]}
        urls = reached.list_signed(self.scratch / "probe", self.prefix, "", sizes=True)
        fetched = self._fetch(urls, max(RANGE_BYTES.values()), seconds)
        return float(fetched["gb_per_s"]) * 1e9

    def _fetch(self, urls: Path, range_bytes: int, seconds: float) -> dict:
        command = [str(self._curl), str(urls), str(CONNECTIONS), str(range_bytes), str(seconds)]
        return run_program(command, TIMEOUT_S)


# ---------------------------------------------------------------- w9


def read_cold(scene: Scene, job: Job, seconds: float) -> dict:
    """Whole passes over the bucket, nothing kept from one to the next."""
    url = f"s3://{bucket.NAME}/{scene.prefix}"
    if job.contender == "WebDataset":
        listed = scene.bucket.list_signed(scene.scratch / "tars", scene.prefix, ".tar", sizes=False)
        url = str(listed)
    with tempfile.TemporaryDirectory(dir=scene.scratch, prefix="cache-") as cache:
        command = scene.command(job, url, Path(cache), "--seconds", seconds)
        outside: list[float] = []  # CPU seconds of the server and of this process

        def look(event: str, pid: int) -> None:
            if event in ("timing", "timed"):
                outside.append(tree_cpu_seconds(os.getpid()) - tree_cpu_seconds(pid))

        environment = scene.bucket.environment()
        result = run_program(command, TIMEOUT_S, environment=environment, on_event=look)
    server_s = outside[1] - outside[0]
    rest_s = max(0.0, result.pop("outside_s") - server_s)
    gigabytes = result["bytes"] / 1e9
    result["server_cpu_s_per_gb"] = server_s / gigabytes
    return {**result, "other_cores": rest_s / result["wall_s"]}


# ---------------------------------------------------------------- w10 and w11


def run_together(
    commands: list[list[str]],
    environment: dict[str, str],
    look: Callable[[], None],
    timeout_s: float = TIMEOUT_S,
) -> list[dict]:
    """Run readers side by side. Before each epoch, and at the end, all wait while `look()` is called.

    Those that have not ended after `timeout_s` are killed, which is a failure.
    """
    barrier = threading.Barrier(len(commands), action=look)
    end = time.monotonic() + timeout_s

    def run(command: list[str]) -> dict:
        def on_event(event: str, _pid: int) -> None:
            if event == "epoch":
                # A moment longer than the readers have: whoever hangs is the one that is named.
                barrier.wait(max(0.0, end - time.monotonic()) + BARRIER_S)

        try:
            return run_program(command, timeout_s, environment=environment, on_event=on_event)
        except BaseException:
            barrier.abort()  # the others do not wait for it
            raise

    with ThreadPoolExecutor(len(commands)) as pool:
        runs = [pool.submit(run, command) for command in commands]
    failures = [run.exception() for run in runs if run.exception()]
    # A broken barrier only says that another one has failed.
    for failure in sorted(failures, key=lambda f: isinstance(f, threading.BrokenBarrierError)):
        raise failure
    return [run.result() for run in runs]


def longest_s(fleet: Fleet, total_bytes: int, bytes_per_s: float) -> float:
    """How long a fleet may take whose bytes come at this rate, before something must hang."""
    readings = fleet.processes if fleet.world_size == 1 else 1
    return START_S + PATIENCE * fleet.epochs * readings * total_bytes / bytes_per_s


def epochs_of(
    scene: Scene, job: Job, link: bucket.Link, fleet: Fleet, eaten_per_s: float
) -> list[dict]:
    """The epochs of a fleet: bytes from the origin and time of each. All of them together eat so much."""
    total = scene.bucket.total_bytes(scene.prefix)
    limit_s = longest_s(fleet, total, min(eaten_per_s, LINK_PER_S))
    batch_s = BATCH * SAMPLE_BYTES * fleet.processes / eaten_per_s
    counted: list[int] = []
    reached = scene.bucket.through(link)
    url = f"s3://{bucket.NAME}/{scene.prefix}"
    with tempfile.TemporaryDirectory(dir=scene.scratch, prefix="cache-") as caches:
        commands = []
        for number in range(fleet.processes):
            cache = Path(caches) / str(number % fleet.nodes)
            cache.mkdir(exist_ok=True)
            options = ["--cache-bytes", int(total * fleet.cache_share), "--step-s", batch_s]
            options += ["--epochs", fleet.epochs, "--world-size", fleet.world_size]
            options += ["--rank", number % fleet.world_size]
            commands.append(scene.command(job, url, cache, *options))
        results = run_together(
            commands, reached.environment(), lambda: counted.append(link.down_bytes()), limit_s
        )
    readers = [result["epochs"] for result in results]
    expected = job.count * (fleet.processes if fleet.world_size == 1 else 1)
    epochs = []
    for number, together in enumerate(zip(*readers, strict=True)):
        found = sum(epoch["samples"] for epoch in together)
        if found != expected:
            raise RunError(f"expected {expected} samples in epoch {number}, found {found}")
        slowest = max(together, key=lambda epoch: epoch["wall_s"])
        origin = counted[number + 1] - counted[number]
        epochs.append({**slowest, "origin_bytes": origin, "origin_share": origin / total})
    return epochs


def read_slowly(scene: Scene, job: Job, seconds: float) -> dict:
    """W10: epochs over a link of half of what the training eats, half of the dataset cached.

    The bound of an epoch: the training's own time, or that of the link for what is not cached,
    whichever is longer.
    """
    fleet = Fleet("", 1, 1, 1, CACHED_SHARE, SLOW_EPOCHS)
    with scene.link(LINK_PER_S) as link:
        rate = scene.link_rate(link, seconds)
        epochs = epochs_of(scene, job, link, fleet, EATEN_PER_S)
    total = scene.bucket.total_bytes(scene.prefix)
    bound_s = max(epochs[1]["steps_s"], total * (1 - CACHED_SHARE) / rate)
    result = {"link_mb_per_s": rate / 1e6, "bound_s": bound_s, "dataset_mb": total / 1e6}
    for number, epoch in enumerate(epochs, 1):
        result[f"epoch{number}_s"] = epoch["wall_s"]
        result[f"epoch{number}_origin"] = epoch["origin_share"]
    return {**result, "of_bound": bound_s / epochs[1]["wall_s"], "steps_s": epochs[1]["steps_s"]}


def read_on_nodes(scene: Scene, job: Job, fleet: Fleet) -> dict:
    """W11: what a fleet reads from the origin, as shares of the dataset; no limit on the link."""
    with scene.link() as link:
        epochs = epochs_of(scene, job, link, fleet, EATEN_PER_S)
    result = {"first_origin": epochs[0]["origin_share"], "epoch_s": epochs[-1]["wall_s"]}
    later = [epoch["origin_share"] for epoch in epochs[1:]]
    if later:
        result["later_origin"] = sum(later) / len(later)
        result["later_bound"] = max(0.0, 1 - fleet.cache_share * fleet.nodes)
    return result


# ---------------------------------------------------------------- all of it


def rows_of(scene: Scene, job: Job, seconds: float) -> list[tuple[str, str, Callable[[], dict]]]:
    """Contender, variant and measure of each row that a job gives."""
    if job.work == "w10":
        return [(job.contender, "", partial(read_slowly, scene, job, seconds))]
    if job.work == "w11":
        return [
            (job.contender, fleet.name, partial(read_on_nodes, scene, job, fleet))
            for fleet in FLEETS
        ]
    rows = [(job.contender, "", partial(read_cold, scene, job, seconds))]
    if job.contender == OURS:
        rows += [
            (FLOOR, name, partial(scene.libcurl, size, seconds))
            for name, size in RANGE_BYTES.items()
        ]
    return rows


def measure(
    runs: list[dict], record: Record, jobs: list[Job], data: Data, floor: Path, seconds: float
) -> None:
    """Run all jobs once, one dataset after the other."""
    for packed in dict.fromkeys(job.packed for job in jobs):
        of_packed = [job for job in jobs if job.packed == packed]
        with tempfile.TemporaryDirectory(dir=data.root, prefix="bucket-") as name:
            try:
                with bucket.serving(Path(name) / "server") as filled:
                    filled.upload(packed, data.packed_folder(of_packed[0]))
                    scene = Scene(floor, filled, packed, Path(name))
                    for job in of_packed:
                        for contender, variant, work in rows_of(scene, job, seconds):
                            record(runs, job.work, contender, variant, work)
            except (RunError, RuntimeError, OSError) as error:
                failed = RunError(f"the server: {error}")
                for job in of_packed:
                    record(runs, job.work, job.contender, "", partial(_fail, failed))


def _fail(error: RunError) -> dict:
    raise error
