"""Arrays of a state as memory: where their bytes lie, and which share them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.dtensor import local_shape_and_offset
from headrace.checkpoint.dtypes import name_of_numpy, names_of_torch, stored_as
from headrace.checkpoint.tree import Flat, path_text
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Box:
    """The part of a global array that this process holds: offset and length in each dimension."""

    shape: tuple[int, ...]  # of the whole
    offset: tuple[int, ...]
    length: tuple[int, ...]
    replica: int = 0  # 0: this process stores it; others hold the same bytes


@dataclass(slots=True)
class Source:
    """One array: its bytes are `num_bytes` from `address` in C order, or `strided` must be copied."""

    dtype: str  # PyTorch's name
    shape: tuple[int, ...]  # of the part that is here, in elements of `dtype`
    address: int
    num_bytes: int
    keep: Any  # owns the memory
    box: Box | None = None
    strided: torch.Tensor | None = None  # not in C order, or on a device: copied by PyTorch
    # For finding arrays that share memory: first and last byte that it touches, and its strides.
    begin: int = 0
    end: int = 0
    strides: tuple[int, ...] = ()


@dataclass(slots=True)
class View:
    """An array that lies inside another one that is stored."""

    base: int  # number of that array
    offset_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


@dataclass(slots=True)
class Described:
    """All arrays of a state: what is stored, by number, and views into it."""

    sources: list[Source | None] = field(default_factory=list)  # None: a view
    views: dict[int, View] = field(default_factory=dict)


def describe(flat: Flat) -> Described:
    """Find the memory of all arrays.

    Raises:
        InvalidArgumentError: Names all paths of arrays that cannot be stored as they are.
    """
    described = Described()
    refused: list[str] = []
    for path, value in zip(flat.paths, flat.arrays, strict=True):
        try:
            described.sources.append(_source_of(value))
        except InvalidArgumentError as error:
            refused.append(f"{path_text(path)} ({error})")
            described.sources.append(None)
    if refused:
        shown = "; ".join(refused[:20]) + ("; ..." if len(refused) > 20 else "")
        raise InvalidArgumentError(f"{len(refused)} arrays cannot be stored exactly: {shown}")
    _find_views(described, flat)
    return described


def _source_of(value: Any) -> Source:
    if type(value) in (bytes, bytearray):
        return _of_bytes(value)
    torch = _torch()
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(torch, value)
    import numpy

    if not isinstance(value, numpy.ndarray):
        value = numpy.from_dlpack(value)
    return _of_numpy(numpy, value)


def _torch() -> Any:
    import sys

    return sys.modules.get("torch")


def _of_bytes(value: bytes | bytearray) -> Source:
    import numpy

    view = numpy.frombuffer(value, dtype=numpy.uint8)
    address = view.ctypes.data if len(value) else 0
    return Source("uint8", (len(value),), address, len(value), view)


def _of_numpy(numpy: Any, value: Any) -> Source:
    name = name_of_numpy(value.dtype)
    if name is None:
        raise InvalidArgumentError(f"a NumPy array of {value.dtype}")
    if not value.flags.c_contiguous:
        value = numpy.ascontiguousarray(value)
    source = Source(name, tuple(value.shape), value.ctypes.data, value.nbytes, value)
    source.begin, source.end = source.address, source.address + value.nbytes
    source.strides = _row_major(source.shape)
    return source


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(1, shape[i + 1])
    return tuple(strides)


def _of_torch(torch: Any, value: Any) -> Source:
    local, box = _local_part(torch, value)
    if local.layout is not torch.strided:
        raise InvalidArgumentError(f"a tensor of layout {local.layout}")
    if local.is_quantized:
        raise InvalidArgumentError("a quantized tensor: store its parts")
    if local.device.type == "meta":
        raise InvalidArgumentError("a tensor on the meta device has no values")
    name = names_of_torch().get(local.dtype)
    if name is None:
        raise InvalidArgumentError(f"a tensor of {local.dtype}")
    if local.is_conj() or local.is_neg():
        local = local.resolve_conj().resolve_neg()
    shape = tuple(local.shape)
    num_bytes = local.nbytes
    if not local.is_cpu:
        local = local.detach()
        return Source(name, shape, 0, num_bytes, local, box, local)
    address = local.data_ptr()
    strides = tuple(local.stride())
    if local.is_contiguous():
        end = address + num_bytes
        return Source(name, shape, address, num_bytes, local, box, None, address, end, strides)
    local = local.detach()
    end = address + _span_bytes(shape, strides, local.element_size())
    return Source(name, shape, address, num_bytes, local, box, local, address, end, strides)


def _span_bytes(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    if 0 in shape:
        return 0
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return (last + 1) * itemsize


def _local_part(torch: Any, value: Any) -> tuple[Any, Box | None]:
    if type(value) is torch.Tensor:
        return value, None
    to_local = getattr(value, "to_local", None)
    placements = getattr(value, "placements", None)
    if to_local is None or placements is None:
        return value, None
    mesh = value.device_mesh
    for placement in placements:
        if placement.is_partial():
            raise InvalidArgumentError(
                "a DTensor with pending sums (Partial): redistribute it first"
            )
    length, offset = local_shape_and_offset()(value.shape, mesh, placements)
    local = to_local()
    if tuple(local.shape) != tuple(length):
        raise InvalidArgumentError(
            f"a DTensor whose part has shape {tuple(local.shape)}, not {tuple(length)}"
        )
    where = mesh.get_coordinate()
    replica = 0
    for axis, placement in enumerate(placements):
        if placement.is_replicate():
            replica = replica * mesh.size(axis) + (where[axis] if where is not None else 0)
    return local, Box(tuple(value.shape), tuple(offset), tuple(length), replica)


def _find_views(described: Described, flat: Flat) -> None:
    """Turn arrays that lie inside the memory of another one into views of it.

    Raises:
        InvalidArgumentError: Two arrays overlap, and neither holds the other. Names both.
    """
    order = [
        number
        for number, source in enumerate(described.sources)
        if source is not None and source.end > source.begin and source.box is None
    ]
    # The largest that starts first is the base; among equals one in C order.
    sources = described.sources
    order.sort(key=lambda n: _view_key(sources[n], n))
    base: int | None = None
    for number in order:
        source = sources[number]
        assert source is not None
        holder = sources[base] if base is not None else None
        if base is None or holder is None or source.begin >= holder.end:
            base = number
            continue
        if source.end > holder.end or holder.strided is not None:
            both = f"{path_text(flat.paths[base])} and {path_text(flat.paths[number])}"
            raise InvalidArgumentError(
                f"{both} overlap in memory and neither holds the other whole in C order, so they cannot "
                "come back sharing it: clone one of them before saving"
            )
        described.views[number] = View(
            base, source.begin - holder.begin, source.dtype, source.shape, source.strides
        )
        sources[number] = None


def _view_key(source: Source | None, number: int) -> tuple[int, int, bool, int]:
    assert source is not None
    return (source.begin, -source.end, source.strided is not None, number)


def check_stored(name: str) -> None:
    """Raise InvalidArgumentError when no element type of that name can be stored."""
    if stored_as(name) is None:
        raise InvalidArgumentError(f"elements of type {name} cannot be stored")
