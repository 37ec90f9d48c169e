"""An fsspec file system of checkpoints: ``hrckpt://STORE@STEP/FILE``, for reading.

fsspec finds it by itself once Headrace is installed::

    fsspec.open("hrckpt:///nvme/run7@latest/model.safetensors")
    fsspec.open("hrckpt://s3://bucket/run7@4000/manifest.json", region="eu-central-1")
    fs.ls("hrckpt:///nvme/run7")                  # what is published: .../run7@3500, .../run7@4000

A checkpoint is a folder:

==================== ==========================================================================
``manifest.json``    step, epoch, attempt, level, kind, and all tensors: path, type, shape
``loader.json``      the loader's state; not there when none was saved
``state.safetensors`` all tensors, named by their keys joined with ``.``
``KEY.safetensors``  those below a top-level key, named without it: ``model.safetensors`` opens in
                     other tools as it is, however many ranks it was saved by
==================== ==========================================================================

The safetensors files are put together while they are read: only what is asked for is read, each byte is
checked against its CRC32C. Checkpoints never change, so nothing can be written here: that is what
``headrace.checkpoint`` is for.
"""

from __future__ import annotations

import errno
import io
import json
import re
from bisect import bisect_right
from typing import Any
from urllib.parse import quote, unquote

import fsspec
from fsspec.spec import AbstractFileSystem

from headrace import _native
from headrace.checkpoint.tree import path_keys
from headrace.distributed import default_threads
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.fsspec_reading import OF_FSSPEC, PositionedFile, called, refuse_to_write
from headrace.storage import storage_texts

_PREFIX = "hrckpt://"
_AT_STEP = re.compile(r"^(?P<store>.+)@(?P<step>\d+|latest)(?:/(?P<file>.*))?$", re.DOTALL)
_STATE = "state.safetensors"
_SUFFIX = ".safetensors"
_BUFFER_BYTES = 1 << 20
_ONLY_READS = "hrckpt only reads: save with headrace.checkpoint.Checkpointer or HeadraceWriter"


class CheckpointFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Published checkpoints of stores, read-only. Thread-safe.

    Errors are OSErrors (FileNotFoundError, ...), with a HeadraceError as their cause; a name that makes
    no sense is an InvalidArgumentError. ``@latest`` is what is the newest when a file is opened.

    Args:
        options: storage options as ``headrace.open`` takes them.
    """

    protocol = "hrckpt"
    cachable = False  # making one costs nothing
    root_marker = ""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{name: options.pop(name) for name in OF_FSSPEC if name in options})
        self._storage = storage_texts(options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(path).removeprefix(_PREFIX).rstrip("/")

    @classmethod
    def _parent(cls, path: str) -> str:
        name = cls._strip_protocol(path)
        match = _AT_STEP.match(name)
        if match is None:
            return ""
        store: str = match["store"]
        return f"{store}@{match['step']}" if match["file"] else store

    # --- looking

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return a store's checkpoints, or a checkpoint's files."""
        name = self._strip_protocol(path)
        match = _AT_STEP.match(name)
        if match is None:
            entries = called(name, self._entries, name)
        elif match["file"]:
            entries = [self.info(name)]
        else:
            content = self._content(name, match)
            folder = f"{match['store']}@{match['step']}"
            entries = [
                _file(f"{folder}/{file}", content.size(file), content) for file in content.files()
            ]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, size and type (``"file"`` or ``"directory"``)."""
        name = self._strip_protocol(path)
        match = _AT_STEP.match(name)
        if match is None:
            called(name, self._entries, name)
            return {"name": name, "size": 0, "type": "directory"}
        content = self._content(name, match)
        if not match["file"]:
            return {"name": name, "size": 0, "type": "directory", "step": content.step}
        return _file(name, called(name, content.size, match["file"]), content)

    def _entries(self, store: str) -> list[dict[str, Any]]:
        steps = {entry["step"] for entry in self._store(store).entries()}
        return [
            {"name": f"{store}@{step}", "size": 0, "type": "directory", "step": step}
            for step in sorted(steps)
        ]

    def _store(self, store: str) -> _native.CheckpointStore:
        if not store:
            raise InvalidArgumentError(
                "hrckpt: expected hrckpt://STORE@STEP/FILE, for example "
                "hrckpt:///nvme/run7@latest/model.safetensors"
            )
        return _native.CheckpointStore.open(store, self._storage)

    def _content(self, name: str, match: re.Match[str]) -> _Content:
        step = None if match["step"] == "latest" else int(match["step"])
        return called(name, lambda: _Content(self._store(match["store"]), step))  # type: ignore[no-any-return]

    # --- reading

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BufferedReader:
        if mode != "rb":
            raise OSError(errno.EROFS, _ONLY_READS, path)
        name = self._strip_protocol(path)
        match = _AT_STEP.match(name)
        if match is None or not match["file"]:
            raise IsADirectoryError(errno.EISDIR, "is a directory", name)
        content = self._content(name, match)
        layout = called(name, content.layout, match["file"])
        return io.BufferedReader(_RawFile(name, layout), _BUFFER_BYTES)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return the bytes of a file, or of a range as Python's slices name it."""
        with self._open(path) as file:
            size: int = file.raw.size  # type: ignore[attr-defined]
            first, last, _step = slice(start, end).indices(size)
            file.seek(first)
            return file.read(max(0, last - first))


def _file(name: str, size: int, content: _Content) -> dict[str, Any]:
    return {"name": name, "size": size, "type": "file", "mtime": content.mtime}


