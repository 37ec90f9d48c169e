"""An fsspec file system that reads URLs through this node's cache: ``hrcache::s3://bucket/key``.

fsspec finds it by itself once Headrace is installed::

    pandas.read_parquet("hrcache::s3://bucket/table.parquet")
    fsspec.open("hrcache::https://host/model.safetensors", cache_dir="/nvme/cache").open()

fsspec takes such a chain apart with the class it has for what is behind the ``::``, so that has to
be installed (s3fs for ``s3``, aiohttp for ``https``), though it reads nothing; or import this module
first. ``hrcache://s3://bucket/key`` is the same and needs neither, and is what Hugging Face
``datasets`` want: they put what is behind a ``::`` behind each name that they have found.
"""

from __future__ import annotations

import datetime
import errno
import importlib.util
import io
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
from fsspec.implementations.chained import ChainedFileSystem
from fsspec.registry import known_implementations

from headrace import _native
from headrace.errors import InvalidArgumentError
from headrace.fsspec_reading import OF_FSSPEC, PositionedFile, called, refuse_to_write
from headrace.storage import storage_texts

# And the packages that fsspec's own classes for them need.
_SCHEMES = {"s3": "s3fs", "https": "aiohttp", "http": "aiohttp"}
_PREFIX = "hrcache://"
_BUFFER_BYTES = 128 << 10  # of small reads; larger ones go straight into the caller's memory
_THREADS = 16  # of cat_ranges
_ONLY_READS = "hrcache only reads: write to the URL itself, without it"


class CachedFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """What is in buckets and on web servers, read-only, through the cache of this node.

    Thread-safe. Names are URLs: ``s3://bucket/a/b``; ``hrcache://`` before them is kept. Errors are
    OSErrors as fsspec's users expect them (FileNotFoundError, PermissionError, ...), each with a
    HeadraceError as its cause, which says more; what makes no sense is an InvalidArgumentError.

    Args:
        target_protocol: ``"s3"``, ``"https"`` or ``"http"``, of names that are no URLs.
        target_options: storage options as ``headrace.open`` takes them.
        fo: given by fsspec, and not needed.
        options: storage options, too; they go before ``target_options``.
    """

    protocol = "hrcache"
    cachable = False  # making one costs nothing; stores and cache are shared by their settings

    def __init__(
        self,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fo: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**{name: options.pop(name) for name in OF_FSSPEC if name in options})
        # Options of other protocols come along from users that keep all of them together.
        others = set(fsspec.available_protocols())
        options = {
            name: value
            for name, value in options.items()
            if not (name in others and isinstance(value, dict))
        }
        if target_protocol is not None and target_protocol not in _SCHEMES:
            raise InvalidArgumentError(
                f"hrcache::{target_protocol}:// cannot be read; there are: "
                + ", ".join(f"hrcache::{scheme}://" for scheme in _SCHEMES)
            )
        self._target = target_protocol
        self._native = _native.FileSystem.create(
            storage_texts({**(target_options or {}), **options})
        )
        # As fsspec's own caching file systems do: names depend on the target of the instance.
        self._strip_protocol = self._name_of  # type: ignore[method-assign]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        name = os.fspath(path).rstrip("/")
        return "" if name == "hrcache:" else name

    def _name_of(self, path: Any) -> Any:
        """Return a name as it is used in answers: a URL, with ``hrcache://`` before it if given."""
        if isinstance(path, list):
            return [self._name_of(one) for one in path]
        name = str(type(self)._strip_protocol(path))
        if _is_url(name.removeprefix(_PREFIX)):
            return name
        if self._target is None or name.startswith(_PREFIX):
            raise InvalidArgumentError(
                f"hrcache: {name!r} is no URL: expected for example hrcache::s3://bucket/key"
            )
        return f"{self._target}://{name}"

    @classmethod
    def _parent(cls, path: str) -> str:
        name = str(cls._strip_protocol(path))
        root = re.match(r"(hrcache://)?[a-z0-9]+://[^/]*", name)
        return root[0] if root and root[0] == name else name.rpartition("/")[0]

    # --- looking

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, size, type (``"file"`` or ``"directory"``), mtime, and a version number."""
        url = self._name_of(path)
        return _details(url, called(url, self._native.info, _raw(url)))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what is in a directory, or the file itself. Web servers cannot be listed."""
        url = self._name_of(path)
        try:
            found = called(url, self._native.list, _raw(url))
            entries = [_details(f"{url}/{name}", info) for name, info in found]
        except FileNotFoundError:
            entries = [self.info(url)]
        return entries if detail else [entry["name"] for entry in entries]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], None] = "omit",
        **kwargs: Any,
    ) -> Iterator[Any]:
        """As fsspec's; but ``on_error="omit"`` leaves out only what is not there."""
        if on_error == "omit":
            on_error = _raise_unless_missing
        return super().walk(path, maxdepth, topdown, on_error, **kwargs)  # type: ignore[no-any-return]

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether a file or directory is there; raises when that cannot be told."""
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        """As exists, of a file."""
        return self._type(path) == "file"

    def isdir(self, path: str) -> bool:
        """As exists, of a directory."""
        return self._type(path) == "directory"

    def _type(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> datetime.datetime:
        """Return when a file was last written."""
        seconds = self.info(path)["mtime"]
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)

    def cache_stats(self) -> dict[str, int] | None:
        """Return what the cache has counted in this process; None when there is none."""
        return self._native.cache_counters()

    # --- reading

    def _open(self, path: str, mode: str = "rb", **_: Any) -> CachedFile:
        if mode != "rb":
            raise OSError(errno.EROFS, _ONLY_READS, path)
        return CachedFile(self, self._name_of(path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return the bytes of a file, or of a range as Python's slices name it."""
        raw = _RawFile(self, self._name_of(path))
        return raw.read_range(*slice(start, end).indices(raw.size)[:2])

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | list[int | None] | None,
        ends: int | list[int | None] | None,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Return ranges of files, several read at once; the cache joins what lies together."""
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("cat_ranges: expected as many starts and ends as paths")

        def opened(path: str) -> Any:
            return _or_error(lambda: _RawFile(self, self._name_of(path)))

        def read(file: Any, start: int | None, end: int | None) -> Any:
            if isinstance(file, Exception):
                return file
            return _or_error(lambda: file.read_range(*slice(start, end).indices(file.size)[:2]))

        with ThreadPoolExecutor(max(1, min(_THREADS, len(paths)))) as pool:
            unique = list(dict.fromkeys(paths))
            files = dict(zip(unique, pool.map(opened, unique), strict=True))
            out = list(pool.map(read, [files[path] for path in paths], starts, ends))
        if on_error != "return":
            for value in out:
                if isinstance(value, Exception):
                    raise value
        return out


class _RawFile(PositionedFile):
    """An open object, of one version, without a buffer. Opened anew in a forked child."""

    def __init__(self, fs: CachedFileSystem, url: str) -> None:
        super().__init__()
        self.fs = fs
        self.url = url
        self._open()
        self.details = _details(url, self._native.info)
        self.size: int = self.details["size"]

    def _open(self) -> None:
        try:
            opened: _native.File = called(self.url, self.fs._native.open, _raw(self.url))
        except InvalidArgumentError:
            if self.fs.isdir(self.url):
                raise IsADirectoryError(errno.EISDIR, "is a directory", self.url) from None
            raise
        self._native = opened
        self._pid = os.getpid()

    def _usable(self) -> _native.File:
        if self._pid != os.getpid():
            version = self.details["version"]
            self._open()
            if _details(self.url, self._native.info)["version"] != version:
                raise OSError(errno.ESTALE, "was replaced since it was opened", self.url)
        return self._native

    def readinto(self, buffer: Any) -> int:
        read: int = called(self.url, self._usable().read_into, self._at, buffer)
        self._at += read
        return read

    def readall(self) -> bytes:
        data = self.read_range(self._at, self.size)
        self._at += len(data)
        return data

    def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes of a range that lies inside the file."""
        if start >= end:
            return b""
        data: bytes = called(self.url, self._usable().read, start, end - start)
        return data


