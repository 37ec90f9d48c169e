"""The helper process of a trainer: holds the arena, keeps saves in memory and drains them.

It is started by a ``Checkpointer`` with tiers, and outlives it. ``python -m headrace.checkpoint.helper
HOME RANK`` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace import _native
from headrace.errors import NotFoundError, StateError

_STARTED: list[subprocess.Popen[bytes]] = []  # kept, so that nobody waits for them at exit
_START_S = 60.0  # a helper that does not listen by then will not


def connect(tiers: Any, rank: int) -> Any:
    """The helper of this store and rank, started when none runs.

    Raises:
        StateError: It could not be started: says what it wrote.
    """
    try:
        return _native.CheckpointHelper.connect(tiers, rank)
    except NotFoundError:
        pass
    folder = Path(tiers.home) / "helper"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    log = folder / f"rank{rank}.log"
    process = _start(tiers.home, rank, log)
    return _until_it_listens(
        lambda: _native.CheckpointHelper.connect(tiers, rank), process, log, tiers.home
    )


def _start(home: str, rank: int, log: Path) -> subprocess.Popen[bytes]:
    # The same package as this process has, wherever it came from.
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.checkpoint.helper", os.path.abspath(home), str(rank)],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd="/",
            start_new_session=True,  # a Ctrl-C at the trainer's terminal is not meant for it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    _STARTED[:] = [other for other in _STARTED if other.poll() is None] + [process]
    return process


def _until_it_listens(
    call: Callable[[], Any], process: subprocess.Popen[bytes], log: Path, home: str
) -> Any:
    end = time.monotonic() + _START_S
    pause = 0.005
    while True:
        ended = process.poll() is not None  # asked first: another one's helper may listen by now
        try:
            return call()
        except NotFoundError:
            if ended or time.monotonic() > end:
                wrote = log.read_text(errors="replace").strip()[-2000:]
                raise StateError(
                    f"the checkpoint helper for {home} did not start: {wrote or 'no word of it'}"
                ) from None
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def main() -> None:
    """Serve until no trainer needs this helper any more."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m headrace.checkpoint.helper HOME RANK")
    _native.run_checkpoint_helper(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    main()
