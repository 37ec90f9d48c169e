"""The side of ``dcp.load`` that reads."""

from __future__ import annotations

import io
import json
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from headrace import _native
from headrace.checkpoint.arrays import View
from headrace.checkpoint.dcp.layout import planner_data_of, step_of
from headrace.checkpoint.document import Document, Stored, decode
from headrace.checkpoint.dtypes import stored_as, torch_dtypes
from headrace.checkpoint.filling import NewArrays, Tensors, Wanted, _view_of
from headrace.checkpoint.handle import Level
from headrace.checkpoint.tree import Node, path_text, unflatten
from headrace.distributed import default_threads
from headrace.errors import DataLossError, InvalidArgumentError, StateError

_KEY = "headrace"
# Tensors that cannot be read in place (on a device, of another type) go through memory of this size.
_BOUNCE_BYTES = 256 << 20


class HeadraceReader(StorageReader):  # type: ignore[misc]
    """Reads into what ``dcp.load`` was given, on any mesh, whatever mesh and program saved it: each rank
    only its own part, each byte checked against its CRC32C, straight to where it belongs.

    Args:
        dest: folder, or ``s3://bucket/prefix``.
        step: which one, unless ``checkpoint_id`` says so by its last number: the newest by default.
        level: only checkpoints that are durable at least at this level.
        threads: that read at once. Default: twice the processors of this rank.
        storage_options: as for ``headrace.open``.

    Raises (from ``dcp.load``; of several ranks inside DCP's CheckpointException):
        NotFoundError: there is none.
        DataLossError: bytes that fail their check, with file and offset.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str],
        *,
        step: int | Literal["latest"] = "latest",
        level: Level = "memory",
        threads: int | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self._url = os.fspath(dest)
        storage = {name: str(value) for name, value in (storage_options or {}).items()}
        self._store = _native.CheckpointStore.open(self._url, storage)
        self._default = self._step = None if step == "latest" else step
        self._level = level
        self._threads = 2 * default_threads() if threads is None else threads
        self._load_id = uuid.uuid4().hex
        self._reading: Any = None
        self._content: _Content | None = None

    @property
    def checkpoint_id(self) -> str:
        """The store."""
        return self._url

    # --- DCP's interface --------------------------------------------------------------------------

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._load_id = uuid.uuid4().hex
        self._step = self._default
        if checkpoint_id is not None and str(checkpoint_id) != "latest":
            self._step = step_of(checkpoint_id)

    # Not called kwargs: for those DCP asks again, for metadata of one rank alone.
    def read_metadata(self, *args: Any, **ignored: Any) -> Any:
        self._reading = self._store.read(self._step, self._level)
        name = f"{self._store.name}, step {self._reading.entry['step']}"
        self._content = _Content(self._reading, name)
        found = dcp_metadata.Metadata(
            state_dict_metadata={
                name: _metadata_of(one) for name, one in self._content.entries.items()
            },
            planner_data=self._content.planner_data(),
        )
        found.storage_meta = dcp_metadata.StorageMeta(
            checkpoint_id=self.checkpoint_id, load_id=self._load_id
        )
        return found

    def set_up_storage_reader(
        self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        for plan in plans:
            plan.storage_data = {_KEY: self._identity()}
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        content = self._content
        if content is None:
            raise StateError("read_data: read_metadata comes first")
        told = (plan.storage_data or {}).get(_KEY, self._identity())
        if told != self._identity():
            raise StateError(
                f"rank 0 found step {told[0]} and this rank step {self._identity()[0]}: a checkpoint was "
                "published meanwhile; load again, or name the step"
            )
        self._read_tensors(
            [item for item in plan.items if item.type != LoadItemType.BYTE_IO], content, planner
        )
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self._stream(item, content)))
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            return str(checkpoint_id) == "latest" or step_of(checkpoint_id) >= 0
        except InvalidArgumentError:
            return False

    # --- reading ----------------------------------------------------------------------------------

    def _identity(self) -> tuple[int, int, int]:
        entry = self._reading.entry
        return (entry["step"], entry["epoch"], entry["attempt"])

    def _restore(self, wanted: Sequence[Wanted]) -> None:
        # Other ranks of this node read what is not sharded too.
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        self._store.restore(self._reading, wanted, self._threads, ranks > 1)

    def _read_tensors(
        self, items: Sequence[ReadItem], content: _Content, planner: LoadPlanner
    ) -> None:
        reads = _Reads(self._restore)
        for item in items:
            entry = content.entry(item.storage_index.fqn)
            target = planner.resolve_tensor(item).detach()
            if tuple(target.shape) != tuple(item.lengths):
                raise InvalidArgumentError(
                    f"{item.storage_index.fqn}: the planner gave {tuple(target.shape)} for a part of "
                    f"{tuple(item.lengths)}"
                )
            if entry.view is not None:
                self._read_view(content, entry, item, target)
                planner.commit_tensor(item, target)
            else:
                reads.add(entry, item, target, lambda i=item, t=target: planner.commit_tensor(i, t))
        reads.flush()

    def _read_view(self, content: _Content, entry: _Entry, item: ReadItem, target: Any) -> None:
        """A tensor that shares another one's memory: that one is read as a whole."""
        assert entry.view is not None
        whole = content.read_view(entry.view, self._restore)
        part = whole
        for axis, (offset, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            part = part.narrow(axis, offset, length)
        target.copy_(part)

    def _stream(self, item: ReadItem, content: _Content) -> bytes:
        """What is no tensor, as torch.save writes it."""
        entry = content.entry(item.storage_index.fqn)
        value: Any
        if entry.tensor is not None:
            memory = torch.empty(entry.num_bytes, dtype=torch.uint8)
            if entry.num_bytes:
                zero, all_ = (0,), tuple(entry.shape)
                self._restore([(entry.tensor, zero, all_, memory.data_ptr(), entry.num_bytes)])
            value = memory.numpy().tobytes()
            if content.has_streams:
                return bytes(value)
        else:
            value = unflatten(entry.node or {"v": None}, _no_array)
        stream = io.BytesIO()
        torch.save(value, stream)
        return stream.getvalue()


def _no_array(number: int, kind: str) -> Any:
    raise ValueError(f"array {number} where a value was expected")


@dataclass(slots=True)
class _Entry:
    """What a name of the state dict stands for."""

    tensor: int | None = None  # its number in the manifest
    dtype: Any = None  # PyTorch's; None: no tensor for the planner
    shape: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    num_bytes: int = 0
    node: Node | None = None
    view: View | None = None


class _Content:
    """A checkpoint by names."""

    def __init__(self, reading: Any, name: str) -> None:
        text = reading.tree(0)
        self._name = name
        self._document: Document = decode(text, name)
        self._tensors = Tensors(reading.tensors())
        self._dcp: Mapping[str, Any] | None = json.loads(text).get("dcp")
        #: Whether bytes are streams of torch.save, as DCP's planners make them.
        self.has_streams = self._dcp is not None
        self._bases: dict[int, Any] = {}
        self.entries: dict[str, _Entry] = {}
        if self._dcp is None:
            for path, node in _leaves(self._document.state, ()):
                self.entries[".".join(map(str, path))] = self._entry(node)
        else:
            for key, path in self._dcp["names"]:
                self.entries[key] = self._entry(_find(self._document.state, path, name))

    def planner_data(self) -> Any:
        """The planner's part of the metadata."""
        if self._dcp is None:
            leaves = _leaves(self._document.state, ())
            return {".".join(map(str, path)): path for path, _ in leaves}
        try:
            return planner_data_of(self._dcp)
        except pickle.UnpicklingError as error:
            raise StateError(
                f"{self._name}: what the planner saved has objects that are not loaded ({error})"
            ) from error

    def entry(self, name: str) -> _Entry:
        """Raises InvalidArgumentError when there is none."""
        if name not in self.entries:
            raise InvalidArgumentError(f"{self._name} has no {name!r}")
        return self.entries[name]

    def _entry(self, node: Node) -> _Entry:
        if "a" not in node:
            return _Entry(node=node)
        array = self._document.arrays[node["a"]]
        if isinstance(array, View):
            return _Entry(dtype=_torch_dtype(array.dtype), shape=array.shape, view=array)
        number, shape, extra = self._place(array)
        dtype = None if node["as"] == "bytes" else _torch_dtype(array.dtype)
        return _Entry(number, dtype, shape, extra, _num_bytes(array.dtype, shape))

    def _place(self, array: Stored) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        number = self._tensors.number(array.path)
        stored = stored_as(array.dtype)
        if number is None or stored is None:
            raise DataLossError(
                f"{self._name}: {array.path} is in the tree and not in the manifest"
            )
        shape = self._tensors.stored(number)[1]
        return number, tuple(shape[: len(shape) - len(stored.extra)]), stored.extra

    def read_view(self, view: View, restore: Any) -> Any:
        """Return a tensor that lies inside another one, which is read once."""
        base = self._document.arrays[view.base]
        if isinstance(base, View):
            raise DataLossError(f"{self._name}: a view of a view")
        if view.base not in self._bases:
            new = NewArrays(self._document, self._tensors)
            self._bases[view.base] = new._buffer(view.base, base)
            restore([target.wanted() for target in new.targets])
        return _view_of(self._bases[view.base], view, "torch")


def _leaves(
    node: Node, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Node]]:
    """The leaves as flatten_state_dict finds them: empty containers are leaves, too."""
    children: list[tuple[str | int, Node]] = []
    if "d" in node:
        children = [(str(key), child) for key, child in node["d"]]
    elif "l" in node or "t" in node:
        children = list(enumerate(node.get("l") or node.get("t") or []))
    if not children:
        yield path, node
    for key, child in children:
        yield from _leaves(child, (*path, key))


