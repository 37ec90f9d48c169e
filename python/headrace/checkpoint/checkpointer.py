"""Saving and restoring of training states."""

from __future__ import annotations

import os
import socket
import time
import warnings
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace import _native
from headrace.checkpoint.arrays import Described, Source, describe
from headrace.checkpoint.beside import RecordBeside
from headrace.checkpoint.document import Document, decode, encode
from headrace.checkpoint.dtypes import stored_as
from headrace.checkpoint.filling import GivenArrays, NewArrays, Target, Tensors, allocate
from headrace.checkpoint.handle import Level, SaveHandle, check_level
from headrace.checkpoint.light import Kind, SavePolicy, put, replaced_paths, select
from headrace.checkpoint.repeat import Repeat
from headrace.checkpoint.tiers import TieredStore, default_level, places_of
from headrace.checkpoint.tree import Flat, flatten, path_text
from headrace.distributed import default_threads, rank_and_world
from headrace.errors import InvalidArgumentError, NotFoundError, StateError
from headrace.units import parse_size

if TYPE_CHECKING:
    from headrace.loader import Loader

Rows = list[dict[str, Any]]
# What a rank stores: number of the array, and its memory.
Owned = list[tuple[int, Source]]


@dataclass(slots=True)
class _Work:
    """What a save consists of."""

    plan: Any
    sources: Owned
    addresses: array[int] | None  # of all items, where nothing but they are to be copied
    tree: bytes


@dataclass(slots=True)
class _Restoring:
    """One checkpoint that is read into a state."""

    reading: Any
    document: Document
    tensors: Tensors
    new: NewArrays
    state: Any
    targets: list[Target]

    def skip(self, paths: Sequence[str]) -> None:
        """Do not read what lies at `paths`, which comes from elsewhere."""
        replaced = replaced_paths(self.document, paths)
        names = self.tensors.paths()
        self.targets = [target for target in self.targets if names[target.tensor] not in replaced]


