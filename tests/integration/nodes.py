"""Processes that read a data set as the nodes of a training job do, one command at a time.

Run as a program it is such a process; ``Node`` starts and asks one. A command is a line, and so is its
answer, in JSON:

    batches N   the next N batches of the epoch (0: all that are left, and then the next epoch begins)
    sample N    one sample, without the loader
    stats       the loader's figures
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

LINE_LIMIT = 1 << 24
PATIENCE_S = 240  # with a process that ought to end, on a busy machine
LOADER: dict[str, Any] = {"batch_size": 16, "seed": 3, "threads": 2}  # what nothing else is said of


class Failed(Exception):
    """The node's process ended in mid-command."""


class Node:
    """A process of a node. Ends with the ``with`` block."""

    def __init__(
        self,
        path: object,
        *,
        storage: Mapping[str, object] | None = None,
        loader: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        wrap: Callable[[Sequence[str | Path]], Sequence[str | Path]] = lambda command: command,
        user: int | None = None,
        umask: int = 0o022,
        **options: Any,
    ) -> None:
        """Start it; ``user`` is whom it becomes before it opens the data set."""
        settings = {
            "path": str(path),
            "storage": dict(storage or {}),
            "loader": LOADER | dict(loader or {}),
            "user": user,
            "umask": umask,
        }
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-node-")
        self._errors = Path(self._folder.name) / "errors"
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                wrap([sys.executable, Path(__file__).resolve(), json.dumps(settings)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=None if environment is None else {**os.environ, **environment},
                **options,
            )

    def tell(self, command: str) -> None:
        """Give it a command, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the oldest command that has none yet."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline(LINE_LIMIT)
        if not line.endswith("\n"):
            raise Failed(f"exit {self._process.wait(PATIENCE_S)}: {self.errors()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str) -> dict[str, Any]:
        """Give it a command and wait for the answer, which must not be an error."""
        self.tell(command)
        answer = self.answer()
        assert "error" not in answer, answer
        return answer

    def epoch(self) -> dict[str, Any]:
        """Read the rest of an epoch."""
        return self.ask("batches 0")

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def errors(self) -> str:
        """What it has written to standard error so far."""
        return self._errors.read_text(errors="replace")

    def finish(self) -> str:
        """Let it end; return what it wrote to standard error."""
        if self._process.poll() is None:
            self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, self.errors()
        return self.errors()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._folder.cleanup()


def digest(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what some batches held: their rows, and a hash of keys and values in their order."""
    rows, content = 0, hashlib.sha256()
    for batch in batches:
        rows += len(batch["__key__"])
        for field in sorted(batch):
            for value in batch[field]:
                data = value.encode() if isinstance(value, str) else value or b""
                content.update(len(data).to_bytes(8, "little"))
                content.update(data)
    return {"rows": rows, "digest": content.hexdigest()}


class _Reader:
    """What the process does."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        import headrace.loader  # now: another user may not be able to read it

        os.umask(settings["umask"])
        if settings["user"] is not None:
            os.setgroups([])
            os.environ["HOME"] = "/nonexistent"  # settings in the other one's are not to be read
            os.setgid(settings["user"])
            os.setuid(settings["user"])
        self.dataset = headrace.open(settings["path"], storage_options=settings["storage"])
        self.loader = self.dataset.loader(**settings["loader"])
        self.epoch: Any = None

    def batches(self, count: int) -> dict[str, Any]:
        """Read batches; an epoch that has ended is left behind."""
        if self.epoch is None:
            self.epoch = iter(self.loader)
        batches = []
        while count == 0 or len(batches) < count:
            batch = next(self.epoch, None)
            if batch is None:
                self.epoch = None
                break
            batches.append(batch)
        return digest(batches)

    def run(self, command: str) -> dict[str, Any]:
        """Answer a command."""
        name, _, number = command.partition(" ")
        if name == "batches":
            return self.batches(int(number))
        if name == "sample":
            sample = self.dataset[int(number)]
            key = sample.pop("__key__")
            return digest([{"__key__": [key], **{f: [v] for f, v in sample.items()}}])
        if name == "stats":
            return self.loader.stats()
        raise ValueError(command)


def main() -> None:
    """Answer commands until there are no more."""
    import headrace

    reader = None
    for line in sys.stdin:
        try:
            reader = reader or _Reader(json.loads(sys.argv[1]))
            answer = reader.run(line.strip())
        except headrace.HeadraceError as error:
            answer = {"error": type(error).__name__, "message": str(error), "shard": error.shard}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
