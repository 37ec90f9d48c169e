"""Checkpoints that frameworks know by a path: a small file lies there and names one in a store.

So what a framework does with its paths (looks whether one is there, finds the last, links, removes
those that are no longer among the best) works as it is. The file is written after the checkpoint was
published, in one step.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.document import Document, decode
from headrace.checkpoint.filling import NewArrays, Tensors
from headrace.checkpoint.handle import Level
from headrace.checkpoint.tree import Node
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError

_FORMAT = "headrace-checkpoint-pointer"
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a pointer file says."""

    store: str
    step: int
    epoch: int
    attempt: int
    part: str = ""  # key of the state; empty: all of it

    def write(self, path: str) -> None:
        """Put the file at `path`, whole or not at all; folders are made."""
        text = json.dumps({"format": _FORMAT, "version": 1, **asdict(self)}) + "\n"
        if "://" in path:
            import fsspec

            with fsspec.open(path, "w") as file:
                file.write(text)
            return
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".headrace-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError for what a store with pointers cannot have."""
    if options.get("tiers") is not None:
        raise InvalidArgumentError(
            "tiers: a path names a checkpoint in one store, so there are none here; use Checkpointer"
        )


def read_pointer(path: str) -> Pointer | None:
    """Return what the file at `path` says; None when it is no pointer.

    Raises:
        FileNotFoundError: there is no file.
        DataLossError: it is one, and damaged or of a newer program.
    """
    if "://" in path:
        import fsspec

        with fsspec.open(path, "rb") as file:
            raw = file.read(_MAX_BYTES)
    else:
        if os.path.isdir(path):
            return None
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES)
    if _FORMAT.encode() not in raw[:200]:
        return None
    try:
        found = json.loads(raw)
        if found["version"] != 1:
            raise ValueError(f"version {found['version']}")
        return Pointer(
            str(found["store"]),
            int(found["step"]),
            int(found["epoch"]),
            int(found["attempt"]),
            str(found["part"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataLossError(f"{path} names no checkpoint ({error})") from error


def save(
    checkpointer: Checkpointer, step: int, state: Any, wait: Level, loader: Any = None
) -> Pointer:
    """Save a state and return what names it, once it is published."""
    report = checkpointer.save(step, state, wait=wait, loader=loader).wait()
    return Pointer(checkpointer._url, step, report["epoch"], report["attempt"])


def load(pointer: Pointer, checkpointer: Checkpointer | None, path: str) -> Any:
    """Return the state that a pointer names, with all arrays made anew on the CPU.

    Raises:
        NotFoundError: that checkpoint was removed.
    """
    if checkpointer is None or checkpointer._url != pointer.store:
        checkpointer = Checkpointer(pointer.store, rank=0, world_size=1)
    store = checkpointer._store
    wanted = (pointer.step, pointer.epoch, pointer.attempt)
    try:
        reading = store.read(pointer.step, "memory")
        if _id_of(reading.entry) != wanted:  # the step was saved again
            reading = store.read_attempt(*wanted)
    except NotFoundError as error:
        raise NotFoundError(
            f"{path} names step {pointer.step}, epoch {pointer.epoch}, attempt {pointer.attempt} of "
            f"{pointer.store}, which is not there any more"
        ) from error
    document = decode(reading.tree(0), f"{pointer.store}, step {pointer.step}")
    if pointer.part:
        document = Document(_part(document.state, pointer.part, path), document.arrays)
    new = NewArrays(document, Tensors(reading.tensors()))
    state = new.build()
    store.restore(reading, [target.wanted() for target in new.targets], checkpointer._threads * 2)
    return new.finish(state)


def _part(tree: Node, key: str, path: str) -> Node:
    for own, node in tree.get("d", []):
        if own == key:
            found: Node = node
            return found
    raise NotFoundError(f"{path} names {key!r}, which is not in that checkpoint")


def remove(pointer: Pointer, checkpointer: Checkpointer) -> None:
    """Remove the checkpoint that a pointer names; one that is gone already is none to remove."""
    if checkpointer._url == pointer.store:
        checkpointer._store.remove(
            checkpointer._take_over(), [(pointer.step, pointer.epoch, pointer.attempt)]
        )


def _id_of(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    return (entry["step"], entry["epoch"], entry["attempt"])
