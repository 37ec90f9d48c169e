"""Checkpoints as files of ``torch.save`` and as PyTorch's distributed checkpoints (DCP), and back.

Tensors pass through a bounded memory, one piece or one tensor at a time, as far as the formats allow.
All of it runs in one process, whatever ranks wrote the checkpoint.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from headrace import _native
from headrace.checkpoint.arrays import Described, Source, describe
from headrace.checkpoint.document import decode, encode
from headrace.checkpoint.dtypes import stored_as
from headrace.checkpoint.filling import NewArrays, Tensors
from headrace.checkpoint.light import at_path
from headrace.checkpoint.tree import Flat, flatten, path_text
from headrace.distributed import default_threads
from headrace.errors import DataLossError, HeadraceError, InvalidArgumentError

if TYPE_CHECKING:
    import torch

Report = dict[str, Any]
Storage = Mapping[str, object]

_PIECE_BYTES = 64 << 20
_PART_BYTES = 1 << 30
# Records of a torch.save archive start at multiples of this, so that they can be mapped.
_ALIGNMENT = 64


# --- reading a checkpoint piece by piece -----------------------------------------------------------


class _Unfilled(NewArrays):
    """The state with all of its tensors, none of which is filled: memory that is only reserved."""

    def _array(self, number: int, kind: str) -> Any:
        return super()._array(number, kind if kind == "bytes" else "torch")


class _Exported:
    """A published checkpoint: its state without content, and the content tensor by tensor."""

    def __init__(
        self, store: str | os.PathLike[str], step: int | None, below: str, storage: Storage | None
    ) -> None:
        import torch

        self._torch = torch
        options = {name: str(value) for name, value in (storage or {}).items()}
        self._store = _native.CheckpointStore.open(os.fspath(store), options)
        self._reading = self._store.read(step)
        name = f"{self._store.name}, step {self._reading.entry['step']}"
        self._document = decode(self._reading.tree(0), name)
        self._tensors = Tensors(self._reading.tensors())
        self._threads = default_threads() * 2
        new = _Unfilled(self._document, self._tensors)
        state = new.build()
        # Storage of PyTorch -> number of the stored tensor, and its bytes.
        self._stored = {
            target.keep.untyped_storage()._cdata: (target.tensor, target.num_bytes)
            for target in new.targets
        }
        self._keep = [target.keep for target in new.targets]
        self._fill_bytes(new)
        self.state = at_path(new.finish(state), below)
        self.num_bytes = 0  # read so far

    def _fill_bytes(self, new: _Unfilled) -> None:
        """What becomes bytes objects must be there before."""
        from headrace.checkpoint.tree import arrays_of

        numbers = {number for _, number, kind in arrays_of(self._document.state) if kind == "bytes"}
        for number in numbers:
            buffer = new._made[number]
            for start, piece in self._pieces(*self._stored[buffer.untyped_storage()._cdata]):
                buffer[start : start + piece.numel()] = piece

    def _pieces(self, tensor: int, num_bytes: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Content of a stored tensor: place of each piece in it, and its bytes."""
        dtype, shape = self._tensors.stored(tensor)
        elements = _product(shape)
        start = 0
        for offset, length in _native.checkpoint_pieces(shape, dtype, _PIECE_BYTES):
            size = _product(length) * num_bytes // max(elements, 1)
            piece = self._torch.empty(size, dtype=self._torch.uint8)
            wanted = [(tensor, offset, length, piece.data_ptr(), size)]
            self._store.restore(self._reading, wanted, self._threads)
            yield start, piece
            start += size

    def content(self, storage: torch.UntypedStorage) -> Iterator[torch.Tensor]:
        """The bytes of a storage of the state, in pieces."""
        stored = self._stored.get(storage._cdata)
        for _, piece in () if stored is None else self._pieces(*stored):
            self.num_bytes += piece.numel()
            yield piece

    def filled(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the state with its content."""
        storage = tensor.untyped_storage()
        stored = self._stored.get(storage._cdata)
        if stored is None:
            return tensor
        whole = self._torch.empty(stored[1], dtype=self._torch.uint8)
        start = 0
        for piece in self.content(storage):
            whole[start : start + piece.numel()] = piece
            start += piece.numel()
        empty = self._torch.empty(0, dtype=tensor.dtype)
        return empty.set_(
            whole.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
        )

    def report(self) -> Report:
        """What was exported."""
        return {"step": self._reading.entry["step"], "bytes": self.num_bytes}


def _product(shape: Iterator[int] | tuple[int, ...]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


# --- torch.save ------------------------------------------------------------------------------------


def export_torch(
    store: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    below: str = "",
    storage_options: Storage | None = None,
) -> Report:
    """Write a checkpoint as a file that ``torch.load`` reads, also with ``weights_only`` and ``mmap``.

    NumPy arrays become tensors. The file appears whole or not at all, and is durable then.

    Args:
        store: folder or URL of the checkpoints.
        path: file to write.
        step: which checkpoint; default: the newest.
        below: only what lies at this path of the state (``"/model"``); default: all.
        storage_options: as for ``headrace.open``.

    Raises:
        NotFoundError: No such checkpoint, or nothing at that path.
        DataLossError: Bytes that fail their check.
    """
    exported = _Exported(store, step, below, storage_options)
    content = io.BytesIO()
    pickler = _state_pickler(content)
    pickler.dump(exported.state)
    with _whole_file(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        _add_record(archive, "data.pkl", [content.getvalue()], content.tell())
        _add_record(archive, "byteorder", [sys.byteorder.encode()], len(sys.byteorder))
        for key, storage in pickler.storages.items():
            pieces = (memoryview(piece.numpy()) for piece in exported.content(storage))
            _add_record(archive, f"data/{key}", pieces, storage.nbytes())
        _add_record(archive, "version", [b"3\n"], 2)
    return exported.report()


def _state_pickler(file: IO[bytes]) -> Any:
    """A pickler that leaves the bytes of tensors out, as torch.save does, and collects their storages."""
    import torch

    class StatePickler(pickle.Pickler):
        def __init__(self) -> None:
            super().__init__(file, protocol=2)
            self.storages: dict[str, torch.UntypedStorage] = {}
            self._keys: dict[int, str] = {}

        def persistent_id(self, value: Any) -> Any:
            if isinstance(value, torch.storage.TypedStorage):
                kind: Any = getattr(torch, value._pickle_storage_type())
                storage, count = value._untyped_storage, value._size()
            elif isinstance(value, torch.UntypedStorage):
                kind, storage, count = torch.UntypedStorage, value, value.nbytes()
            else:
                return None
            key = self._keys.setdefault(storage._cdata, str(len(self._keys)))
            self.storages[key] = storage
            return ("storage", kind, key, "cpu", count)

    return StatePickler()


def _add_record(archive: zipfile.ZipFile, name: str, pieces: Any, num_bytes: int) -> None:
    info = zipfile.ZipInfo(f"archive/{name}")
    # A local header has 30 bytes, the name, and 20 bytes for sizes beyond 4 GiB.
    header = 30 + len(info.filename) + 20 + 4
    assert archive.fp is not None
    fill = -(archive.fp.tell() + header) % _ALIGNMENT
    info.extra = b"FB" + fill.to_bytes(2, "little") + bytes(fill)
    written = 0
    with archive.open(info, "w", force_zip64=True) as record:
        for piece in pieces:
            record.write(piece)
            written += len(piece)
    if written != num_bytes:
        raise DataLossError(f"{name}: {written} bytes were read instead of {num_bytes}")


@contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the name `path` when all was well, and is durable then."""
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)
    try:
        with file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(file.name, path)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def import_torch(
    path: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    step: int = 0,
    storage_options: Storage | None = None,
) -> Report:
    """Publish the state in a file of ``torch.save`` as a checkpoint; takes the store over.

    The file is mapped, not read into memory (files of before PyTorch 1.6 are read). It is loaded with
    ``weights_only``: nothing in it is executed.

    Args:
        path: file to read.
        store: folder or URL of the checkpoints.
        step: number of the new checkpoint.
        storage_options: as for ``headrace.open``.

    Raises:
        InvalidArgumentError: It holds what a checkpoint cannot, all of it named.
        Exception: That of ``torch.load``.
    """
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
        state = torch.load(path, map_location="cpu", weights_only=True)
    flat = flatten(state)
    described = describe(flat)
    sources = _sources(described)
    # What lies in the file as it is stored goes in one part; the others are copied, one by one.
    copied = [number for number, source in sources.items() if source.strided is not None]
    writer = _Imported(store, flat, described, step, 1 + len(copied), storage_options)
    writer.write({number: source for number, source in sources.items() if source.strided is None})
    for number in copied:
        strided = sources[number].strided
        assert strided is not None
        whole = strided.contiguous()
        writer.write({number: describe(flatten([whole])).sources[0]})
    return writer.publish()


