"""Progress on a terminal: seen while a command works, gone when it ends, also when it is interrupted."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import program
import pytest

import web

CLEAR = b"\r\x1b[K"


class _Held(web.RangeHandler):
    """Gives no byte of a shard until the test says so."""

    may_go_on = threading.Event()

    def answer(self) -> None:
        if self.command == "GET" and self.path.endswith(".tar"):
            self.may_go_on.wait(program.TIMEOUT_S)
        super().answer()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of several shards, in a folder of its own."""
    folder = tmp_path_factory.mktemp("served")
    program.write_photos(folder / "photos")
    program.run("pack", folder / "photos", folder / "set", "--shard-samples", 20, "--quiet")
    return folder


@pytest.fixture(scope="module")
def held(packed: Path) -> Iterator[str]:
    """The URL of that folder, whose shards are there and do not come."""
    with web.running(packed) as server:
        server.RequestHandlerClass = _Held
        yield server.url
        _Held.may_go_on.set()


def start_on_terminal(*arguments: object) -> tuple[subprocess.Popen[bytes], int]:
    """The program with standard error on a terminal, and that terminal's other side."""
    terminal, its_side = pty.openpty()
    process = subprocess.Popen(
        [*program.PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=its_side
    )
    os.close(its_side)
    return process, terminal


def read_until(terminal: int, pattern: bytes) -> bytes:
    """What a terminal shows, up to a pattern."""
    shown = b""
    deadline = time.monotonic() + program.TIMEOUT_S
    while re.search(pattern, shown) is None:
        ready = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]
        assert ready, shown
        shown += os.read(terminal, 4096)
    return shown


def read_to_end(terminal: int) -> bytes:
    """All that a terminal still shows."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the last one who could write to it has ended
            return shown
        if not piece:
            return shown
        shown += piece


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        (("verify", "{url}/set", "--threads", 1), "verifying"),
        (("verify", "--pixels", "{url}/set"), "verifying"),
        (("bench", "{url}/set", "--mode", "raw", "--threads", 1), "pass 1 of 2"),
        (("cache", "warm", "{url}/set", "--cache-dir", "{tmp}/cache"), "warming"),
        (("index", "{url}/set/{shard}", "--output", "{tmp}/made"), "indexing"),
        (("pack", "{url}/set/{shard}", "{tmp}/made"), "packing"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_progress_is_shown_and_taken_back(
    held: str, packed: Path, tmp_path: Path, command: tuple[object, ...], verb: str
) -> None:
    shard = min(path.name for path in (packed / "set").glob("*.tar"))
    words = [str(word).format(url=held, tmp=tmp_path, shard=shard) for word in command]
    process, terminal = start_on_terminal(*words)
    try:
        read_until(terminal, verb.encode() + rb"(: looking|  +\d+ % )")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.wait(timeout=program.TIMEOUT_S) == program.INTERRUPTED
        line, _, rest = read_to_end(terminal).rpartition(CLEAR)
        assert line + rest and verb.encode() not in rest
        assert rest.startswith(b"headrace: ")
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        if process.stdout is not None:
            process.stdout.close()
    # Nothing that looks finished is left.
    assert not (tmp_path / "made" / "headrace.json").exists()


@pytest.mark.parametrize("flag", ["", "--quiet", "--json"])
def test_a_flag_keeps_the_terminal_clean(packed: Path, flag: str) -> None:
    process, terminal = start_on_terminal("verify", packed / "set", *([flag] if flag else []))
    with process:
        out, _ = process.communicate(timeout=program.TIMEOUT_S)
    shown = read_to_end(terminal)
    os.close(terminal)
    assert process.returncode == 0 and out
    assert shown == (b"" if flag else CLEAR)


def test_a_pipe_gets_no_terminal_codes(packed: Path) -> None:
    out, err = program.run("verify", packed / "set")
    assert out and err == ""
