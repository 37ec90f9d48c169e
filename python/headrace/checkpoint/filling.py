"""Where the bytes of a checkpoint go: into arrays that exist, or into new ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.checkpoint.apart import comparer, copier, is_lazy, like
from headrace.checkpoint.arrays import Described, Source, View, describe
from headrace.checkpoint.document import Document, Stored
from headrace.checkpoint.dtypes import Stored as StoredType
from headrace.checkpoint.dtypes import stored_as, torch_dtypes
from headrace.checkpoint.tree import arrays_of, flatten, path_text, unflatten
from headrace.errors import InvalidArgumentError

Wanted = tuple[int, Sequence[int], Sequence[int], int, int]
Shape = tuple[int, ...]


@dataclass(slots=True)
class Target:
    """Memory for one box of a tensor, and what must be done once it is filled."""

    tensor: int
    offset: Shape
    length: Shape
    address: int
    num_bytes: int
    keep: Any
    finish: Callable[[], None] | None = None

    def wanted(self) -> Wanted:
        """The box as the native module takes it."""
        return (self.tensor, self.offset, self.length, self.address, self.num_bytes)


class Tensors:
    """The tensors of a checkpoint by path."""

    def __init__(self, rows: list[tuple[str, str, Shape]]) -> None:
        self._rows = rows
        self._numbers = {path: number for number, (path, _, _) in enumerate(rows)}

    def number(self, path: str) -> int | None:
        """The number of a tensor, or None."""
        return self._numbers.get(path)

    def stored(self, number: int) -> tuple[str, Shape]:
        """The stored type and shape of a tensor."""
        _, dtype, shape = self._rows[number]
        return dtype, shape

    def paths(self) -> list[str]:
        """All paths, in order."""
        return [path for path, _, _ in self._rows]


def _type_of(name: str) -> StoredType:
    stored = stored_as(name)
    if stored is None:
        raise InvalidArgumentError(f"this Headrace knows no elements of type {name}")
    return stored


# --- new arrays -----------------------------------------------------------------------------------


class NewArrays:
    """Makes the arrays of a checkpoint anew, on the CPU."""

    def __init__(self, document: Document, tensors: Tensors) -> None:
        self._document = document
        self._tensors = tensors
        self._made: dict[int, Any] = {}
        self.targets: list[Target] = []

    def build(self) -> Any:
        """Return the state; its arrays have no content until the targets are filled."""
        return unflatten(self._document.state, self._array)

    def finish(self, state: Any) -> Any:
        """Turn what was stored from bytes objects back into them."""
        return _replace_bytes(state)

    def _array(self, number: int, kind: str) -> Any:
        array = self._document.arrays[number]
        if isinstance(array, View):
            base = self._document.arrays[array.base]
            if isinstance(base, View):
                raise ValueError("a view of a view")
            return _view_of(self._buffer(array.base, base), array, kind)
        return _typed(self._buffer(number, array), array.dtype, self._shape(array), kind)

    def _shape(self, array: Stored) -> Shape:
        number = self._number(array)
        extra = len(_type_of(array.dtype).extra)
        shape = self._tensors.stored(number)[1]
        return shape[: len(shape) - extra]

    def _number(self, array: Stored) -> int:
        number = self._tensors.number(array.path)
        if number is None:
            raise ValueError(f"the checkpoint lacks {array.path}")
        return number

    def _buffer(self, number: int, array: Stored) -> Any:
        """The bytes of an array, as a uint8 array of NumPy or PyTorch."""
        if number in self._made:
            return self._made[number]
        tensor = self._number(array)
        shape = self._tensors.stored(tensor)[1]
        num_bytes = _type_of(array.dtype).itemsize
        for n in self._shape(array):
            num_bytes *= n
        buffer, address = _new_bytes(num_bytes)
        self._made[number] = buffer
        self.targets.append(Target(tensor, (0,) * len(shape), shape, address, num_bytes, buffer))
        return buffer


def _new_bytes(num_bytes: int) -> tuple[Any, int]:
    import sys

    torch = sys.modules.get("torch")
    if torch is not None:
        buffer = torch.empty(num_bytes, dtype=torch.uint8)
        return buffer, buffer.data_ptr()
    import numpy

    array: Any = numpy.empty(num_bytes, dtype=numpy.uint8)
    return array, array.ctypes.data


class _BytesLater:
    """Stands for a bytes object until its content is there."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer


def _typed(buffer: Any, dtype: str, shape: Shape, kind: str) -> Any:
    if kind == "bytes":
        return _BytesLater(buffer)
    if kind == "torch":
        import torch

        if not isinstance(buffer, torch.Tensor):
            buffer = torch.from_numpy(buffer)
        wanted = torch_dtypes().get(dtype)
        if wanted is None:
            raise InvalidArgumentError(f"this PyTorch has no {dtype}: use a newer one")
        return (
            buffer.view(wanted).reshape(shape)
            if buffer.numel()
            else torch.empty(shape, dtype=wanted)
        )
    import numpy

    array = buffer if isinstance(buffer, numpy.ndarray) else buffer.numpy()
    return array.view(numpy.dtype(_numpy_name(dtype))).reshape(shape)


