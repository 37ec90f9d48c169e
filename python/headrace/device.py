"""Copies batches to an accelerator while the one before is in use. Needs PyTorch.

Not verified on a GPU: written against PyTorch's documented stream rules and tested with a double.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import StateError

if TYPE_CHECKING:
    from headrace.loader import EpochIterator, Loader

Batch = dict[str, Any]


class _Sent(NamedTuple):
    """A batch on its way, or the error that stands in its place."""

    batch: Batch
    state: str  # of the loader behind it
    ready: Any  # event of the copy
    error: Exception | None


class DeviceCopier:
    """Keeps one batch on its way to the device ahead of the one in use.

    Tensors are brought into page-locked memory and copied on a side stream; the consumer's stream
    waits for the copy by an event, never the CPU.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise StateError(
                f"device={str(device)!r}: PyTorch finds no CUDA device here; leave device out to get "
                "batches in memory, or install a driver and a PyTorch that is built for CUDA"
            )
        # On the CPU there is nothing to overlap: batches pass through as they are.
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        # State behind the last batch that the consumer got; the loader itself is one ahead.
        self.state: str | None = None

    def iterate(self, batches: EpochIterator, loader: Loader) -> Iterator[Batch]:
        """Return an iterator of the batches on the device, the next one already under way."""
        self.state = loader._native.state_json()
        return _DeviceIterator(self, batches, loader)

    def send(self, batches: EpochIterator, loader: Loader) -> _Sent | None:
        """Take the next batch, or its error, and start its copy. None at the end."""
        try:
            sent = self._send(batches, loader)
        except Exception as error:
            return _Sent({}, loader._native.state_json(), None, error)
        return sent

    def _send(self, batches: EpochIterator, loader: Loader) -> _Sent | None:
        batch = next(batches, None)
        if batch is None:
            return None
        state = loader._native.state_json()
        if self._stream is None:
            return _Sent({k: self._move(v) for k, v in batch.items()}, state, None, None)
        with self._torch.cuda.stream(self._stream):
            moved = {k: self._move(v) for k, v in batch.items()}
            ready = self._torch.cuda.Event()
            ready.record(self._stream)
        return _Sent(moved, state, ready, None)

    def _move(self, value: Any) -> Any:
        if isinstance(value, dict):  # the views of a field
            return {name: self._move(view) for name, view in value.items()}
        if not isinstance(value, self._torch.Tensor):
            return value
        if self._stream is None:
            return value.to(self._device)
        return value.pin_memory().to(self._device, non_blocking=True)

    def wait(self, batch: Batch, ready: Any) -> None:
        """Make the consumer's stream wait for a batch."""
        if self._stream is None:
            return
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(ready)
        for value in batch.values():
            for tensor in value.values() if isinstance(value, dict) else [value]:
                if isinstance(tensor, self._torch.Tensor):
                    tensor.record_stream(current)


class _DeviceIterator(Iterator[Batch]):
    """One pass over an epoch, a batch ahead of the consumer."""

    def __init__(self, copier: DeviceCopier, batches: EpochIterator, loader: Loader) -> None:
        self._copier = copier
        self._batches = batches
        self._loader = loader
        self._ahead: _Sent | None = None
        self._begun = self._done = False

    def __next__(self) -> Batch:
        if self._done:
            raise StopIteration
        self._batches.check_current()
        if not self._begun:
            self._ahead = self._copier.send(self._batches, self._loader)
            self._begun = True
        sent = self._ahead
        if sent is None:
            self._done = True
            self._copier.state = None
            raise StopIteration
        self._ahead = self._copier.send(self._batches, self._loader)
        self._copier.state = sent.state
        if sent.error is not None:
            raise sent.error
        self._copier.wait(sent.batch, sent.ready)
        return sent.batch

    def __len__(self) -> int:
        return len(self._loader)
