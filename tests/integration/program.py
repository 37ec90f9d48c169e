"""Helpers for tests that run the ``headrace`` program as users do."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BUILT = os.environ.get("HEADRACE_PROGRAM")
PROGRAM = [_BUILT] if _BUILT else [sys.executable, "-m", "headrace"]

OK, BAD_DATA, USAGE, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130


# A limit for what hangs: on a busy machine what takes a second can take a minute.
TIMEOUT_S = 240


def start(
    *arguments: object,
    faults: str = "",
    environment: Mapping[str, str] = os.environ,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start the program; ``faults`` is a HEADRACE_FAULTS text."""
    environment = dict(environment)
    if faults:
        environment["HEADRACE_FAULTS"] = faults
    command = [*PROGRAM, *(a if isinstance(a, bytes) else str(a) for a in arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options
    )


def run(*arguments: object, code: int = OK, faults: str = "", **options: Any) -> tuple[bytes, str]:
    """Run the program to its end, check its exit code, and return its output and its errors."""
    with start(*arguments, faults=faults, **options) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    text = err.decode(errors="backslashreplace")
    assert process.returncode == code, f"exit {process.returncode}: {text}"
    return out, text


def run_json(*arguments: object, code: int = OK) -> Any:
    """Run the program with --json and return the value that it prints."""
    return json.loads(run(*arguments, "--json", code=code)[0])


def fails(*arguments: object, code: int, words: list[str], **options: Any) -> str:
    """Run the program, which must fail with one line on standard error that has these words."""
    _, err = run(*arguments, code=code, **options)
    assert err.startswith("headrace: "), err
    assert err.count("\n") == 1, err
    for word in words:
        assert word in err, f"{word!r} is not in {err!r}"
    return err


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    if not folder.exists():
        return {}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_photos(folder: Path, classes: int = 4, per_class: int = 15) -> dict[str, bytes]:
    """Write an ImageFolder of random bytes; return what a pack of it must hold, by member."""
    draw = random.Random(7)
    members: dict[str, bytes] = {}
    for label in range(classes):
        name = f"class{label}"
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            data = draw.randbytes(draw.choice([0, 1, 511, 512, 513, 1000, 9000]))
            (folder / name / f"{number:03}.jpg").write_bytes(data)
            members[f"{name}/{number:03}.jpg"] = data
            members[f"{name}/{number:03}.cls"] = str(label).encode()
    return members


def read_tars(folder: Path) -> dict[str, bytes]:
    """Every member of every tar in a folder, read by Python's own tarfile."""
    members: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for info in tar:
                file = tar.extractfile(info)
                assert file is not None
                assert info.name not in members, info.name
                members[info.name] = file.read()
    return members


def write_tar(path: Path, members: dict[bytes, bytes]) -> None:
    """Write a tar whose member names are any bytes."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def stopped(process: subprocess.Popen[bytes]) -> bool:
    """Wait until a fault "stop" stops it (True) or it ends (False)."""
    wanted = os.WSTOPPED | os.WEXITED | os.WNOWAIT
    found = os.waitid(os.P_PID, process.pid, wanted)
    if found is None or found.si_code != os.CLD_STOPPED:
        return False
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # the next call waits for the next stop
    return True


def go_on(process: subprocess.Popen[bytes]) -> None:
    """Let a process that a fault has stopped go on to its end, past all its further stops."""
    process.send_signal(signal.SIGCONT)
    while stopped(process):
        process.send_signal(signal.SIGCONT)


def interrupt(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process where a fault stops it, and let it go on."""
    assert stopped(process), "it ended before it could be interrupted"
    process.send_signal(number)
    go_on(process)


def interrupt_running(process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT once the program itself, which Python starts and becomes, listens to it."""
    image, status = Path(f"/proc/{process.pid}/exe"), Path(f"/proc/{process.pid}/status")
    while not image.resolve().name.startswith("headrace"):
        assert process.poll() is None
        time.sleep(0.001)
    while not caught(status.read_text()) >> (signal.SIGINT - 1) & 1:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)


def caught(status: str) -> int:
    """Return the bits of the signals that a process listens to, from its /proc/PID/status."""
    return next(int(line[7:], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
