"""Copies batches to an accelerator while the one before is in use. Needs PyTorch.

Not verified on a GPU: written against PyTorch's documented stream rules and tested with a double.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.loader import Loader

Batch = dict[str, Any]


class DeviceCopier:
    """Keeps one batch on its way to the device ahead of the one in use.

    Tensors are brought into page-locked memory and copied on a side stream; the consumer's stream
    waits for the copy by an event, never the CPU.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        # On the CPU there is nothing to overlap: batches pass through as they are.
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        # State behind the last batch that the consumer got; the loader itself is one ahead.
        self.state: str | None = None

    def iterate(self, batches: Iterator[Batch], loader: Loader) -> Iterator[Batch]:
        """Yield the batches on the device, the next one already under way."""
        self.state = loader._native.state_json()
        ahead = self._send(batches, loader)
        while ahead is not None:
            batch, state, ready = ahead
            ahead = self._send(batches, loader)
            self._wait(batch, ready)
            self.state = state
            yield batch
        self.state = None

    def _send(self, batches: Iterator[Batch], loader: Loader) -> tuple[Batch, str, Any] | None:
        batch = next(batches, None)
        if batch is None:
            return None
        state = loader._native.state_json()
        if self._stream is None:
            return {k: self._move(v) for k, v in batch.items()}, state, None
        with self._torch.cuda.stream(self._stream):
            moved = {k: self._move(v) for k, v in batch.items()}
            ready = self._torch.cuda.Event()
            ready.record(self._stream)
        return moved, state, ready

    def _move(self, value: Any) -> Any:
        if not isinstance(value, self._torch.Tensor):
            return value
        if self._stream is None:
            return value.to(self._device)
        return value.pin_memory().to(self._device, non_blocking=True)

    def _wait(self, batch: Batch, ready: Any) -> None:
        if self._stream is None:
            return
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(ready)
        for value in batch.values():
            if isinstance(value, self._torch.Tensor):
                value.record_stream(current)
