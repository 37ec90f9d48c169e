"""A training job with several ranks that goes on until it is ended, and an agent that watches it.

with running_job(dataset, runtime, ranks=2), running_agent(runtime) as agent:
    agent.api("node")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 180

# Steps that take some milliseconds, and now and then a save of 1 MiB by rank 0.
_TRAIN = """
import os, sys, threading, time
import headrace
from headrace import transforms as T
dataset, rank, ranks, step_s, store, near = sys.argv[1:7]
rank, step_s = int(rank), float(step_s)
loader = headrace.open(dataset).loader(
    batch_size=8, seed=1, rank=rank, world_size=int(ranks), threads=1,
    transforms={"jpg": T.imagenet_train(96), "cls": T.label()},
)
saver = None
if store and rank == 0:
    from headrace.checkpoint import Checkpointer
    tiers = {"tiers": [near], "level": "remote"} if near else {}
    saver = Checkpointer(store, keep=1000, rank=0, world_size=1, **tiers)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
step = 0
while not ended.is_set():
    for batch in loader:
        if step == 0:
            print("ready", flush=True)
        time.sleep(step_s)
        step += 1
        if saver and step % 100 == 20:
            saver.save(step, {"weights": os.urandom(1 << 20), "step": step}, loader=loader)
        if ended.is_set():
            break
if saver:
    saver.close()
"""


@contextmanager
def running_job(
    dataset: Path,
    runtime: Path,
    *,
    ranks: int = 1,
    step_s: float = 0.01,
    name: str = "night-run",
    store: Path | str = "",
    near: Path | str = "",
    environment: dict[str, str] | None = None,
) -> Iterator[list[int]]:
    """Ranks that train until the block ends, each having given its first batch: their process ids."""
    own = {"HEADRACE_RUNTIME_DIR": str(runtime), "HEADRACE_JOB": name} | (environment or {})
    processes: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            values = [dataset, rank, ranks, step_s, store, near]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", _TRAIN, *map(str, values)],
                    env=os.environ | own,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "a rank ended before its first batch"
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.wait(timeout=PATIENCE_S)
            process.stdout.close()


@dataclass
class Agent:
    """A running agent."""

    process: subprocess.Popen[str]
    url: str
    token: str = ""

    def get(self, path: str, **headers: str) -> str:
        """The text of an answer."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    def api(self, name: str) -> Any:
        """What the API says of something."""
        return json.loads(self.get(f"api/v1/{name}"))

    def wait(self, name: str, ready: Callable[[Any], Any]) -> Any:
        """Wait until what the API says is as it should be, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            said = self.api(name)
            if ready(said):
                return said
            time.sleep(0.1)
        raise AssertionError(f"{name} never was as it should be: {json.dumps(said)[:3000]}")


@contextmanager
def running_agent(
    runtime: Path, *arguments: object, token: str = "", program: Sequence[str] = ()
) -> Iterator[Agent]:
    """An agent that looks each second, until the block ends; then it has ended with code 0."""
    command = [*(program or (sys.executable, "-m", "headrace")), "agent", "--listen", "127.0.0.1:0"]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [*command, "--interval", "1", *map(str, arguments)],
                env=os.environ | {"HEADRACE_RUNTIME_DIR": str(runtime)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        assert process.stdout is not None and process.stderr is not None
        url = process.stdout.readline().strip()
        try:
            assert url.startswith("http://"), process.stderr.read()
            yield Agent(process, url, token)
        finally:
            process.terminate()
            code = process.wait(timeout=PATIENCE_S)
        assert (code, process.stderr.read()) == (0, "")