class _RawFile(PositionedFile):
    """An open file, without a buffer."""

    def __init__(self, name: str, layout: _Layout) -> None:
        super().__init__()
        self._name, self._layout = name, layout
        self.size = layout.size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self.size - self._at))
        if count:
            called(self._name, self._layout.read, self._at, view[:count])
        self._at += count
        return count


class _Content:
    """One checkpoint."""

    def __init__(self, store: _native.CheckpointStore, step: int | None) -> None:
        self._store = store
        self._reading = store.read(step, "memory")
        entry = self._reading.entry
        self.step: int = entry["step"]
        self.mtime: float = entry["published_ns"] / 1e9
        self._tensors = self._reading.tensors()
        self._keys = [path_keys(path) for path, _, _ in self._tensors]

    def files(self) -> list[str]:
        """The names of all files."""
        groups = {keys[0] for keys in self._keys if len(keys) > 1}
        names = [quote(str(group), safe=" ") + _SUFFIX for group in sorted(groups)]
        loader = ["loader.json"] if self._reading.loader_state(0) else []
        return ["manifest.json", *loader, _STATE, *(name for name in names if name != _STATE)]

    def size(self, file: str) -> int:
        """Raises NotFoundError."""
        return self.layout(file).size

    def layout(self, file: str) -> _Layout:
        """Raises NotFoundError."""
        if file not in self.files():
            raise NotFoundError(f"step {self.step} has no file {file!r}: {', '.join(self.files())}")
        if file == "manifest.json":
            return _Layout(self._manifest())
        if file == "loader.json":
            return _Layout(self._reading.loader_state(0))
        group = None if file == _STATE else unquote(file.removesuffix(_SUFFIX))
        chosen: list[tuple[str, int]] = []
        for number, keys in enumerate(self._keys):
            if group is None:
                chosen.append((".".join(keys), number))
            elif len(keys) > 1 and keys[0] == group:
                chosen.append((".".join(keys[1:]), number))
        return self._safetensors(chosen)

    def _manifest(self) -> bytes:
        tensors = [
            {"path": path, "dtype": dtype, "shape": list(shape)}
            for path, dtype, shape in self._tensors
        ]
        shown = {**self._reading.entry, "world_size": self._reading.world_size}
        shown["dataset_version"] = self._reading.dataset_version
        return (json.dumps({**shown, "tensors": tensors}, indent=1) + "\n").encode()

    def _safetensors(self, chosen: list[tuple[str, int]]) -> _Layout:
        header: dict[str, Any] = {"__metadata__": {"format": "pt", "step": str(self.step)}}
        parts: list[_Part] = []
        at = 0
        for name, number in chosen:
            _, dtype, shape = self._tensors[number]
            unique, count = name, 1
            while unique in header:
                count += 1
                unique = f"{name}#{count}"
            part = _Part(number, dtype, tuple(shape), at)
            header[unique] = {
                "dtype": dtype,
                "shape": list(shape),
                "data_offsets": [at, at + part.num_bytes],
            }
            if part.num_bytes:
                parts.append(part)
            at += part.num_bytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return _Layout(len(text).to_bytes(8, "little") + text, parts, at, self._read_rows)

    def _read_rows(self, part: _Part, axis: int, first: int, count: int) -> bytearray:
        offset, length = [0] * len(part.shape), list(part.shape)
        if part.shape:
            offset[axis], length[axis] = first, count
        memory = bytearray(count * part.row_bytes)
        import ctypes

        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._store.restore(
            self._reading,
            [(part.tensor, offset, length, address, len(memory))],
            2 * default_threads(),
        )
        return memory


_ITEM_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}


class _Part:
    """A tensor in a file: where its bytes begin behind the header, and how it is cut into rows."""

    def __init__(self, tensor: int, dtype: str, shape: tuple[int, ...], offset: int) -> None:
        self.tensor, self.shape, self.offset = tensor, shape, offset
        digits = re.match(r"[A-Z]+(\d+)", dtype)
        bits = _ITEM_BITS.get(dtype) or int(digits[1] if digits else 8)
        count = 1
        for length in shape:
            count *= length
        self.num_bytes = count * bits // 8
        # Rows along the first dimension that has more than one.
        self.axis = next((i for i, length in enumerate(shape) if length > 1), 0)
        rows = shape[self.axis] if shape else 1
        self.row_bytes = self.num_bytes // rows if rows else 0
        if bits % 8 and self.row_bytes * rows != self.num_bytes:  # rows that end inside a byte
            self.row_bytes = self.num_bytes


class _Layout:
    """A file as a head of bytes and tensors behind it."""

    def __init__(
        self, head: bytes, parts: list[_Part] | None = None, data_bytes: int = 0, rows: Any = None
    ) -> None:
        self._head, self._parts, self._rows = head, parts or [], rows
        self._begins = [len(head) + part.offset for part in self._parts]
        self.size = len(head) + data_bytes

    def read(self, at: int, out: memoryview) -> None:
        """Fill `out` from `at`; all of it lies in the file."""
        done = 0
        if at < len(self._head):
            piece = self._head[at : at + len(out)]
            out[: len(piece)] = piece
            done = len(piece)
        while done < len(out):
            number = bisect_right(self._begins, at + done) - 1
            part, begin = self._parts[number], self._begins[number]
            inside = at + done - begin
            count = min(len(out) - done, part.num_bytes - inside)
            first = inside // part.row_bytes
            last = (inside + count - 1) // part.row_bytes
            rows = self._rows(part, part.axis, first, last - first + 1)
            skip = inside - first * part.row_bytes
            out[done : done + count] = memoryview(rows)[skip : skip + count]
            done += count


refuse_to_write(CheckpointFileSystem, _ONLY_READS)
fsspec.register_implementation("hrckpt", CheckpointFileSystem, clobber=True)
