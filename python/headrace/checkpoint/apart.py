"""Arrays that share memory in a checkpoint and not in the state that it is restored into, or the other
way round: they are read into memory of their own, and copied or compared from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.checkpoint.arrays import Source
from headrace.checkpoint.dtensor import dtensor_class
from headrace.errors import InvalidArgumentError


def is_lazy(value: Any) -> bool:
    """Whether a tensor's own memory is not what it shows: a conjugate or negative view."""
    return bool(getattr(value, "is_conj", bool)() or getattr(value, "is_neg", bool)())


def copier(value: Any, source: Source, saved: Any) -> Callable[[], None]:
    """Return what puts the saved array, or this rank's part of it, into `value`.

    Raises:
        InvalidArgumentError: `value` cannot be written to.
    """
    flags = getattr(value, "flags", None)
    if flags is not None and not flags.writeable:
        raise InvalidArgumentError("an array that cannot be written to was given to restore into")
    to_local = getattr(value, "to_local", None)
    local = value if to_local is None else to_local()
    part = saved if source.box is None else saved[_slices(source.box.offset, source.box.length)]

    def copy() -> None:
        if flags is not None:
            local[...] = part
            return
        import torch

        with torch.no_grad():
            local.copy_(part)

    return copy


def _slices(offset: tuple[int, ...], length: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(o, o + n) for o, n in zip(offset, length, strict=True))


def comparer(path: str, other: str, value: Any, saved: Any) -> Callable[[], None]:
    """Return what raises when `value`, which was filled through the array at `other`, is not what was
    saved.
    """

    def compare() -> None:
        if not _same_bits(value, saved):
            raise InvalidArgumentError(
                f"{path} shares memory with {other} in the state that was given, but the checkpoint has "
                "other values for each; both have those of the latter now: give it memory of its own"
            )

    return compare


def _same_bits(a: Any, b: Any) -> bool:
    if hasattr(a, "detach"):
        import torch

        raw = [
            tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            for tensor in (a, b)
        ]
        return bool(torch.equal(*raw))
    return bool(a.tobytes() == b.tobytes())


def like(value: Any) -> Any:
    """Return a new array like `value`, of zeros, on its device; on the CPU when that is meta."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        import numpy

        return numpy.zeros_like(value) if isinstance(value, numpy.ndarray) else value
    placements = getattr(value, "placements", None)
    local = value if placements is None else value.to_local()
    device = "cpu" if local.device.type == "meta" else local.device
    # What is allowed not to fit stays as it is here.
    new = torch.zeros_like(local, device=device, requires_grad=False)
    if placements is None:
        return new
    return dtensor_class().from_local(
        new,
        value.device_mesh,
        placements,
        run_check=False,
        shape=value.shape,
        stride=value.stride(),
    )
