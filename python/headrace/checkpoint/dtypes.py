"""Element types: how PyTorch's and NumPy's are named in a data file (safetensors' names)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Stored(NamedTuple):
    """How elements are stored: `dtype` by safetensors' name, each as `extra` dimensions of it."""

    dtype: str
    itemsize: int
    extra: tuple[int, ...] = ()


# Torch names. Those that safetensors lacks are stored as what they consist of; the tree keeps
# the name, so that they come back as they were.
_TORCH: dict[str, Stored] = {
    "float64": Stored("F64", 8),
    "float32": Stored("F32", 4),
    "float16": Stored("F16", 2),
    "bfloat16": Stored("BF16", 2),
    "float8_e4m3fn": Stored("F8_E4M3", 1),
    "float8_e5m2": Stored("F8_E5M2", 1),
    "float8_e4m3fnuz": Stored("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": Stored("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": Stored("F8_E8M0", 1),
    "int64": Stored("I64", 8),
    "int32": Stored("I32", 4),
    "int16": Stored("I16", 2),
    "int8": Stored("I8", 1),
    "uint64": Stored("U64", 8),
    "uint32": Stored("U32", 4),
    "uint16": Stored("U16", 2),
    "uint8": Stored("U8", 1),
    "bool": Stored("BOOL", 1),
    "complex64": Stored("C64", 8),
    "complex128": Stored("F64", 16, (2,)),
    "complex32": Stored("F16", 4, (2,)),
    "float4_e2m1fn_x2": Stored("U8", 1),
}

# NumPy's kinds and sizes, little-endian.
_NUMPY: dict[str, str] = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "i8": "int64",
    "i4": "int32",
    "i2": "int16",
    "i1": "int8",
    "u8": "uint64",
    "u4": "uint32",
    "u2": "uint16",
    "u1": "uint8",
    "b1": "bool",
    "c8": "complex64",
    "c16": "complex128",
}


def stored_as(name: str) -> Stored | None:
    """Return how elements of the type `name` (PyTorch's name) are stored; None: they cannot be."""
    return _TORCH.get(name)


def name_of_numpy(dtype: Any) -> str | None:
    """Return PyTorch's name of a NumPy dtype; None where there is none."""
    if dtype.byteorder == ">" or dtype.fields is not None or dtype.subdtype is not None:
        return None
    return _NUMPY.get(f"{dtype.kind}{dtype.itemsize}")


@cache
def torch_dtypes() -> dict[str, torch.dtype]:
    """Return those of our types that the installed PyTorch has, by name."""
    import torch

    return {name: getattr(torch, name) for name in _TORCH if hasattr(torch, name)}


@cache
def names_of_torch() -> dict[torch.dtype, str]:
    """Return the names of the installed PyTorch's types."""
    return {dtype: name for name, dtype in torch_dtypes().items()}
