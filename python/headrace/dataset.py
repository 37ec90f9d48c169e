"""The map-style face of a dataset."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from headrace import _native
from headrace.errors import InvalidArgumentError, NotFoundError, StateError
from headrace.storage import storage_texts
from headrace.tensor import Tensor

if TYPE_CHECKING:
    from headrace.loader import Loader

Sample = dict[str, Any]


def open(
    path: str | os.PathLike[str],
    *,
    fields: Sequence[str] | None = None,
    storage_options: Mapping[str, str | bool | int] | None = None,
    max_open_files: int = 256,
    max_unpacked_bytes: int = 8 << 30,
    verify_checksums: bool = True,
) -> Dataset:
    """Open a dataset for reading.

    Args:
        path: a folder made by ``headrace pack`` or ``headrace index``; a tar or TFRecord file or a
            folder of them; a folder with an MDS ``index.json``; a folder with one sub-folder of
            files per class; a ``.csv`` or ``.jsonl`` list of files. Or a URL of one, as a str:
            ``s3://bucket/prefix``, ``https://host/folder`` (which cannot be listed, so it needs a
            manifest or an MDS ``index.json``), ``file:///folder``.
        fields: names of the fields that samples come with; None = all. What is not named is not
            read.
        storage_options: how to reach a URL: ``endpoint``, ``region``, ``profile``,
            ``access_key_id``, ``secret_access_key``, ``session_token``, ``anonymous``,
            ``path_style``, ``dialect``, ``ca_file``, ``connections``, ``retry_budget`` (``"2m"``),
            ``bandwidth`` (``"200MiB"``, bytes a second of this process at most). What is not said
            is taken from where AWS tools keep it (environment, profiles). And the cache of this
            node to read URLs through: ``cache_dir``, a folder of a local disk that all processes
            share, or several with ``:`` between; ``cache_bytes``, the limit of all together
            (``"500GiB"``); ``cache_memory_bytes``, memory of each process before it, or, without a
            folder, for what loaders read by plan (256 MiB); ``cache_seek_points``, whether seek
            points of JPEGs that the dataset's index lacks, wherever it lies, are built at the
            first read and kept there (true). They too can come from the environment:
            ``HEADRACE_CACHE_DIR``, ``HEADRACE_CACHE_BYTES``, ``HEADRACE_CACHE_MEMORY_BYTES``,
            ``HEADRACE_CACHE_SEEK_POINTS``. Without a folder nothing is kept but in memory.
        max_open_files: data files held open at once.
        max_unpacked_bytes: memory for shards that are compressed as a whole (MDS) and so are held
            unpacked. Give it the shards that are read at a time: see docs/formats/mds.md.
        verify_checksums: check the CRC32C of what is read.

    Raises:
        NotFoundError: nothing is there.
        InvalidArgumentError: a scheme or a storage option that is none.
        DataLossError: the manifest is damaged.
        StateError: made by a newer version, or a shard is missing or of another size.
    """
    return Dataset(
        os.fspath(path),
        fields=fields,
        storage_options=storage_options,
        max_open_files=max_open_files,
        max_unpacked_bytes=max_unpacked_bytes,
        verify_checksums=verify_checksums,
    )


class Dataset(Sequence[Sample]):
    """An immutable array of samples.

    ``ds[3]`` and ``ds["key"]`` give a dict of field name to bytes, plus ``"__key__"``; ``ds[2:9]``
    gives a view. A field of bare numbers (TFRecord, MDS) comes as the bytes of an ``.npy`` array.
    Works in the workers of ``torch.utils.data.DataLoader`` under fork, forkserver and spawn: a
    pickled Dataset is its path and settings (``storage_options`` too, and secrets in them), and a
    forked one takes no lock and no connection of its parent.
    """

    def __init__(
        self,
        path: str,
        *,
        fields: Sequence[str] | None = None,
        storage_options: Mapping[str, str | bool | int] | None = None,
        max_open_files: int = 256,
        max_unpacked_bytes: int = 8 << 30,
        verify_checksums: bool = True,
        version: str | None = None,
    ) -> None:
        self._path = path
        self._fields = None if fields is None else list(fields)
        self._storage = storage_texts(storage_options or {})
        self._max_open_files = max_open_files
        self._max_unpacked_bytes = max_unpacked_bytes
        self._verify_checksums = verify_checksums
        self._open_native(version)
        unknown = set(self._fields or []) - set(self._native.fields)
        if unknown:
            raise NotFoundError(
                f"no field {sorted(unknown)}; the dataset has: {', '.join(self._native.fields)}",
                shard=self._native.path,
            )

    def _open_native(self, version: str | None) -> None:
        self._native = _native.Dataset.open(
            self._path,
            self._storage,
            self._max_open_files,
            self._max_unpacked_bytes,
            self._verify_checksums,
        )
        self._version: str = self._native.version
        if version is not None and version != self._version:
            raise StateError(
                f"the dataset has changed since it was opened: it was version {version[:12]}, "
                f"now it is {self._version[:12]}",
                shard=self._native.path,
            )

    @property
    def path(self) -> str:
        """The path or URL it was opened from, as it was given."""
        return self._path

    @property
    def version(self) -> str:
        """64 hex digits that name the content."""
        return self._version

    @property
    def kind(self) -> str:
        """``"tar"``, ``"tfrecord"``, ``"mds"``, ``"folder"`` or ``"list"``."""
        return self._native.kind

    @property
    def fields(self) -> list[str]:
        """Names of the fields that samples come with."""
        return list(self._native.fields) if self._fields is None else list(self._fields)

    @property
    def shards(self) -> list[tuple[str, int, int]]:
        """Name, number of samples and size in bytes of each shard, in order."""
        return self._native.shards

    def __len__(self) -> int:
        return self._native.num_samples

    @overload
    def __getitem__(self, index: int | str | bytes) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> DatasetView: ...
    def __getitem__(self, index: int | str | bytes | slice) -> Sample | DatasetView:
        """Return the sample with this number or key, or a view of a range.

        Raises:
            IndexError: no such number.
            NotFoundError: no such key.
            DataLossError: wrong checksum or short shard.
        """
        if isinstance(index, slice):
            return DatasetView(self, range(*index.indices(len(self))))
        if isinstance(index, (str, bytes)):
            return self._read(self.index_of(index))
        return self._read(_checked_index(index, len(self)))

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return several samples at once, as PyTorch's DataLoader asks for them."""
        return [self[i] for i in indices]

    def __iter__(self) -> Iterator[Sample]:
        for i in range(len(self)):
            yield self._read(i)

    def __contains__(self, key: object) -> bool:
        """Return whether a sample has this key (str or bytes)."""
        if not isinstance(key, (str, bytes)):
            return False
        try:
            self.index_of(key)
        except NotFoundError:
            return False
        return True

    def index_of(self, key: str | bytes) -> int:
        """Return the number of the sample with this key. Raises NotFoundError."""
        raw = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
        return self._native.find_key(raw)

    def key(self, index: int) -> str:
        """Return the key of a sample without reading its data."""
        return self._native.key(_checked_index(index, len(self)))

    @overload
    def read(self, index: int | str | bytes, field: str) -> bytes: ...
    @overload
    def read(
        self,
        index: int | str | bytes,
        field: str,
        *,
        region: tuple[int, int, int, int],
        channels: int = 3,
    ) -> Tensor: ...
    def read(
        self,
        index: int | str | bytes,
        field: str,
        *,
        region: tuple[int, int, int, int] | None = None,
        channels: int = 3,
    ) -> bytes | Tensor:
        """Return one field of a sample: its bytes, or the pixels of a region of an image.

        Args:
            index: number or key of the sample.
            field: name of the field.
            region: ``(x, y, width, height)`` in pixels of the image, turned upright as Exif says.
                An image with seek points is decoded there and nowhere else.
            channels: 3 for RGB, 1 for luma.

        Returns:
            ``bytes``; with ``region`` a uint8 Tensor of shape ``(height, width, channels)``, the
            pixels that the same region of the whole decoded image has.

        Raises:
            IndexError: no such number.
            NotFoundError: no such key or field.
            InvalidArgumentError: a region that is not inside the image.
            DataLossError: wrong checksum, or bytes that are no image.
        """
        if isinstance(index, (str, bytes)):
            number = self.index_of(index)
        else:
            number = _checked_index(index, len(self))
        if region is None:
            data: bytes = self._native.read(number, [field])[1][field]
            return data
        numbers = tuple(operator.index(n) for n in region)
        if len(numbers) != 4 or min(numbers) < 0 or 0 in numbers[2:] or max(numbers) > 0xFFFFFFFF:
            raise InvalidArgumentError(
                f"region: expected (x, y, width, height) inside the image, found {numbers}"
            )
        x, y, width, height = numbers
        array = self._native.read_region(number, field, (x, y, width, height), channels)
        return Tensor(array, (height, width, channels), "uint8")

    def _read(self, index: int) -> Sample:
        if self._fields == []:  # to the native module that means all
            return {"__key__": self._native.key(index)}
        key, sample = self._native.read(index, self._fields or [])
        sample["__key__"] = key
        return sample

    def loader(self, **settings: Any) -> Loader:
        """Return a Loader over this dataset; see ``headrace.Loader`` for the settings."""
        from headrace.loader import Loader

        return Loader(self, **settings)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {
            "fields": self._fields,
            "storage_options": self._storage,
            "max_open_files": self._max_open_files,
            "max_unpacked_bytes": self._max_unpacked_bytes,
            "verify_checksums": self._verify_checksums,
            "version": self._version,
        }
        return (_reopen, (self._path, settings))

    def __repr__(self) -> str:
        return (
            f"headrace.Dataset({self._native.path!r}, {len(self):,} samples, fields={self.fields}, "
            f"version={self._version[:12]})"
        )


class DatasetView(Sequence[Sample]):
    """A range of a Dataset, read when asked for."""

    def __init__(self, dataset: Dataset, indices: range) -> None:
        self._dataset = dataset
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> DatasetView: ...
    def __getitem__(self, index: int | slice) -> Sample | DatasetView:
        if isinstance(index, slice):
            return DatasetView(self._dataset, self._indices[index])
        return self._dataset[self._indices[_checked_index(index, len(self))]]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return several samples at once, as PyTorch's DataLoader asks for them."""
        return [self[i] for i in indices]


def _reopen(path: str, settings: dict[str, Any]) -> Dataset:
    return Dataset(path, **settings)


def _checked_index(index: Any, length: int) -> int:
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexError(f"sample {i} of a dataset of {length}")
    return i + length if i < 0 else i