def _sources(described: Described) -> dict[int, Source]:
    return {number: source for number, source in enumerate(described.sources) if source is not None}


class _Imported:
    """A checkpoint that is written in parts."""

    def __init__(
        self,
        store: str | os.PathLike[str],
        flat: Flat,
        described: Described,
        step: int,
        parts: int,
        storage: Storage | None,
    ) -> None:
        url = os.fspath(store)
        options = {name: str(value) for name, value in (storage or {}).items()}
        self._store = _native.CheckpointStore.open(url, options)
        self._step = step
        self._numbers: dict[int, int] = {}
        self._bytes = 0
        tensors: list[tuple[str, str, tuple[int, ...]]] = []
        for number, source in _sources(described).items():
            stored = stored_as(source.dtype)
            if stored is None:
                raise InvalidArgumentError(f"elements of type {source.dtype} cannot be stored")
            self._numbers[number] = len(tensors)
            tensors.append(
                (path_text(flat.paths[number]), stored.dtype, source.shape + stored.extra)
            )
        epoch = self._store.take_over(f"{socket.gethostname()} import, process {os.getpid()}")
        self._store.sweep(epoch=epoch, grace_s=0, dry_run=False)
        self._writer = self._store.start_parts(
            epoch=epoch,
            step=step,
            parts=parts,
            level="remote" if "://" in url else "local",
            tensors=tensors,
            tree=encode(flat, described),
            threads=default_threads(),
        )

    def write(self, sources: Mapping[int, Source | None]) -> None:
        """Write the next part: whole arrays by their numbers."""
        boxes = []
        for number, source in sources.items():
            assert source is not None
            stored = stored_as(source.dtype)
            assert stored is not None
            shape = source.shape + stored.extra
            zeros = (0,) * len(shape)
            boxes.append((self._numbers[number], zeros, shape, source.address, source.num_bytes))
            self._bytes += source.num_bytes
        self._writer.write(boxes)

    def publish(self) -> Report:
        """Publish it; returns what was imported."""
        attempt = self._writer.publish()
        return {
            "step": self._step,
            "attempt": attempt,
            "tensors": len(self._numbers),
            "bytes": self._bytes,
            "reused_bytes": self._writer.reused_bytes,
        }


