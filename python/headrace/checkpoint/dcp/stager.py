"""Staging of ``dcp.async_save``: the copy that the training waits for goes into the arena at once."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.staging import AsyncStager, BlockingAsyncStager

from headrace.checkpoint.dcp.session import (
    SLACK_BYTES,
    Piece,
    Submission,
    padded,
    synchronize,
    tensor_in,
)
from headrace.checkpoint.dtensor import dtensor_class
from headrace.errors import StateError

if TYPE_CHECKING:
    from headrace.checkpoint.dcp.writer import HeadraceWriter


class HeadraceStager(AsyncStager):  # type: ignore[misc]
    """Copies the state into the arena of a writer, from where it is written without another copy.

    ``dcp.async_save(state, storage_writer=writer)`` uses one by itself; an explicit one is for
    ``async_stager=``. ``stage`` returns when the state is copied; every tensor may be changed then.

    One save at a time: wait for the future of one before you begin the next. While the one before is
    being written ``stage`` waits for room, unless the writer has ``arena_bytes`` for two states.

    Of several ranks the first save copies into memory of its own, since nobody knows yet under which
    epoch the ranks write.
    """

    _synchronize_after_execute = False

    def __init__(self, writer: HeadraceWriter) -> None:
        self._writer = writer

    def stage(self, state_dict: Any, **_: Any) -> Any:
        """Return a copy of the state. What is no tensor is copied deeply."""
        tensors = list(_tensors(state_dict))
        if not all(map(_is_ordinary, tensors)):
            return BlockingAsyncStager().stage(state_dict)
        local = [_local(tensor).detach() for tensor in tensors]
        staged = self._writer._begin_stage(sum(padded(tensor.nbytes) for tensor in local), local)
        places = [tensor.clone() for tensor in local] if staged is None else staged.tensors
        return _rebuild(state_dict, iter(places))

    def synchronize_staging(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to give back: the arena is the writer's."""


class Staged:
    """Tensors in the arena."""

    def __init__(self, saver: Any, tensors: Sequence[Any]) -> None:
        self.saver = saver
        # What the planner adds to it (numbers as streams) has to fit, too.
        self._room = sum(padded(tensor.nbytes) for tensor in tensors) + SLACK_BYTES
        self._loan: Any = saver.borrow(self._room)
        self.tensors: list[Any] = []
        self._places: dict[int, tuple[int, int]] = {}  # address -> offset, bytes
        self._span = (0, 0)
        offset = 0
        for tensor in tensors:
            size = tensor.nbytes
            place = tensor_in(self._loan, offset, size, tensor.dtype, tensor.shape)
            place.copy_(tensor, non_blocking=True)
            self.tensors.append(place)
            if size:
                self._places[place.data_ptr()] = (offset, size)
                self._span = (place.data_ptr() - offset, place.data_ptr() - offset + self._room)
            offset += padded(size)
        synchronize({tensor.device for tensor in tensors})

    def give_back(self) -> None:
        """Give the memory back."""
        if self._loan is not None:
            self._loan.give_back()
            self._loan = None
            self.tensors = []

    def submission(self, pieces: list[Piece]) -> Submission | None:
        """Return the submission of pieces that lie here, which are moved together where some are missing
        (other ranks write them). None where they do not fit: the pieces have memory of their own then.

        Raises:
            StateError: a newer save has begun meanwhile.
        """
        if self._loan is None:
            raise StateError(
                "another async_save began before this one was written: wait for its future first"
            )
        here = [piece for piece in pieces if self._is_whole(piece)]
        inside = set(map(id, here))
        others = [piece for piece in pieces if id(piece) not in inside]
        fits = sum(padded(piece.num_bytes) for piece in pieces) <= self._room
        if (
            not fits
            or any(map(self._overlaps, others))
            or len(here) != len({piece.address for piece in here})
        ):
            for piece in filter(self._overlaps, pieces):
                piece.keep = (piece.keep if piece.strided is None else piece.strided).clone(
                    memory_format=torch.contiguous_format
                )
                piece.address, piece.strided = piece.keep.data_ptr(), None
            self.give_back()
            return None
        here.sort(key=lambda piece: piece.address)
        self._move_together(here)
        loan, self._loan = self._loan, None
        return Submission(self.saver, here + others, loan)

    def _is_whole(self, piece: Piece) -> bool:
        place = self._places.get(piece.address)
        return place is not None and piece.strided is None and place[1] == piece.num_bytes

    def _overlaps(self, piece: Piece) -> bool:
        address = piece.address if piece.strided is None else piece.strided.data_ptr()
        return piece.num_bytes > 0 and self._span[0] <= address < self._span[1]

    def _move_together(self, pieces: Sequence[Piece]) -> None:
        to = self._span[0]
        for piece in pieces:  # always to the front, so nothing is overwritten before it is moved
            if piece.address != to:
                ctypes.memmove(to, piece.address, piece.num_bytes)
            to += padded(piece.num_bytes)
            piece.address = 0  # is where it belongs


def _tensors(value: Any) -> Iterator[Any]:
    """Yields the tensors of nested containers, in the order of _rebuild."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for child in value.values():
            yield from _tensors(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _tensors(child)


def _is_ordinary(tensor: Any) -> bool:
    """Whether it is memory on a device, or a DTensor of such."""
    local = _local(tensor)
    return (
        (isinstance(tensor, torch.nn.Parameter) or _is_distributed(tensor))
        or type(tensor) is torch.Tensor
    ) and (local.layout is torch.strided and not local.is_quantized and local.device.type != "meta")


def _is_distributed(tensor: Any) -> bool:
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def _local(tensor: Any) -> Any:
    return tensor.to_local() if _is_distributed(tensor) else tensor


def _rebuild(value: Any, places: Iterator[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        place = next(places)
        if not _is_distributed(value):
            return place
        return dtensor_class().from_local(
            place,
            value.device_mesh,
            value.placements,
            run_check=False,
            shape=value.shape,
            stride=value.stride(),
        )
    if isinstance(value, dict):
        return {key: _rebuild(child, places) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        children = [_rebuild(child, places) for child in value]
        return children if isinstance(value, list) else tuple(children)
    return copy.deepcopy(value)