def _find(node: Node, path: Sequence[str | int], name: str) -> Node:
    for key in path:
        if "d" in node:
            found = [child for own, child in node["d"] if own == key]
        else:
            found = [child for own, child in enumerate(node.get("l") or []) if own == key]
        if not found:
            raise DataLossError(f"the tree of {name} has no {path_text(tuple(path))}")
        node = found[0]
    return node


def _torch_dtype(name: str) -> Any:
    dtype = torch_dtypes().get(name)
    if dtype is None:
        raise InvalidArgumentError(f"this PyTorch has no {name}: use a newer one")
    return dtype


def _num_bytes(dtype: str, shape: Sequence[int]) -> int:
    stored = stored_as(dtype)
    count = stored.itemsize if stored is not None else 1
    for length in shape:
        count *= length
    return count


def _metadata_of(entry: _Entry) -> Any:
    if entry.dtype is None:
        return dcp_metadata.BytesStorageMetadata()
    size = torch.Size(entry.shape)
    # One chunk, whatever boxes it was saved in: any part of it can be read.
    chunk = dcp_metadata.ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
    properties = dcp_metadata.TensorProperties(dtype=entry.dtype)
    return dcp_metadata.TensorStorageMetadata(properties=properties, size=size, chunks=[chunk])


class _Reads:
    """Collects reads, and makes them at once where they go straight to their targets."""

    def __init__(self, restore: Any) -> None:
        self._restore = restore
        self._wanted: list[Wanted] = []
        self._finish: list[Any] = []
        self._bounce_bytes = 0

    def add(self, entry: _Entry, item: ReadItem, target: Any, commit: Any) -> None:
        """Read a part of a tensor into `target`; `commit` is called when it is there."""
        num_bytes = target.numel() * entry.dtype.itemsize
        in_place = (
            target.device.type == "cpu"
            and target.is_contiguous()
            and target.dtype == entry.dtype
            and not (target.is_conj() or target.is_neg())
        )
        memory = target
        if not in_place:
            memory = torch.empty(tuple(target.shape), dtype=entry.dtype)
            self._bounce_bytes += num_bytes
        if num_bytes:
            zeros = (0,) * len(entry.extra)
            offset, length = tuple(item.storage_offsets), tuple(item.lengths)
            assert entry.tensor is not None
            self._wanted.append(
                (
                    entry.tensor,
                    offset + zeros,
                    length + entry.extra,
                    memory.data_ptr(),
                    num_bytes,
                )
            )
        self._finish.append((memory, target, commit))
        if self._bounce_bytes >= _BOUNCE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Read all that was collected."""
        if self._wanted:
            self._restore(self._wanted)
        with torch.no_grad():
            for memory, target, commit in self._finish:
                if memory is not target:
                    target.copy_(memory)
                commit()
        self._wanted, self._finish, self._bounce_bytes = [], [], 0