class Checkpointer:
    """Saves states to a store (a folder, or ``s3://bucket/prefix``) and restores them.

    One process, or all ranks of a job, each with its own. Opening one for writing shuts out whoever
    wrote to the store before: its late saves are refused.

    A run that loads data with Headrace is recorded beside its checkpoints, for ``headrace report``, unless
    it is recorded elsewhere: ``dest/records``, see docs/formats/run-record.md.

    Args:
        dest: folder or URL.
        tiers: nearer places before `dest`: ``"memory"``, folders of this node's disks, over which a save
            is spread, and ``"peer://ADDRESS:PORT/NAME"``, another node that runs ``headrace ckpt
            serve``. With tiers a helper process holds the memory: what was saved survives this process,
            and is brought to the folders and from there to the peer and to `dest` behind its back. Of
            several ranks all must be on one node.
        drain_limit: bytes a second that go to `dest` at most, e.g. ``"200MB"``, and as many to the peer.
            With tiers.
        linger: seconds that the helper stays, to be restored from, after this process has died. With tiers.
        keep: checkpoints to keep: the newest `keep`; 0 keeps all.
        keep_every: besides, those whose step is a multiple of this; 0: none.
        level: what durable in this store means. Default: ``"local"`` for a folder, ``"remote"`` for a
            bucket; say ``"remote"`` for a mounted file system that outlives the node.
        arena_bytes: memory that states are copied into, e.g. ``"16GiB"``; taken at the first save, or by
            prepare(). Default: one state.
        threads: for copying and hashing. Default: the processors of this rank.
        reuse: name unchanged tensors of the checkpoint before instead of writing them again.
        light: paths (``"/model"``) that light saves hold, with `full_every`.
        full_every: of so many saves one holds all of the state, the first one always; the others are light.
        rank, world_size: as for the loader.
        publish_timeout: seconds for the slowest rank, counted from when this one is done.
        storage_options: as for ``headrace.open``.

    Raises:
        InvalidArgumentError, NotFoundError, ...: the place cannot be used.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str],
        *,
        tiers: Sequence[str | os.PathLike[str]] | None = None,
        keep: int = 3,
        keep_every: int = 0,
        level: Level | None = None,
        arena_bytes: int | str | None = None,
        threads: int | None = None,
        reuse: bool = True,
        light: Sequence[str] = (),
        full_every: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        publish_timeout: float = 1800.0,
        drain_limit: int | str = 0,
        linger: float = 900.0,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self._url = os.fspath(dest)
        storage = {name: str(value) for name, value in (storage_options or {}).items()}
        self._rank, self._world = rank_and_world(rank, world_size)
        folders, peer = ([], "") if tiers is None else places_of(tiers, self._url)
        self._level: Level = level or default_level(self._url, folders)
        check_level("memory", self._level)
        self._first_level: Level = "local" if folders else self._level
        self._store: Any = (
            _native.CheckpointStore.open(self._url, storage)
            if tiers is None
            else TieredStore(
                folders,
                self._url,
                self._level,
                storage,
                peer=peer,
                rank=self._rank,
                keep=keep,
                keep_every=keep_every,
                drain_limit=parse_size(drain_limit),
                linger=linger,
                timeout=publish_timeout,
            )
        )
        self._tiered = tiers is not None
        self._record = RecordBeside(self._url, folders)
        self._keep, self._keep_every = keep, keep_every
        self._arena_bytes = None if arena_bytes is None else parse_size(arena_bytes)
        self._threads = default_threads() if threads is None else threads
        self._reuse = reuse
        self._publish_timeout = publish_timeout
        self._saver: Any = None
        self._epoch: int | None = None
        self._plans: dict[str, tuple[Any, Any]] = {}  # by kind: of what arrays, and the plan
        self._repeats: dict[str, Repeat | None] = {}  # by kind
        self._last: SaveHandle | None = None
        self._policy = SavePolicy(light, full_every)
        self._restore_ns = 0
        self._read_from: dict[str, int] = {}  # bytes of the last restore, by tier
        #: What restore() returned last: step, full_step (older when that was light), light (paths), and
        #: with tiers `from`: bytes that came from each.
        self.restored: dict[str, Any] | None = None

    # --- saving -----------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        state: Any,
        *,
        wait: Level = "memory",
        timeout: float | None = None,
        loader: Loader | None = None,
        kind: Kind | None = None,
    ) -> SaveHandle:
        """Save a state: nested dicts, lists and tuples of tensors, arrays, numbers, strings, bytes.

        Returns when the state is safe at level `wait`; with ``"memory"`` that is when it is copied, and
        everything in it may be changed from then on. Of several ranks, plain tensors are taken from
        rank 0, and DTensors from all.

        Args:
            step: number of the step. Saving one again makes a new attempt; the newest counts.
            state: what to save.
            wait: level to wait for.
            timeout: seconds to wait for room in the arena and for the level.
            loader: its state and dataset version are kept with the checkpoint.
            kind: "full", or "light": what lies at the paths `light` of this checkpointer, or where it has
                none, a state that the caller has made smaller. Retention counts them apart. Default: as
                `full_every` says.

        Raises:
            InvalidArgumentError: Values that cannot be stored exactly, all named. Nothing was saved.
            TimeoutError: The arena is in use by saves before, or the level was not reached.
            HeadraceError: With `wait` beyond memory: the save failed.
        """
        check_level(wait, self._level)
        started = time.perf_counter()
        started_ns = time.time_ns()
        kind = kind or self._policy.next_kind()
        light = self._policy.paths if kind == "light" else ()
        if light:
            if self._saver is None:
                self.prepare(state)  # full ones must fit into the arena too
            state = select(state, light)
        work = self._work_for(state, kind, light)
        saver = self._start(work.plan.total_bytes)
        self._record.begin(self._take_over())
        loan = saver.borrow(work.plan.total_bytes, timeout)
        addresses = work.addresses
        if addresses is None:
            addresses = self._copy_strided(work.sources, work.plan, loan)
        info = {
            "step": step,
            "rank": self._rank,
            "world_size": self._world,
            "started_ns": started_ns,
            "kind": kind,
            "restore_ns": self._restore_ns,
            "dataset_version": ""
            if loader is None
            else str(loader.state_dict().get("dataset_version", "")),
            "tree": work.tree,
            "loader_state": b"" if loader is None else _loader_bytes(loader),
        }
        number = saver.submit(work.plan, loan, addresses, info)
        levels = (self._first_level, self._level)
        handle = SaveHandle(saver, number, step, levels, time.perf_counter() - started)
        self._last = handle
        self._policy.saved(kind, handle)
        self._warn_if_light_does_not_pay()
        try:
            if wait != "memory":
                handle.wait(wait, timeout)
                self._prune_after()
        finally:
            _native.book_save_stall(time.perf_counter() - started)
        return handle

    def _warn_if_light_does_not_pay(self) -> None:
        if self._policy.paths and not self._policy.warned:
            warning = self._policy.costs()["warning"]
            if warning:
                self._policy.warned = True
                warnings.warn(warning, stacklevel=3)

    def prepare(self, state: Any) -> None:
        """Take the arena's memory now, for states like this one, so that the first save is fast."""
        self._start(self._work_for(state, "full", ()).plan.total_bytes)

    def _work_for(self, state: Any, kind: Kind, light: Sequence[str]) -> _Work:
        repeat = self._repeats.get(kind)
        if repeat is not None and repeat.fits(state):
            return _Work(repeat.plan, [], repeat.addresses, repeat.text())
        flat = flatten(state)
        described = describe(flat)
        sources = self._own(described)
        plan = self._plan_for(flat, sources, kind)
        self._repeats[kind] = Repeat.of(flat, described, sources, plan, light)
        return _Work(plan, sources, None, encode(flat, described, light))

    def _own(self, described: Described) -> Owned:
        """What this rank stores: its number among the arrays, and its memory."""
        return [
            (number, source)
            for number, source in enumerate(described.sources)
            if source is not None
            and (
                (source.box is None and self._rank == 0) or (source.box and source.box.replica == 0)
            )
        ]

    def _plan_for(self, flat: Flat, sources: Owned, kind: Kind) -> Any:
        key = [
            (flat.paths[number], source.dtype, source.shape, _box_key(source))
            for number, source in sources
        ]
        if kind not in self._plans or self._plans[kind][0] != key:
            items = [_item(flat, number, source) for number, source in sources]
            self._plans[kind] = (key, _native.make_save_plan(items, as_files=True))
        return self._plans[kind][1]

    def _start(self, state_bytes: int) -> Any:
        if self._tiered and self._saver is not None and not self._saver.alive():
            self._begin_anew()
        if self._saver is None:
            self._saver = self._store.start_saver(
                epoch=self._take_over(),
                level=self._level,
                arena_bytes=max(self._arena_bytes or state_bytes, 1),
                copy_threads=self._threads,
                hash_threads=self._threads,
                reuse=self._reuse,
                publish_timeout_s=self._publish_timeout,
            )
        return self._saver

    def _begin_anew(self) -> None:
        """After the death of the helper: another one, and another epoch."""
        lost = "what was in its memory only is lost, what was durable is not"
        if self._world > 1:
            raise StateError(
                f"the checkpoint helper of rank {self._rank} died ({lost}): restart the job"
            )
        warnings.warn(f"the checkpoint helper died ({lost}); another one is started", stacklevel=4)
        self._saver = None
        self._epoch = None

    def _take_over(self) -> int:
        if self._epoch is None:
            epoch = 0
            if self._rank == 0:
                owner = f"{socket.gethostname()} process {os.getpid()}"
                epoch = self._store.take_over(owner)
                # Nobody else can publish any more, and nothing of this epoch is written yet.
                self._store.sweep(epoch=epoch, grace_s=0, dry_run=False)
                if self._tiered and self._keep > 0:
                    self._record.prune(self.list, epoch)
            self._epoch = _from_rank_zero(epoch, self._world)
        return self._epoch

    def _copy_strided(self, sources: Owned, plan: Any, loan: Any) -> array[int]:
        """Copies what is not in C order or not on the CPU; returns the addresses of the rest."""
        addresses = array("Q", bytes(8 * len(sources)))
        device_work = None
        for item, (_, source) in enumerate(sources):
            if source.strided is None:
                addresses[item] = source.address
                continue
            import torch

            if source.num_bytes == 0:
                continue
            memory = torch.from_dlpack(loan.view(plan.offset(item), plan.bytes(item)))
            target = memory.view(source.strided.dtype).reshape(source.shape)
            target.copy_(source.strided, non_blocking=True)
            if source.strided.device.type == "cuda":
                device_work = source.strided.device
        if device_work is not None:
            import torch

            torch.cuda.synchronize(device_work)
        return addresses

    # --- restoring --------------------------------------------------------------------------------

    def restore(
        self,
        step: int | Literal["latest"] = "latest",
        *,
        into: Any = None,
        like: Any = None,
        allow: Sequence[str] = (),
        level: Level = "memory",
        loader: Loader | None = None,
        light_only: bool = False,
    ) -> Any:
        """Return a saved state. Every byte is checked on the way.

        Of a light checkpoint the rest comes from the newest full one before it; `restored` says from which
        step.

        Args:
            step: which one; the newest published one by default.
            into: a state whose arrays are filled in place and returned in theirs places; its arrays may be
                DTensors of another mesh than those saved. Scalars, strings and bytes come from the
                checkpoint. Without it all arrays are made anew, on the CPU.
            like: a state whose arrays say only of which type and shape, and on which device or mesh, the
                new ones are to be: tensors on the meta device become tensors on the CPU.
            allow: paths (``"/optimizer"``) that may be missing on either side or differ. What does
                not fit stays as it is in ``into``, and comes as zeros with ``like``.
            level: only checkpoints that are durable at least at this level.
            loader: is given the loader's state that was saved with it.
            light_only: of a light checkpoint only the part that it holds; `into` is then such a part.

        Raises:
            NotFoundError: There is none, or of a light one no full one before it.
            InvalidArgumentError: Arrays do not fit: all are listed, none was changed.
            DataLossError: Bytes that fail their check, with file and offset.
        """
        started = time.perf_counter_ns()
        if like is not None:
            if into is not None:
                raise InvalidArgumentError("restore takes into= or like=, not both")
            into = allocate(like)
        reading = self._store.read(None if step == "latest" else step, level)
        document = self._document(reading)
        light = [] if light_only else document.light
        base = reading
        if not light:
            state = self._fill([self._prepare(reading, document, into, allow)])[0]
        else:
            base = self._store.read_full_before(reading, level)
            part = None if into is None else select(into, light)
            full = self._prepare(base, self._document(base), into, allow)
            full.skip(light)
            state, newer = self._fill([full, self._prepare(reading, document, part, allow)])
            state = put(state, newer, light)
        if loader is not None:
            self._restore_loader(reading, loader)
        self._restore_ns = time.perf_counter_ns() - started
        self.restored = {
            "step": int(reading.entry["step"]),
            "full_step": int(base.entry["step"]),
            "light": list(light),
            "seconds": self._restore_ns * 1e-9,
            "from": self._read_from,
        }
        return state

    def _document(self, reading: Any) -> Document:
        name = f"{self._store.name}, step {reading.entry['step']}"
        # What DCP saved has one tree, that of rank 0.
        tree = reading.tree(min(self._rank, reading.world_size - 1)) or reading.tree(0)
        return decode(tree, name)

    def _prepare(
        self, reading: Any, document: Document, into: Any, allow: Sequence[str]
    ) -> _Restoring:
        """Plan the reading of one checkpoint; changes nothing that the caller has."""
        tensors = Tensors(reading.tensors())
        new = NewArrays(document, tensors)
        if into is None:
            state = new.build()
            return _Restoring(reading, document, tensors, new, state, list(new.targets))
        given = GivenArrays(into, document, tensors, allow)
        given.plan()
        state = given.state(new)
        return _Restoring(
            reading, document, tensors, new, state, list(given.targets) + list(new.targets)
        )

    def _fill(self, parts: Sequence[_Restoring]) -> list[Any]:
        """Read what was planned; returns the states."""
        self._read_from = {}
        for part in parts:
            report = self._store.restore(
                part.reading,
                [target.wanted() for target in part.targets],
                self._threads * 2,
                # Other ranks of this node read what is not sharded too.
                self._world > 1,
            )
            for place, num_bytes in report.get("from", {}).items():
                self._read_from[place] = self._read_from.get(place, 0) + num_bytes
            for target in part.targets:
                if target.finish is not None:
                    target.finish()
        return [part.new.finish(part.state) for part in parts]

    def _restore_loader(self, reading: Any, loader: Loader) -> None:
        saved = reading.loader_state(0)
        if not saved:
            raise StateError(f"no loader was saved with step {reading.entry['step']}")
        import json

        loader.load_state_dict(json.loads(saved))

    # --- looking and tidying ----------------------------------------------------------------------

    def list(self) -> Rows:
        """Published checkpoints, from the oldest to the newest."""
        entries: Rows = self._store.entries()
        return entries

    def latest(self, level: Level = "memory") -> int | None:
        """The step of the newest checkpoint that is durable at `level`; None: there is none."""
        try:
            return int(self._store.read(None, level).entry["step"])
        except NotFoundError:
            return None

    def verify(self, step: int | Literal["latest"] = "latest") -> dict[str, Any]:
        """Read all of a checkpoint wherever it is durable, and compare it with its checksums.

        Returns:
            ``step``; ``files`` and ``bytes`` that were read, copies at several tiers counted each; and
            ``faults``, empty when all is well: of each damaged file the ``place`` (a level), ``file``,
            ``tensors`` (the first 20 that lie in it) and ``error``.

        Raises:
            NotFoundError: There is no such checkpoint.
        """
        reading = self._store.read(None if step == "latest" else step, "local")
        reports = self._store.verify(reading, self._threads)
        if not self._tiered:
            reports = {self._level: reports}
        return {
            "step": int(reading.entry["step"]),
            "files": sum(report["files"] for report in reports.values()),
            "bytes": sum(report["bytes"] for report in reports.values()),
            "faults": [
                {"place": place, **fault}
                for place, report in reports.items()
                for fault in report["faults"]
            ],
        }

    def costs(self) -> dict[str, Any]:
        """What the last saves of this checkpointer have cost.

        ``"full"`` and ``"light"``: means of each kind (stall_s, bytes of the state, written_bytes,
        reused_bytes, background_s) and how many there were; ``"per_step"``: stall and written bytes of
        all, divided by the steps between the first and the last; ``"warning"``: not empty when light
        saves do not pay.
        """
        return self._policy.costs()

    def advice(
        self, mtbf: float, *, restart: float = 0, step_time: float = 0, interval: float = 0
    ) -> dict[str, Any]:
        """How often to save: Young's formula with the times that this store has measured.

        Waste = stall / T + (T / 2 + drain + restart) / MTBF, least at T = sqrt(2 stall MTBF) (J. W. Young,
        1974), but never below the drain.

        Args:
            mtbf: seconds between failures of the whole job, on average.
            restart: seconds from a failure until restore() is called; what restore takes is measured.
            step_time: seconds of one step, to be told a whole number of steps.
            interval: seconds between saves; default: between the last two.

        Returns:
            ``advised_interval_s``, ``advised_steps``, ``advised_goodput`` (share of the time, 0 to 1),
            ``expected_goodput`` with the present interval, ``warning`` when that is shorter than the
            drain, the measured times, and all of it as ``text``.

        Raises:
            StateError: No full checkpoint of the store has measured times.
        """
        advice: dict[str, Any] = self._store.advise(mtbf, restart, step_time, interval)
        return advice

    def prune(self, *, dry_run: bool = False) -> Rows:
        """Remove what the rules of this checkpointer do not keep; returns what was decided and why.

        With tiers the helper does so at each of them, and this only tells what is decided at `dest`.
        """
        rows: Rows = self._store.prune(
            epoch=self._epoch,
            keep_last=self._keep if self._keep > 0 else 2**62,
            keep_every=self._keep_every,
            level=self._level,
            dry_run=dry_run,
        )
        if not dry_run and self._epoch is not None:
            self._record.prune(self.list, self._epoch)
        return rows

    def _prune_after(self) -> None:
        if self._rank != 0 or self._keep <= 0 or self._epoch is None:
            return
        if not self._tiered:  # with tiers the helper does, and records went when this run took over
            self.prune()

    def drain_progress(self) -> dict[str, Any]:
        """How far the drain to `dest` has come: files, bytes, rate, waiting checkpoints, last error.

        With ``input_stall``, which it was told last, as a share of the time; None: nothing yet. With a
        peer among the tiers ``peer`` tells the same of the drain to it.

        Raises:
            StateError: There is none: no tiers, nothing was saved yet, or this is not rank 0.
        """
        told = self._saver.status() if self._tiered and self._saver is not None else {}
        if "drain" not in told:
            raise StateError(
                "this checkpointer has no drain: it has no folders as tiers, or not begun"
            )
        progress: dict[str, Any] = told["drain"]
        if "peer_drain" in told:
            progress["peer"] = told["peer_drain"]
        return progress

    def report_input_stall(self, share: float, *, next_save_s: float | None = None) -> None:
        """Tell the drain how long training waits for input, so that it yields. About once a second.

        Only needed where training reads its input by something else: what the loaders of this process
        wait for is told by itself, and so is when the next save comes, if saves go on as they did.

        Args:
            share: of the time lately, 0 to 1.
            next_save_s: seconds until the next save, by when the drain should have ended.
        """
        if self._tiered and self._saver is not None:
            self._saver.report_stall(share)
            if next_save_s is not None:
                self._saver.next_save_in(next_save_s)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for all saves. Raises as SaveHandle.wait() for the last one."""
        if self._last is not None:
            self._last.wait(timeout=timeout)
            self._prune_after()

    def close(self) -> None:
        """Wait for all saves and give the memory back. Raises as wait().

        With tiers: until they are safe at the first one that is durable. The drain to `dest` goes on in
        the helper, which ends with it.
        """
        try:
            self.wait()
            if self._tiered and self._saver is not None:
                self._saver.bye()
        finally:
            self._record.end()
            self._policy.let_go()
            self._saver = None
            self._last = None

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:  # what is under way is given up; what was published stays
            self._record.end()
            self._policy.let_go()
            self._saver = None


def _loader_bytes(loader: Loader) -> bytes:
    import json

    return json.dumps(loader.state_dict()).encode()


def _box_key(source: Source) -> Any:
    return None if source.box is None else (source.box.shape, source.box.offset, source.box.length)


def _item(flat: Flat, number: int, source: Source) -> tuple[Any, ...]:
    stored = stored_as(source.dtype)
    if stored is None:
        raise InvalidArgumentError(f"elements of type {source.dtype} cannot be stored")
    path = path_text(flat.paths[number])
    if source.box is None:
        return (path, stored.dtype, source.shape + stored.extra, (), (), False)
    zeros = (0,) * len(stored.extra)
    box = source.box
    return (
        path,
        stored.dtype,
        box.shape + stored.extra,
        box.offset + zeros,
        box.length + stored.extra,
        False,
    )


def _from_rank_zero(epoch: int, world: int) -> int:
    """The epoch that rank 0 took; the one time that ranks talk to each other."""
    if world == 1:
        return epoch
    import torch.distributed as distributed

    if not distributed.is_initialized():
        raise StateError(
            "several ranks need torch.distributed to agree on who writes: initialize it first"
        )
    values: list[Any] = [epoch]
    distributed.broadcast_object_list(values, src=0)
    return int(values[0])
