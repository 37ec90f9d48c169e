"""The loader: batches of a known order, made by native threads ahead of their use."""

from __future__ import annotations

import json
import operator
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native, distributed, observe
from headrace.errors import HeadraceError, InvalidArgumentError, StateError
from headrace.process_end import at_process_end
from headrace.python_fields import PythonFields
from headrace.tensor import Tensor, converter
from headrace.transforms import NativeTransform, PythonTransform
from headrace.units import parse_size

if TYPE_CHECKING:
    from headrace.dataset import Dataset
    from headrace.device import DeviceCopier

Batch = dict[str, Any]
TransformLike = NativeTransform | PythonTransform | Callable[[bytes], Any]
# A transform, or several native ones by name: the views of a field.
FieldTransform = TransformLike | Mapping[str, NativeTransform]

# Next() waits this long at a time, so that Ctrl-C is seen at once.
_WAIT_SECONDS = 0.1


class Loader:
    """An iterable of batches in an exact, reproducible order.

    Each ``for batch in loader`` is one epoch: the first is epoch 0, then 1, and so on;
    ``set_epoch`` and ``load_state_dict`` say otherwise. A batch is a dict: for each field with a
    transform an array of shape [rows, ...], for each field without one a list of ``bytes`` (None
    where a sample lacks it), and under ``"__key__"`` the list of keys. Arrays share memory with the
    loader and may be kept; their memory is recycled after the last reference is gone.

    Args:
        dataset: what ``headrace.open`` returned.
        batch_size: rows of a batch on this rank. Exactly one of this and ``global_batch_size``.
        global_batch_size: rows of a batch over all ranks.
        seed: of the order and of all random draws.
        shuffle: False gives the samples in the dataset's order.
        rank, world_size: default from ``torch.distributed``, else from the environment (torchrun,
            MPI, Slurm), else 0 and 1.
        tail: what happens to the samples after the last full global batch: ``drop``, ``pad`` (the
            last batch is filled from the epoch's start; equal ``len()`` on all ranks) or ``uneven``
            (the last batch is short and may be missing on some ranks; for evaluation).
        threads: native worker threads; default: this process's processors / ranks on this node.
        max_threads: how far ``change_setting``, the admin socket and ``autotune`` may raise that;
            default: the same number, or ``threads`` where that is more.
        autotune: ``"on"`` lets the loader find, while the job runs, the fewest threads of 1 to
            ``max_threads`` that are within 3 % of the fastest, then the same of
            ``prefetch_requests`` and ``prefetch_bytes``, and look again when the speed changes. It
            tries numbers to learn of them, which may be slower for some seconds. The order of
            samples does not change. See docs/guide/waiting.md.
        memory_bytes: limit for batches being filled or waiting, e.g. ``"256MiB"``. Batches in your
            hands are not counted.
        transforms: field name -> ``headrace.transforms`` object or Python function of bytes. A dict
            of transforms instead gives several views of the field, ``batch[field]`` being a dict of
            arrays then: ``{"jpg": {"global": t1, "local": t2}}``. The names of images' views are
            numbered as they first appear; each view draws from the stream of its number, so that
            the crops are independent, and boxes follow the view of their own name (the first one
            where there is none).
        fields: fields of a batch; default: those of the dataset.
        on_error: what a bad sample does: ``raise`` (HeadraceError names shard, offset, key, reason),
            ``skip`` (the batch is shorter by it) or ``replace`` (a substitute drawn by a function of
            seed, epoch and position). In each no other sample moves.
        max_bad_samples, max_bad_rate: budgets of this run; passing one raises BudgetError. The rate
            counts from 1,000 samples on.
        quarantine: path of a JSONL file that gets a line for each bad sample.
        lanes, window_shards: of the order, see docs/formats/order.md; 0 = by default.
        device: ``"cuda"``, ``"cuda:1"``: the next batch is copied from page-locked memory on a side
            stream while you compute. Needs PyTorch. Not verified on a GPU.
        output: ``"torch"``, ``"numpy"``, ``"tensor"`` (headrace.Tensor, speaks DLPack), or
            ``"auto"``: torch when it has been imported, else tensor.
        verify_checksums: check the CRC32C of what is read.
        prefetch_bytes: of a dataset that is read through this node's cache: how many bytes are
            fetched at most before they are needed, e.g. ``"1GiB"``; 0 fetches nothing ahead. See
            docs/design/prefetch.md.
        prefetch_in_flight: bytes of fetches that are under way at once, at most.
        prefetch_requests: requests of fetches that are under way at once, at most.
        require_warm: refuse to begin (StateError, which says what to run) when something that the
            first epoch reads is not in this node's cache.

    Raises:
        InvalidArgumentError: settings that make no sense.
        StateError: ``device="cuda"`` where PyTorch finds no CUDA device.
        NotFoundError: a field that the dataset does not have.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        tail: str = "drop",
        threads: int | None = None,
        max_threads: int | None = None,
        autotune: str = "off",
        memory_bytes: int | str = "128MiB",
        transforms: Mapping[str, FieldTransform] | None = None,
        fields: list[str] | None = None,
        on_error: str = "raise",
        max_bad_samples: int = 1000,
        max_bad_rate: float = 0.01,
        quarantine: str | os.PathLike[str] | None = None,
        lanes: int = 0,
        window_shards: int = 0,
        device: Any = None,
        output: str = "auto",
        verify_checksums: bool = True,
        prefetch_bytes: int | str = "1GiB",
        prefetch_in_flight: int | str = "128MiB",
        prefetch_requests: int = 32,
        require_warm: bool = False,
    ) -> None:
        self.rank, self.world_size = distributed.rank_and_world(rank, world_size)
        self.global_batch_size = _global_batch(batch_size, global_batch_size, self.world_size)
        self._dataset = dataset
        native, python = _split_transforms(transforms or {})
        self._columns = _columns(dataset, native, python, fields)
        options = {
            "seed": _unsigned("seed", seed),
            "shuffle": bool(shuffle),
            "lanes": _unsigned("lanes", lanes),
            "window_shards": _unsigned("window_shards", window_shards),
            "global_batch_size": self.global_batch_size,
            "world_size": self.world_size,
            "rank": self.rank,
            "tail": tail,
            "threads": distributed.default_threads() if threads is None else int(threads),
            "max_threads": distributed.default_threads()
            if max_threads is None
            else int(max_threads),
            "autotune": _switch("autotune", autotune),
            "memory_bytes": _memory("memory_bytes", memory_bytes),
            "on_error": on_error,
            "max_bad_samples": _unsigned("max_bad_samples", max_bad_samples),
            "max_bad_rate": _rate("max_bad_rate", max_bad_rate),
            "quarantine": os.fsdecode(quarantine) if quarantine is not None else "",
            "verify_checksums": bool(verify_checksums),
            "prefetch_bytes": _memory("prefetch_bytes", prefetch_bytes),
            "prefetch_in_flight": _memory("prefetch_in_flight", prefetch_in_flight),
            "prefetch_requests": _unsigned("prefetch_requests", prefetch_requests),
            "node_ranks": distributed.node_ranks(),
            "require_warm": bool(require_warm),
            "columns": [
                (c.field, c.transform.to_json() if c.transform else "", c.required)
                for c in self._columns
            ],
        }
        output = "torch" if device is not None else output
        self._convert = converter(output)
        self._native = _native.Loader.create(dataset._native, options)
        self._python = PythonFields(python, on_error, seed, output) if python else None
        self._copier: DeviceCopier | None = None
        if device is not None:
            from headrace import device as copies

            self._copier = copies.DeviceCopier(device)
        self._next_epoch = 0
        self._start: tuple[int, int] | None = None
        self._undelivered_state: str | None = None
        self._iterator: weakref.ref[EpochIterator] | None = None
        _live_loaders.add(self)

    def __len__(self) -> int:
        """Return the number of batches of an epoch on this rank."""
        return self._native.num_batches

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or go on where ``load_state_dict`` says.

        One iterator is live at a time: a new one ends the old one.
        """
        observe.ensure_started()
        epoch, position = self._start if self._start is not None else (self._next_epoch, 0)
        self._native.begin(epoch, position)
        self._start = None
        self._undelivered_state = None
        self._next_epoch = epoch + 1
        iterator = EpochIterator(self)
        self._iterator = weakref.ref(iterator)
        if self._copier is not None:
            return self._copier.iterate(iterator, self)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration epoch ``epoch``, from its start.

        Between ``load_state_dict`` and the iteration that goes on from there, the epoch of that
        state keeps its position: a loop that calls ``set_epoch`` first in each epoch resumes right.
        """
        epoch = _unsigned("epoch", epoch)
        if self._undelivered_state is not None and self._start and self._start[0] == epoch:
            return
        self._start = (epoch, 0)
        self._undelivered_state = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands: behind the last batch that was given.

        A few integers and the dataset version; the same on every rank, so one rank may save it for
        all, and any world size may load it.
        """
        if self._undelivered_state is not None:
            state: dict[str, Any] = json.loads(self._undelivered_state)
            return state
        state = json.loads(
            self._copier.state if self._copier and self._copier.state else self._native.state_json()
        )
        if self._start is not None:
            state["epoch"], state["next_position"] = self._start
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration go on from ``state``.

        Raises:
            StateError: the state is of another dataset version or other settings; says which.
        """
        text = json.dumps(dict(state))
        self._start = self._native.check_state(text)
        self._undelivered_state = text

    def stats(self) -> dict[str, Any]:
        """Return what the loader did so far.

        ``stages`` has busy and wait seconds, bytes, counts, p50 and p99 of each stage, and log-scale
        histograms: ``durations[i]`` counts items that took 2**i to 2**(i+1) ns, ``waits[i]`` waits.
        ``pools`` has the same apart for the worker threads (``loader``) and the training loop
        (``consumer``): in each stage ``busy_seconds`` + ``wait_seconds`` + ``idle_seconds`` is
        ``thread_seconds``, wall time times threads; ``unbooked_seconds`` is in no stage.
        ``input_stall`` is the share of time that the consumer waited for a batch, and ``au`` (1 -
        that) the accelerator utilization as MLPerf Storage defines it: compute time / total time.
        ``decode`` counts the images decoded so far, those of batches ahead included:
        ``seek_points`` is how many were decoded from seek points, the other names say why an image
        was not (``no_record``: the dataset keeps none for it; ``progressive``, ``not_jpeg``,
        ``color_space``...; only those that occurred). ``seek_points`` is about those that the
        dataset's index lacks and the node's cache keeps: how many were found there (``used``) and
        built and kept (``added``), and the ``build_seconds`` that took (part of the stage
        ``decode``).

        ``cache`` is None unless the dataset is read through this node's cache, or by plan through
        memory alone (``in_memory``; what is read by number is not counted then). It has, of the
        epoch that was begun last, ``epoch_bytes`` (of the shards that this rank reads),
        ``expected_origin_bytes`` (of these: were not in the cache when it began; None while they
        are being counted) and ``epoch_origin_bytes`` (what this process has fetched since); and
        since this loader began, of this process: ``origin_bytes`` and ``origin_requests``,
        ``memory_hits``, ``disk_hits`` and ``misses`` (blocks) with ``memory_bytes`` and
        ``disk_bytes``, ``streamed_bytes`` (read past the cache), ``waits`` (for a block that
        another process fetched), ``hedges`` and ``hedge_bytes`` (second requests for late answers),
        ``prefetched_bytes``, ``unused_bytes`` (fetched ahead and given up unread),
        ``refused_blocks`` (the disk had no room or did not work), ``dropped_blocks`` (were found
        damaged, and fetched anew), ``degraded`` (how often the disk stopped to work), and of its plan
        ``has_plan``, ``keeps_all``, ``prefetch_request_limit`` (requests at once, as far as the
        origin bears them) and ``prefetch_overloads``.
        """
        stats: dict[str, Any] = self._native.stats()
        total = stats["wait_seconds"] + stats["step_seconds"]
        stats["input_stall"] = stats["wait_seconds"] / total if total > 0 else 0.0
        stats["au"] = 1.0 - stats["input_stall"]
        return stats

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that may change while the loader runs: what they are now, and their bounds.

        ``threads``, and of a dataset that is read through this node's cache ``prefetch_bytes``,
        ``prefetch_in_flight`` and ``prefetch_requests``. The most is what the loader was given.
        """
        return {
            name: Setting(value, least, most)
            for name, value, least, most in self._native.settings()
        }

    def change_setting(self, name: str, value: int | str) -> None:
        """Change one of ``settings``; sizes may be ``"64MiB"``. The order stays the same.

        The change is told to those who watch the process, and kept in the run's record.

        Raises:
            NotFoundError: the loader has no such setting.
            InvalidArgumentError: outside its bounds.
        """
        self._native.change_setting(name, _unsigned(name, _memory(name, value)))

    def close(self) -> None:
        """Stop the threads and free the memory. Batches that were given stay valid."""
        self._native.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise StateError(
            "a Loader cannot be pickled: pickle the Dataset and make the loader where it runs"
        )

    def _next_batch(self) -> Batch | None:
        while (native := self._native.next(_WAIT_SECONDS)) is False:
            pass  # back in Python: signals are handled here
        return None if native is None else self._assemble(native)

    def _assemble(self, native: _native.Batch) -> Batch:
        raw: dict[str, list[bytes | None]] = {}
        for column in self._columns:
            if column.transform is None:
                raw[column.field] = native.values(len(raw))
        made = self._apply_python(native, raw)
        batch: Batch = {}
        for index, column in enumerate(self._columns):
            if column.transform is None:
                batch[column.field] = made[column.field]
                continue
            shape = (native.num_rows, *column.transform.shape)
            tensor = Tensor(native.tensor(index), shape, column.transform.dtype)
            if column.view is None:
                batch[column.field] = self._convert(tensor)
            else:
                batch.setdefault(column.field, {})[column.view] = self._convert(tensor)
        batch["__key__"] = native.keys()
        return batch

    def _apply_python(
        self, native: _native.Batch, raw: dict[str, list[bytes | None]]
    ) -> Mapping[str, Any]:
        if self._python is None:
            return raw
        began = time.perf_counter()
        made = self._python.apply(self._native, native, raw)
        _native.book_python(time.perf_counter() - began)
        return made


