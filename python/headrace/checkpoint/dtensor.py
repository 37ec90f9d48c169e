"""PyTorch's DTensors, wherever the installed PyTorch keeps them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def dtensor_class() -> Any:
    """Return the class."""
    try:
        from torch.distributed.tensor import DTensor
    except ImportError:  # before PyTorch 2.5
        from torch.distributed._tensor import DTensor
    return DTensor


@cache
def local_shape_and_offset() -> Callable[..., Any]:
    """Return the function that tells which part of a tensor this rank has."""
    try:
        from torch.distributed.tensor import _utils
    except ImportError:  # before PyTorch 2.5
        from torch.distributed._tensor import _utils
    found: Callable[..., Any] = _utils.compute_local_shape_and_global_offset
    return found
