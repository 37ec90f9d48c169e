"""Arrays over native memory, for any framework, without a copy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy
    import torch


class Tensor:
    """A dense array in memory that the loader shares with its consumers.

    Speaks DLPack, so ``torch.from_dlpack(t)``, ``numpy.from_dlpack(t)`` and
    ``jax.dlpack.from_dlpack(t)`` share the memory. It may be kept: the memory is recycled only
    after the last array that shares it is gone.
    """

    __slots__ = ("_array", "_dtype", "_shape")

    def __init__(self, array: Any, shape: tuple[int, ...], dtype: str) -> None:
        self._array = array
        self._shape = shape
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions."""
        return self._shape

    @property
    def dtype(self) -> str:
        """Name of the element type, e.g. ``"float32"`` or ``"bfloat16"``."""
        return self._dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._array.__dlpack_device__()
        return device

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Return a NumPy array over the same memory.

        Raises:
            TypeError: NumPy has no bfloat16; use ``torch()``.
        """
        import numpy as np

        if self._dtype == "bfloat16":
            raise TypeError("NumPy has no bfloat16: use .torch(), or dtype='float16' or 'float32'")
        array: numpy.ndarray[Any, Any] = np.asarray(memoryview(self._array))
        return array

    def torch(self) -> torch.Tensor:
        """Return a PyTorch tensor over the same memory."""
        import torch

        tensor: torch.Tensor = torch.from_dlpack(self._array)
        return tensor

    def __repr__(self) -> str:
        return f"headrace.Tensor(shape={self.shape}, dtype={self._dtype})"


def converter(output: str) -> Any:
    """Return the function that turns a Tensor into what the user asked for.

    Args:
        output: ``"torch"``, ``"numpy"``, ``"tensor"``, or ``"auto"``: torch when PyTorch has been
            imported by now, else ``headrace.Tensor``.
    """
    if output == "auto":
        output = "torch" if "torch" in sys.modules else "tensor"
    choices = {"torch": Tensor.torch, "numpy": Tensor.numpy, "tensor": lambda tensor: tensor}
    if output not in choices:
        raise InvalidArgumentError(
            f"output: expected auto, torch, numpy or tensor, found {output!r}"
        )
    return choices[output]
