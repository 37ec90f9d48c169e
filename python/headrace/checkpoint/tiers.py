"""A checkpoint store with nearer tiers before it: a helper's memory, folders of this node, a peer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headrace import _native
from headrace.checkpoint import helper
from headrace.errors import HeadraceError, InvalidArgumentError, StateError

Rows = list[dict[str, Any]]

_PEER = "peer://"


def places_of(tiers: Sequence[str | os.PathLike[str]], dest: str) -> tuple[list[str], str]:
    """The folders among `tiers`, absolute, and the peer behind them: "" when there is none.

    Raises:
        InvalidArgumentError: A tier that is no folder of this node, or comes at the wrong place.
    """
    if isinstance(tiers, (str, os.PathLike)):
        tiers = [tiers]
    names = [os.fspath(tier) for tier in tiers]
    if not names:
        raise InvalidArgumentError('tiers=[] names none: leave it out, or say tiers=["memory"]')
    if "memory" in names[1:]:
        raise InvalidArgumentError('"memory" is the nearest tier: it comes first')
    folders = [name for name in names if name != "memory"]
    peer = folders.pop() if folders and folders[-1].startswith(_PEER) else ""
    if peer and not folders:
        raise InvalidArgumentError(
            f"the peer {peer!r} comes behind a folder of this node, from which it is sent: name one "
            f"before it"
        )
    for name in folders:
        if name.startswith(_PEER):
            raise InvalidArgumentError(f"there is one peer, behind all folders, not {name!r}")
        if "://" in name or name in ("local", "peer", "remote"):
            raise InvalidArgumentError(
                f"a tier is 'memory', a folder of this node or peer://ADDRESS:PORT/NAME, not "
                f"{name!r}: the last one is the destination, {dest!r}"
            )
    return [str(Path(name).absolute()) for name in folders], peer


class TieredSaver:
    """Saves through the helper. As the native saver, for one `Checkpointer`."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.borrow = native.borrow
        self.submit = native.submit

    def wait(self, number: int, timeout: float | None, level: str) -> dict[str, Any]:
        """Wait until a save has reached a level."""
        report: dict[str, Any] = self._native.wait_for(number, level, timeout)
        return report

    def ended(self, number: int, level: str) -> bool:
        """Whether it has; raises when it never will."""
        reached: bool = self._native.reached(number, level)
        return reached

    def alive(self) -> bool:
        """Whether the helper still runs.

        Raises:
            StateError: this is a forked child of the process that opened it.
        """
        try:
            self._native.status()
        except StateError:
            raise
        except HeadraceError:
            return False
        return True

    def status(self) -> dict[str, Any]:
        """What the helper tells of itself."""
        told: dict[str, Any] = json.loads(self._native.status())
        return told

    def report_stall(self, share: float) -> None:
        """Tell the drain of the loader's input stall, as a share of the time."""
        self._native.report_stall(share)

    def next_save_in(self, seconds: float) -> None:
        """Tell the drain by when it should have ended."""
        self._native.set_deadline(seconds)

    def bye(self) -> None:
        """The helper may end when all is drained."""
        self._native.bye()


class TieredStore:
    """What a ``Checkpointer`` asks of a store, over all tiers. As ``_native.CheckpointStore``."""

    def __init__(
        self,
        folders: Sequence[str],
        dest: str,
        level: str,
        storage: dict[str, str],
        *,
        peer: str = "",
        rank: int,
        keep: int,
        keep_every: int,
        drain_limit: int,
        linger: float,
        timeout: float,
    ) -> None:
        dest = dest if "://" in dest else str(Path(dest).absolute())
        self._tiers = _native.CheckpointTiers.open(folders, dest, level, storage, peer)
        self._dest, self._storage = dest, storage
        self._rank, self._timeout = rank, timeout
        self._keep, self._keep_every = keep, keep_every
        self._drain_limit, self._linger = drain_limit, linger
        self._helper: Any = None

    @property
    def name(self) -> str:
        """The destination."""
        return self._tiers.name

    @property
    def levels(self) -> list[str]:
        """Those that a save reaches, from the nearest."""
        return self._tiers.levels

    # --- saving -----------------------------------------------------------------------------------

    def _connect(self) -> Any:
        if self._helper is None:
            self._helper = helper.connect(self._tiers, self._rank)
            # What an earlier trainer handed in is published under its epoch, while that counts.
            self._helper.settle(self._timeout)
        return self._helper

    def take_over(self, owner: str) -> int:
        """Shut out earlier writers of all tiers, once their helper has published what it has."""
        self._connect()
        return self._tiers.take_over(owner)

    def sweep(self, epoch: int, grace_s: float, dry_run: bool) -> None:
        """Remove what no checkpoint names."""
        self._tiers.sweep(epoch)

    def start_saver(
        self,
        *,
        epoch: int,
        level: str,
        arena_bytes: int,
        copy_threads: int,
        hash_threads: int,
        reuse: bool,
        publish_timeout_s: float,
    ) -> TieredSaver:
        """Open the helper for an epoch."""
        native = self._connect()
        native.open(
            self._tiers,
            rank=self._rank,
            epoch=epoch,
            arena_bytes=arena_bytes,
            threads=copy_threads,
            reuse=reuse,
            keep_last=self._keep,
            keep_every=self._keep_every,
            drain_limit=self._drain_limit,
            publish_timeout_s=publish_timeout_s,
            linger_s=self._linger,
        )
        self._helper = None  # the saver's now; another start connects anew
        return TieredSaver(native)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, step: int | None, level: str) -> Any:
        """The newest checkpoint of any tier."""
        return self._tiers.read(step, level, self._rank, self._timeout)

    def read_full_before(self, light: Any, level: str) -> Any:
        """The newest full one before a light one."""
        return self._tiers.read_full_before(light, level, self._rank, self._timeout)

    def restore(
        self, reading: Any, wanted: Any, threads: int, shared_whole: bool = False
    ) -> dict[str, Any]:
        """Fill arrays; says how many bytes came from where."""
        report: dict[str, Any] = self._tiers.restore(reading, wanted, threads, shared_whole)
        return report

    def verify(self, reading: Any, threads: int) -> dict[str, dict[str, Any]]:
        """Read all of a checkpoint at each tier that lists it; reports by level."""
        reports: dict[str, dict[str, Any]] = self._tiers.verify(reading, threads)
        return reports

    def entries(self) -> Rows:
        """Published checkpoints, each with the farthest level that it has reached."""
        return self._tiers.entries()

    def prune(
        self, epoch: int | None, keep_last: int, keep_every: int, level: str, dry_run: bool
    ) -> Rows:
        """What the rules would leave at the destination. The helper prunes, after each save."""
        return self._tiers.prune_plan(keep_last, keep_every)

    def advise(self, *arguments: Any) -> Mapping[str, Any]:
        """As the destination's store."""
        store: Any = _native.CheckpointStore.open(self._dest, self._storage)
        advice: Mapping[str, Any] = store.advise(*arguments)
        return advice


def default_level(dest: str, folders: Sequence[str]) -> Literal["local", "peer", "remote"]:
    """What durable at the destination means when nobody says."""
    if dest.startswith(_PEER):
        return "peer"
    return "remote" if folders or "://" in dest else "local"
