"""Runs one contender's process and watches it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from contenders import PEERS

sys.path.insert(0, str(PEERS))
from accounting import tree_pss_bytes

MEMORY_PERIOD_S = 0.25
MEGABYTE = 1e6
PIECE = 1 << 16  # bytes of output that are taken at once
GRACE_S = 60  # a program that has given its result may take so long to end

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


class LineReader:
    """The lines that a process writes, each waited for until a moment at most."""

    def __init__(self, pipe: IO) -> None:
        self._fd = pipe.fileno()
        self._rest = b""

    def next(self, end: float) -> str | None:
        """The next line; None at the end. Raises TimeoutError at `end`, of the monotonic clock."""
        while b"\n" not in self._rest:
            patience = max(0.0, end - time.monotonic())
            if not select.select([self._fd], [], [], patience)[0]:
                raise TimeoutError
            more = os.read(self._fd, PIECE)
            if not more:
                last, self._rest = self._rest, b""
                return last.decode(errors="replace") or None
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode(errors="replace")


class _Run:
    """A program under way: what it said so far."""

    def __init__(self, process: subprocess.Popen, end: float) -> None:
        self.process = process
        self.end = end  # when it is killed
        self.memory = MemoryWatch(process.pid)
        self.result: dict | None = None
        self.last = "its start"
        self.first: float | None = None  # when its first line came

    def follow(self, on_event: Callable[[str, int], None] | None) -> bool:
        """Listen until it ends; False when it did not end in time and was killed."""
        assert self.process.stdout is not None
        lines = LineReader(self.process.stdout)
        try:
            while (line := lines.next(self.end)) is not None:
                self.first = self.first or time.monotonic()
                self._take(_parse(line), on_event)
            self.process.wait(max(1.0, self.end - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            self._kill()
            return False
        except BaseException:
            self._kill()
            raise
        finally:
            self.memory.pause()
        return True

    def _kill(self) -> None:
        """End it and its children, also those that it left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()

    def _take(self, message: dict, on_event: Callable[[str, int], None] | None) -> None:
        if "result" in message:
            self.result, self.last = message["result"], "its result"
            self.end = min(self.end, time.monotonic() + GRACE_S)
        if "event" in message:
            self.last = f'"{message["event"]}"'
            if on_event:
                on_event(message["event"], self.process.pid)
            _answer(self.process, self.memory, message["event"])


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
    `on_event(name, pid)` is called while the program waits after an event. One that has not ended
    after `timeout_s` is killed with its children: a failure, unless its result was there.
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
        run = _Run(process, start + timeout_s)
        in_time = run.follow(on_event)
        fault = _fault(command, run, timeout_s, in_time)
        if fault:
            errors.seek(0)
            tail = " | ".join(errors.read().strip().splitlines()[-4:])[-800:]
            raise RunError(f"{fault}: {tail}")
    first_s = None if run.first is None else run.first - start
    return {**run.result, **run.memory.result(), **({} if protocol else {"first_s": first_s})}


def _fault(command: Sequence[str], run: _Run, timeout_s: float, in_time: bool) -> str:
    """What was wrong with a run that is over; empty when nothing was."""
    name = next((Path(part).name for part in command if part.endswith(".py")), "")
    name = name or Path(command[0]).name
    if run.result is None and not in_time:
        return f"{name} did not end within {timeout_s:.0f} s and was killed after {run.last}"
    if in_time and (run.process.returncode != 0 or run.result is None):
        return f"{name} ended with code {run.process.returncode}"
    return ""


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
    with contextlib.suppress(BrokenPipeError):  # it has ended: its code says more
        process.stdin.write("\n")
        process.stdin.flush()