# --- DCP -------------------------------------------------------------------------------------------


def export_dcp(
    store: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    below: str = "",
    storage_options: Storage | None = None,
) -> Report:
    """Write a checkpoint as a folder that ``torch.distributed.checkpoint.load`` reads.

    One tensor at a time is in memory. NumPy arrays become tensors. The folder appears whole or not at
    all. Arguments and errors as for export_torch.

    Raises:
        InvalidArgumentError: Something is there already, or the state is no dict.
    """
    import torch
    import torch.distributed.checkpoint as dcp

    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidArgumentError(f"{target} is there already: name a folder that is not")
    exported = _Exported(store, step, below, storage_options)
    if not isinstance(exported.state, dict):
        raise InvalidArgumentError("only a dict can be written as a distributed checkpoint")

    class StreamingPlanner(dcp.DefaultSavePlanner):  # type: ignore[misc]
        def lookup_object(self, index: Any) -> Any:
            value = super().lookup_object(index)
            return exported.filled(value) if isinstance(value, torch.Tensor) else value

    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        dcp.save(
            exported.state,
            storage_writer=dcp.FileSystemWriter(temporary),
            planner=StreamingPlanner(),
        )
        _sync_folder(Path(temporary))
        os.chmod(temporary, 0o755)
        os.rename(temporary, target)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _cause_of(error) from error
    _sync_folder(target.parent)
    return exported.report()