def _numpy_name(dtype: str) -> str:
    return "bool" if dtype == "bool" else dtype


def _view_of(base: Any, view: View, kind: str) -> Any:
    itemsize = _type_of(view.dtype).itemsize
    if kind == "torch":
        import torch

        if not isinstance(base, torch.Tensor):
            base = torch.from_numpy(base)
        last = sum((n - 1) * stride for n, stride in zip(view.shape, view.strides, strict=True))
        part = base[view.offset_bytes : view.offset_bytes + (last + 1) * itemsize]
        return part.view(torch_dtypes()[view.dtype]).as_strided(view.shape, view.strides)
    import numpy

    array = base if isinstance(base, numpy.ndarray) else base.numpy()
    return numpy.ndarray(
        view.shape,
        numpy.dtype(_numpy_name(view.dtype)),
        array,
        view.offset_bytes,
        tuple(stride * itemsize for stride in view.strides),
    )


def _replace_bytes(value: Any) -> Any:
    if isinstance(value, _BytesLater):
        return bytes(
            memoryview(value.buffer.numpy() if hasattr(value.buffer, "numpy") else value.buffer)
        )
    if type(value) is dict:
        return {key: _replace_bytes(child) for key, child in value.items()}
    if type(value) is list:
        return [_replace_bytes(child) for child in value]
    if type(value) is tuple:
        return tuple(_replace_bytes(child) for child in value)
    return value


# --- arrays that exist ----------------------------------------------------------------------------


def allocate(spec: Any) -> Any:
    """Return a state as `spec`, with new arrays: on the CPU where those of `spec` are on the meta device.

    Arrays that share all of their memory in `spec` do so again.
    """
    flat = flatten(spec)
    made: dict[Any, Any] = {}

    def array(number: int, kind: str) -> Any:
        value = flat.arrays[number]
        if kind != "torch" or hasattr(value, "to_local"):
            return like(value)
        memory = value.untyped_storage()._cdata
        key = (memory, value.storage_offset(), value.shape, value.stride(), value.dtype)
        if key not in made:
            made[key] = like(value)
        return made[key]

    return unflatten(flat.tree, array)