class Setting(NamedTuple):
    """A setting of a running loader."""

    value: int
    min: int
    max: int


class EpochIterator(Iterator[Batch]):
    """One pass over an epoch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._done = False

    def check_current(self) -> None:
        """Raise StateError when a newer iterator of the loader began."""
        current = self._loader._iterator
        if current is None or current() is not self:
            self._done = True
            raise StateError("this iterator ended when a newer one of its loader began")

    def __next__(self) -> Batch:
        if self._done:
            raise StopIteration
        self.check_current()
        batch = self._loader._next_batch()
        if batch is None:
            self._done = True
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return len(self._loader)


_live_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


@at_process_end
def _close_all() -> None:
    for loader in list(_live_loaders):
        try:
            loader.close()
        except HeadraceError:
            pass  # the interpreter is going down; there is no one to tell


def _global_batch(batch_size: int | None, global_batch_size: int | None, world: int) -> int:
    if (batch_size is None) == (global_batch_size is None):
        raise InvalidArgumentError(
            "give exactly one of batch_size (rows on this rank) and global_batch_size (rows over "
            "all ranks)"
        )
    name = "global_batch_size" if batch_size is None else "batch_size"
    given = global_batch_size if batch_size is None else batch_size
    try:
        rows = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"{name}: expected a whole number, found {given!r}") from None
    if rows < 1:
        raise InvalidArgumentError(f"the batch size must be at least 1, found {rows}")
    return rows * world if batch_size is not None else rows


class _Column(NamedTuple):
    """What one array, or one list of bytes, of a batch is made from."""

    field: str
    view: str | None
    transform: NativeTransform | None
    required: bool


Views = dict[str | None, NativeTransform]


def _split_transforms(
    transforms: Mapping[str, FieldTransform],
) -> tuple[dict[str, Views], dict[str, PythonTransform]]:
    native: dict[str, Views] = {}
    python: dict[str, PythonTransform] = {}
    streams = _streams(transforms)
    for name, transform in transforms.items():
        if isinstance(transform, NativeTransform):
            native[name] = {None: transform}
        elif isinstance(transform, PythonTransform):
            python[name] = transform
        elif isinstance(transform, Mapping):
            native[name] = _views(name, transform, streams)
        elif callable(transform):
            python[name] = PythonTransform(transform)
        else:
            raise InvalidArgumentError(
                f"transforms[{name!r}]: expected a headrace.transforms object, a dict of them or a "
                f"function, found {type(transform).__name__}"
            )
    return native, python


def _streams(transforms: Mapping[str, FieldTransform]) -> dict[str, int]:
    """Number the names of the views of images as they first appear."""
    names = [
        view
        for views in transforms.values()
        if isinstance(views, Mapping)
        for view, transform in views.items()
        if isinstance(transform, NativeTransform) and transform.kind == "image"
    ]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _views(field: str, views: Mapping[str, NativeTransform], streams: dict[str, int]) -> Views:
    """Give each view the stream of its name."""
    if not views:
        raise InvalidArgumentError(f"transforms[{field!r}]: expected at least one view, found none")
    made: Views = {}
    for view, transform in views.items():
        if not isinstance(transform, NativeTransform):
            raise InvalidArgumentError(
                f"transforms[{field!r}][{view!r}]: views are headrace.transforms objects, found "
                f"{type(transform).__name__}"
            )
        made[view] = transform.with_stream(streams[view]) if view in streams else transform
    return made


def _columns(
    dataset: Dataset,
    native: Mapping[str, Views],
    python: Mapping[str, PythonTransform],
    fields: list[str] | None,
) -> list[_Column]:
    """Return the columns of a batch. Those that follow an image's geometry come last."""
    names = list(dataset.fields if fields is None else fields)
    names += [name for name in (*native, *python) if name not in names]
    asked = set(native) | set(python) | set(fields or [])
    nothing: Mapping[str | None, NativeTransform | None] = {None: None}
    columns = [
        _Column(name, view, transform, name in asked)
        for name in names
        for view, transform in native.get(name, nothing).items()
    ]
    return sorted(columns, key=lambda c: c.transform is not None and c.transform.kind == "boxes")


def _memory(name: str, value: int | str) -> int:
    try:
        return parse_size(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error.message}") from None


def _switch(name: str, value: str) -> bool:
    if value not in ("on", "off"):
        raise InvalidArgumentError(f"{name}: expected 'on' or 'off', found {value!r}")
    return value == "on"


def _rate(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise InvalidArgumentError(f"{name}: expected 0 to 1, found {value}")
    return float(value)


def _unsigned(name: str, value: int) -> int:
    if not 0 <= value < 1 << 64:
        raise InvalidArgumentError(f"{name}: expected 0 to 2**64 - 1, found {value}")
    return int(value)