def _cause_of(error: BaseException) -> BaseException:
    """Our error, where PyTorch has wrapped one of a rank."""
    for cause, _ in getattr(error, "failures", {}).values():
        if isinstance(cause, HeadraceError):
            return cause
    return error


def import_dcp(
    path: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    step: int = 0,
    storage_options: Storage | None = None,
) -> Report:
    """Publish a distributed checkpoint of PyTorch as one of ours; takes the store over.

    About 1 GiB of tensors is in memory at a time. What is no tensor is loaded with ``weights_only``; the
    metadata of a distributed checkpoint is itself a pickle, so read only those that you trust.
    Arguments and errors as for import_torch.
    """
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    reader = dcp.FileSystemReader(os.fspath(path))
    metadata = reader.read_metadata()
    rows = metadata.state_dict_metadata
    values: dict[str, Any] = dict.fromkeys(
        name for name, row in rows.items() if not isinstance(row, TensorStorageMetadata)
    )
    if values:
        dcp.load(values, storage_reader=reader, planner=_load_planner())
    tensors = {
        name: torch.empty(row.size, dtype=row.properties.dtype)
        for name, row in rows.items()
        if isinstance(row, TensorStorageMetadata)
    }
    places = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
    flat = flatten(_nested({**values, **tensors}, places))
    described = describe(flat)
    names = {id(tensor): name for name, tensor in tensors.items()}
    parts = _parts(_sources(described))
    writer = _Imported(store, flat, described, step, len(parts), storage_options)
    for numbers in parts:
        batch = {
            names[id(flat.arrays[n])]: torch.empty_like(flat.arrays[n])
            for n in numbers
            if id(flat.arrays[n]) in names
        }
        if batch:
            reader = dcp.FileSystemReader(os.fspath(path))
            dcp.load(batch, storage_reader=reader, planner=_load_planner())
        arrays = [batch.get(names.get(id(flat.arrays[n]), ""), flat.arrays[n]) for n in numbers]
        writer.write(dict(zip(numbers, describe(flatten(arrays)).sources, strict=True)))
    return writer.publish()


def _load_planner() -> Any:
    import torch
    import torch.distributed.checkpoint as dcp

    class PlainPlanner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

        def load_bytes(self, read_item: Any, value: Any) -> None:
            loaded = torch.load(value, map_location="cpu", weights_only=True)
            self.state_dict[read_item.dest_index.fqn] = loaded

    return PlainPlanner()


def _parts(sources: Mapping[int, Source]) -> list[list[int]]:
    """Numbers of arrays, so that each part has at most _PART_BYTES, or one array."""
    parts: list[list[int]] = [[]]
    size = 0
    for number, source in sources.items():
        if parts[-1] and size + source.num_bytes > _PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(number)
        size += source.num_bytes
    return parts


def _nested(values: Mapping[str, Any], places: Mapping[str, tuple[str | int, ...]]) -> Any:
    """Put a flat dict together: `places` gives the path of each name; others stay as they are."""
    state: Any = {}
    for name, value in values.items():
        path = places.get(name, (name,))
        node = state
        for key, following in itertools.pairwise(path):
            node = _child(node, key, list if isinstance(following, int) else dict)
        _set(node, path[-1], value)
    return state


def _child(node: Any, key: str | int, kind: type[list[Any]] | type[dict[Any, Any]]) -> Any:
    if isinstance(node, list):
        assert isinstance(key, int)
        if len(node) <= key or node[key] is None:
            _set(node, key, kind())
        return node[key]
    return node.setdefault(key, kind())


def _set(node: Any, key: str | int, value: Any) -> None:
    if isinstance(node, list):
        assert isinstance(key, int)
        node.extend([None] * (key + 1 - len(node)))
    node[key] = value


Format = Literal["torch", "dcp"]
EXPORTS = {"torch": export_torch, "dcp": export_dcp}
IMPORTS = {"torch": import_torch, "dcp": import_dcp}
