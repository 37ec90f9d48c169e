"""Runs one contender's process and watches it from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from contenders import PEERS

sys.path.insert(0, str(PEERS))
from accounting import tree_pss_bytes

MEMORY_PERIOD_S = 0.25
MEGABYTE = 1e6

# Two workers that each start a pool of two threads would fight over two cores.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "LITDATA_DISABLE_VERSION_CHECK": "1",
    "PYTHONWARNINGS": "ignore",
    "HEADRACE_BENCH_HARNESS": "1",
}


class RunError(Exception):
    """A contender's process failed; the message ends with what it wrote last."""


class MemoryWatch:
    """Peak of the PSS over a process tree, above what it was when the imports were done.

    Samples on a thread of its own until timing begins, since reading PSS costs time; after that only
    when asked.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._baseline: int | None = None
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(MEMORY_PERIOD_S):
            self.look()

    def look(self) -> None:
        """Take one sample now."""
        self._peak = max(self._peak, tree_pss_bytes(self._pid))

    def start(self) -> None:
        """The imports are done: what comes on top from here on is the contender's own."""
        self._baseline = tree_pss_bytes(self._pid)
        self._thread.start()

    def pause(self) -> None:
        """Stop sampling, for good."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def result(self) -> dict:
        if self._baseline is None or self._peak == 0:
            return {}
        above = max(0, self._peak - self._baseline)
        return {"pss_mb": above / MEGABYTE, "imports_pss_mb": self._baseline / MEGABYTE}


def _kill_after(process: subprocess.Popen, seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, lambda: os.killpg(process.pid, 9))
    timer.start()
    return timer


def run_program(
    command: list[str],
    timeout_s: float,
    protocol: bool = True,
    environment: Mapping[str, str] | None = None,
    on_event: Callable[[str, int], None] | None = None,
) -> dict:
    """Run a program that prints JSON lines; returns its result, with memory where it is observed.

    Without `protocol`, the first line of any kind is the moment of the first sample, and the time
    from starting the process to it is added as `first_s`. `environment` replaces this process's.
    `on_event(name, pid)` is called while the program waits after an event.
    """
    environment = {**(os.environ if environment is None else environment), **QUIET}
    with tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        timer = _kill_after(process, timeout_s)
        memory = MemoryWatch(process.pid)
        result: dict | None = None
        first_s = None
        try:
            for line in process.stdout:
                if first_s is None:
                    first_s = time.monotonic() - start
                message = _parse(line)
                result = message.get("result", result)
                if "event" in message:
                    if on_event:
                        on_event(message["event"], process.pid)
                    _answer(process, memory, message["event"])
            process.wait()
        finally:
            timer.cancel()
            memory.pause()
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
        if process.returncode != 0 or result is None:
            errors.seek(0)
            tail = " | ".join(errors.read().strip().splitlines()[-4:])[-800:]
            raise RunError(f"{Path(command[1]).name} ended with code {process.returncode}: {tail}")
    return {**result, **memory.result(), **({} if protocol else {"first_s": first_s})}


def _parse(line: str) -> dict:
    """The JSON object of a line; empty for anything else that a library may print."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _answer(process: subprocess.Popen, memory: MemoryWatch, event: str) -> None:
    """Look at the memory as the event asks for, then let the process go on."""
    if event == "imported":
        memory.start()
    elif event == "epoch":
        memory.look()
    else:
        memory.pause()
        memory.look()
    process.stdin.write("\n")
    process.stdin.flush()