class GivenArrays:
    """Fills the arrays of a state that the caller has."""

    def __init__(
        self, into: Any, document: Document, tensors: Tensors, allowed: Sequence[str]
    ) -> None:
        self._flat = flatten(into)
        self._document = document
        self._tensors = tensors
        self._allowed = tuple(allowed)
        self._paths = [path_text(path) for path in self._flat.paths]
        self._by_path = dict(zip(self._paths, self._flat.arrays, strict=True))
        self._comparisons: list[Target] = []  # of what other targets have filled: behind them
        self.targets: list[Target] = []

    def plan(self) -> None:
        """Find the memory of all arrays.

        Raises:
            InvalidArgumentError: Lists every array that is missing on one side, or differs in type or
                shape. Nothing was changed.
        """
        faults: list[str] = []
        described = describe(self._flat)
        stored = {array.path: array for array in self._document.arrays if isinstance(array, Stored)}
        views = self._views()
        for number, path in enumerate(self._paths):
            if type(self._flat.arrays[number]) is bytes:
                continue  # taken from the checkpoint
            found = stored.get(path) or views.get(path)
            if found is None:
                self._fault(faults, path, "is not in the checkpoint")
                continue
            fault = self._add_any(number, described, found)
            if fault:
                self._fault(faults, path, fault)
        self.targets += self._comparisons
        for path in stored:
            if path not in self._by_path:
                self._fault(faults, path, "is in the checkpoint and not in the state")
        if faults:
            shown = "; ".join(faults[:50]) + ("; ..." if len(faults) > 50 else "")
            raise InvalidArgumentError(
                f"{len(faults)} arrays do not fit (allow=[path, ...] leaves some out): {shown}"
            )

    def _views(self) -> dict[str, View]:
        """What the checkpoint has as views of other arrays, by path."""
        views = {}
        for number, path in _paths_of_views(self._document).items():
            array = self._document.arrays[number]
            assert isinstance(array, View)
            views[path] = array
        return views

    def _fault(self, faults: list[str], path: str, what: str) -> None:
        if not any(path == one or path.startswith(one.rstrip("/") + "/") for one in self._allowed):
            faults.append(f"{path} {what}")

    def _add_any(self, number: int, described: Described, found: Stored | View) -> str:
        """Plan one array; what is wrong with it, or nothing."""
        source = described.sources[number]
        if isinstance(found, View):
            if self._is_same_view(number, described, found):
                return ""  # filled through the array that it views
        elif source is not None and not is_lazy(self._flat.arrays[number]):
            return self._add(self._paths[number], self._flat.arrays[number], source, found)
        return self._add_apart(number, described, found)

    def _is_same_view(self, number: int, described: Described, saved: View) -> bool:
        own = described.views.get(number)
        base = self._document.arrays[saved.base]
        return (
            own is not None
            and isinstance(base, Stored)
            and self._paths[own.base] == base.path
            and (own.offset_bytes, own.dtype, own.shape, own.strides)
            == (saved.offset_bytes, saved.dtype, saved.shape, saved.strides)
        )

    def _add_apart(self, number: int, described: Described, saved: Stored | View) -> str:
        """Plan an array that shares memory here or in the checkpoint, and not alike in both."""
        value, source = self._flat.arrays[number], described.sources[number]
        base = self._document.arrays[saved.base] if isinstance(saved, View) else saved
        if not isinstance(base, Stored) or (tensor := self._tensors.number(base.path)) is None:
            return "is not in the checkpoint"
        stored = self._tensors.stored(tensor)[1]
        base_shape = stored[: len(stored) - len(_type_of(base.dtype).extra)]
        shape = saved.shape if isinstance(saved, View) else base_shape
        fault = _misfit(described.views[number] if source is None else source, saved.dtype, shape)
        num_bytes = _type_of(base.dtype).itemsize * math.prod(base_shape)
        if fault or num_bytes == 0:
            return fault
        buffer, address = _new_bytes(num_bytes)
        kind = "torch" if hasattr(value, "detach") else "numpy"
        if isinstance(saved, View):
            array = _view_of(buffer, saved, kind)
        else:
            array = _typed(buffer, base.dtype, base_shape, kind)
        target = Target(tensor, (0,) * len(stored), stored, address, num_bytes, buffer)
        if source is not None:
            target.finish = copier(value, source, array)
            self.targets.append(target)
        else:
            other = self._paths[described.views[number].base]
            target.finish = comparer(self._paths[number], other, value, array)
            self._comparisons.append(target)
        return ""

    def _add(self, path: str, value: Any, source: Any, found: Stored) -> str:
        tensor = self._tensors.number(path)
        if tensor is None:
            return "is not in the checkpoint"
        shape = self._tensors.stored(tensor)[1]
        extra = _type_of(found.dtype).extra
        box = source.box
        fault = _misfit(source, found.dtype, shape[: len(shape) - len(extra)])
        if fault:
            return fault
        address, keep, finish = _destination(value, source)
        if source.num_bytes:
            offset, length = (0,) * len(shape), shape
            if box is not None:
                offset, length = box.offset + (0,) * len(extra), box.length + extra
            self.targets.append(
                Target(tensor, offset, length, address, source.num_bytes, keep, finish)
            )
        return ""

    def state(self, new: NewArrays) -> Any:
        """The state as saved, with the caller's arrays in the places of those that were filled."""
        arrays = self._document.arrays
        views = _paths_of_views(self._document)

        def array(number: int, kind: str) -> Any:
            stored = arrays[number]
            path = stored.path if isinstance(stored, Stored) else views[number]
            given = self._by_path.get(path)
            if given is not None and type(given) is not bytes:
                return given
            return new._array(number, kind)

        return unflatten(self._document.state, array)


def _misfit(own: Source | View, dtype: str, shape: Shape) -> str:
    """How an array differs from what is saved, or nothing."""
    box = own.box if isinstance(own, Source) else None
    own_shape = own.shape if box is None else box.shape
    if own.dtype != dtype:
        return f"has type {own.dtype}, and {dtype} in the checkpoint"
    if own_shape != shape:
        return f"has shape {own_shape}, and {shape} in the checkpoint"
    return ""


def _paths_of_views(document: Document) -> dict[int, str]:
    """Where in the state the arrays lie that are views of others, by number."""
    if not any(isinstance(array, View) for array in document.arrays):
        return {}
    return {
        number: path_text(path)
        for path, number, _ in arrays_of(document.state)
        if isinstance(document.arrays[number], View)
    }


def _destination(value: Any, source: Any) -> tuple[int, Any, Callable[[], None] | None]:
    """Address of memory in C order for an array, and what copies it there when it is not its own."""
    if source.strided is None and source.address and source.keep is not None:
        own = getattr(value, "flags", None)
        if own is None or (own.c_contiguous and own.writeable):
            return source.address, source.keep, None
    if source.strided is not None:
        import torch

        buffer = torch.empty(source.shape, dtype=source.strided.dtype)
        target = source.strided

        def copy_torch() -> None:
            with torch.no_grad():
                target.copy_(buffer)

        return buffer.data_ptr(), buffer, copy_torch
    import numpy

    if not isinstance(value, numpy.ndarray) or not value.flags.writeable:
        raise InvalidArgumentError("an array that cannot be written to was given to restore into")
    array = numpy.empty(source.shape, dtype=value.dtype)

    def copy_numpy() -> None:
        value[...] = array

    return array.ctypes.data, array, copy_numpy