class CachedFile(io.BufferedReader):
    """A file of a CachedFileSystem: what ``open`` gives. One thread at a time has its position.

    Pickled it is its file system, name and position, and must not have been replaced meanwhile.
    """

    mode = "rb"

    def __init__(self, fs: CachedFileSystem, url: str) -> None:
        raw = _RawFile(fs, url)
        super().__init__(raw, _BUFFER_BYTES)
        self.fs = fs
        self.path = url
        self.size = raw.size
        self.details = raw.details

    @property
    def full_name(self) -> str:
        """The name with its protocol."""
        return _PREFIX + self.path.removeprefix(_PREFIX)

    def info(self) -> dict[str, Any]:
        """Return what fs.info told when it was opened."""
        return self.details

    def __reduce__(self) -> Any:
        return _reopen, (self.fs, self.path, self.details["version"], self.tell())

    def __reduce_ex__(self, _: Any) -> Any:
        return self.__reduce__()


def _reopen(fs: CachedFileSystem, url: str, version: int, position: int) -> CachedFile:
    file = CachedFile(fs, url)
    if file.details["version"] != version:
        raise OSError(errno.ESTALE, "was replaced since it was opened", url)
    file.seek(position)
    return file


def _is_url(text: str) -> bool:
    return re.match(r"[a-z0-9]+://", text) is not None and not text.startswith(_PREFIX)


def _raw(name: str) -> bytes:
    """Return the URL as bytes: keys may be no UTF-8, and are surrogate escapes in Python."""
    return name.removeprefix(_PREFIX).encode("utf-8", "surrogateescape")


def _details(url: str, info: tuple[bool, int, int, int]) -> dict[str, Any]:
    directory, size, mtime_ns, version = info
    if directory:
        return {"name": url, "size": 0, "type": "directory"}
    return {
        "name": url,
        "size": size,
        "type": "file",
        "mtime": mtime_ns / 1e9,
        "version": version,
    }


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


refuse_to_write(CachedFileSystem, _ONLY_READS)


class _NotRead(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Stands for a protocol whose own class is not installed, where a chain is taken apart."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ImportError(
            f"{self.protocol}:// itself needs {_SCHEMES[self.protocol]}; without it, read through "
            f"hrcache::{self.protocol}://"
        )

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path


def _register() -> None:
    fsspec.register_implementation("hrcache", CachedFileSystem, clobber=True)
    for scheme, package in _SCHEMES.items():
        # A class of another package that somebody has registered stays.
        usual = known_implementations[scheme]["class"].startswith(("s3fs.", "fsspec."))
        if scheme not in fsspec.registry and usual and importlib.util.find_spec(package) is None:
            stand_in = type(f"_NotRead_{scheme}", (_NotRead,), {"protocol": scheme})
            fsspec.register_implementation(scheme, stand_in)


_register()
