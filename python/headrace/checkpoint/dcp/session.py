"""A store that is written to under an epoch, and the arena that saves are copied into."""

from __future__ import annotations

import os
import socket
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace import _native
from headrace.checkpoint.dtypes import stored_as
from headrace.checkpoint.handle import Level, check_level
from headrace.checkpoint.tree import Path, path_text
from headrace.distributed import default_threads
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.units import parse_size

# Room beside the tensors: what a planner gives as streams, whose size is not known beforehand.
SLACK_BYTES = 1 << 20
_MIB = 1 << 20


@dataclass(slots=True)
class Piece:
    """A box to be saved."""

    path: Path
    dtype: str  # PyTorch's name
    shape: tuple[int, ...]  # of the whole tensor
    offset: tuple[int, ...]
    length: tuple[int, ...]
    num_bytes: int
    address: int  # of its bytes in C order; 0: `strided` has to be copied
    keep: Any  # owns the memory
    strided: Any = None

    def item(self) -> tuple[str, str, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
        """The piece as make_save_plan takes it."""
        stored = stored_as(self.dtype)
        if stored is None:
            raise InvalidArgumentError(f"elements of type {self.dtype} cannot be stored")
        zeros = (0,) * len(stored.extra)
        return (
            path_text(self.path),
            stored.dtype,
            self.shape + stored.extra,
            self.offset + zeros,
            self.length + stored.extra,
            False,
        )


def padded(num_bytes: int) -> int:
    """Return the room that a piece takes in a loan: as SavePlan lays them out, one by one."""
    return (num_bytes + 63) // 64 * 64


class Session:
    """The store, this process's epoch and its saver. One thread at a time."""

    def __init__(
        self,
        dest: str | os.PathLike[str],
        level: Level | None,
        arena_bytes: int | str | None,
        threads: int | None,
        reuse: bool,
        publish_timeout: float,
        storage_options: Mapping[str, object] | None,
    ) -> None:
        self.url = os.fspath(dest)
        storage = {name: str(value) for name, value in (storage_options or {}).items()}
        self.store = _native.CheckpointStore.open(self.url, storage)
        self.level: Level = level or ("remote" if "://" in self.url else "local")
        check_level("memory", self.level)
        self.publish_timeout = publish_timeout
        self.epoch: int | None = None
        self._arena_bytes = None if arena_bytes is None else parse_size(arena_bytes)
        self._threads = default_threads() if threads is None else threads
        self._reuse = reuse
        self._saver: Any = None

    def latest_step(self) -> int | None:
        """The step of the newest checkpoint."""
        try:
            return int(self.store.read(None, "memory").entry["step"])
        except NotFoundError:
            return None

    def take_over(self) -> int:
        """Shut out whoever wrote before; returns the new epoch. On one rank of a job."""
        epoch = self.store.take_over(f"{socket.gethostname()} process {os.getpid()}")
        # Nobody else can publish any more, and nothing of this epoch is written yet.
        self.store.sweep(epoch=epoch, grace_s=0, dry_run=False)
        self.join(epoch)
        return epoch

    def join(self, epoch: int) -> None:
        """Write under an epoch that a rank of this job took."""
        if epoch != self.epoch:
            self._saver = None  # ends what was under way
            self.epoch = epoch

    def saver(self, state_bytes: int) -> Any:
        """Return the saver, with an arena that holds a state of this size."""
        needed = state_bytes + SLACK_BYTES
        if self._saver is not None and self._saver.arena_bytes < needed:
            self._saver = None
        if self._saver is None:
            if self.epoch is None:
                raise AssertionError("no epoch")
            self._saver = self.store.start_saver(
                epoch=self.epoch,
                level=self.level,
                # Whole pages, and a little more: streams differ in length from save to save.
                arena_bytes=max(
                    self._arena_bytes or 0, (needed + needed // 64 + _MIB) // _MIB * _MIB
                ),
                copy_threads=self._threads,
                hash_threads=self._threads,
                reuse=self._reuse,
                publish_timeout_s=self.publish_timeout,
            )
        return self._saver

    def close(self) -> None:
        """End what is under way and give the arena back."""
        self._saver = None


class Submission:
    """Pieces on their way into a loan of the arena; submit() hands them to the saver."""

    def __init__(self, saver: Any, pieces: Sequence[Piece], loan: Any | None) -> None:
        self.saver = saver
        self._pieces = pieces
        # As the stager has put them.
        self._plan = _native.make_save_plan([piece.item() for piece in pieces], as_files=False)
        self._loan = saver.borrow(self._plan.total_bytes) if loan is None else loan
        self._addresses = array("Q", bytes(8 * len(pieces)))
        self._started_ns = time.time_ns()
        self._copy()

    def _copy(self) -> None:
        """Copies what is not in C order or not on the CPU; the rest is copied by submit()."""
        devices = set()
        for number, piece in enumerate(self._pieces):
            if piece.strided is None:
                self._addresses[number] = piece.address
            elif piece.num_bytes:
                target = tensor_in(
                    self._loan,
                    self._plan.offset(number),
                    piece.num_bytes,
                    piece.strided.dtype,
                    piece.length,
                )
                target.copy_(piece.strided, non_blocking=True)
                devices.add(piece.strided.device)
                piece.keep = piece.strided = None
        synchronize(devices)

    def submit(self, info: dict[str, Any]) -> int:
        """Copy the rest and start the save; returns its number."""
        number = self.saver.submit(
            self._plan, self._loan, self._addresses, {"started_ns": self._started_ns, **info}
        )
        self._pieces = ()
        return int(number)


def tensor_in(loan: Any, offset: int, num_bytes: int, dtype: Any, shape: Sequence[int]) -> Any:
    """Return a part of a loan as a tensor."""
    import torch

    if num_bytes == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    memory = torch.from_dlpack(loan.view(offset, num_bytes))
    return memory.view(dtype).reshape(tuple(shape))


def synchronize(devices: set[Any]) -> None:
    """Wait for copies from these devices."""
    import torch

    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
