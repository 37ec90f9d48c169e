"""Sizes as people write them."""

from __future__ import annotations

import re

from headrace.errors import InvalidArgumentError

_FACTORS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}


def parse_size(value: int | str) -> int:
    """Return bytes for 65536, ``"64MiB"`` or ``"1.5GB"``. Raises InvalidArgumentError."""
    if isinstance(value, int):
        if value < 0:
            raise InvalidArgumentError(f"expected a size in bytes, found {value}")
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    factor = _FACTORS.get(match[2].lower()) if match else None
    if not match or factor is None:
        raise InvalidArgumentError(f"expected a size such as 64MiB, found {value!r}")
    return int(float(match[1]) * factor)
