"""Exceptions. All derive from HeadraceError and say where in the data the fault lies."""

from __future__ import annotations

from typing import Any


class HeadraceError(Exception):
    """An error of Headrace.

    Attributes:
        code: number of the error in the one table of codes (stable).
        code_name: its name, e.g. ``"data loss"``.
        shard: file name of the shard or file, or ``""``.
        offset: bytes from the start of ``shard``, or None.
        key: key of the sample, or ``""`` (bytes that are not UTF-8 come as surrogate escapes).
        field: name of the field, or ``""``.
    """

    code: int = 13
    code_name: str = "internal error"

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        shard: str = "",
        offset: int | None = None,
        key: str = "",
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
            self.code_name = _NAMES.get(code, "unknown")
        self.shard = shard
        self.offset = offset
        self.key = key
        self.field = field

    def __str__(self) -> str:
        place = [
            f"{name}: {value!r}" if name == "key" else f"{name}: {value}"
            for name, value in (
                ("shard", self.shard),
                ("offset", self.offset),
                ("key", self.key),
                ("field", self.field),
            )
            if value not in ("", None)
        ]
        text = f"{self.code_name}: {self.message}"
        return f"{text} [{', '.join(place)}]" if place else text

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "code": self.code,
            "shard": self.shard,
            "offset": self.offset,
            "key": self.key,
            "field": self.field,
        }
        return (_rebuild, (type(self), self.message, state))


class InvalidArgumentError(HeadraceError, ValueError):
    """The caller's values make no sense."""

    code, code_name = 2, "invalid argument"


class NotFoundError(HeadraceError, LookupError):
    """A file, key, field or member that should be there is not."""

    code, code_name = 3, "not found"


class BudgetError(HeadraceError):
    """A limit was reached: memory, descriptors, disk space, bad samples."""

    code, code_name = 6, "limit reached"


class StateError(HeadraceError):
    """The state does not fit: another dataset version, other settings, a fork."""

    code, code_name = 7, "failed precondition"


class DataLossError(HeadraceError):
    """Bytes are missing or wrong: checksum, truncation, damage, not an image."""

    code, code_name = 10, "data loss"


class CancelledError(HeadraceError):
    """The loader was closed."""

    code, code_name = 1, "cancelled"


class DeadlineError(HeadraceError, TimeoutError):
    """The time that the caller gave has passed; nothing is lost."""

    code, code_name = 12, "deadline exceeded"


_NAMES = {
    1: "cancelled",
    2: "invalid argument",
    3: "not found",
    4: "already exists",
    5: "permission denied",
    6: "limit reached",
    7: "failed precondition",
    8: "out of range",
    9: "not supported",
    10: "data loss",
    11: "unavailable",
    12: "deadline exceeded",
    13: "internal error",
    14: "I/O error",
}
_CLASSES = {
    error.code: error
    for error in (
        CancelledError,
        InvalidArgumentError,
        NotFoundError,
        BudgetError,
        StateError,
        DataLossError,
        DeadlineError,
    )
}


def from_status(
    code: int, message: str, shard: str, offset: int | None, key: str, field: str
) -> HeadraceError:
    """Return the exception for a native status. Called by the native module."""
    cls = _CLASSES.get(code, HeadraceError)
    return cls(message, code=code, shard=shard, offset=offset, key=key, field=field)


def _rebuild(cls: type[HeadraceError], message: str, state: dict[str, Any]) -> HeadraceError:
    return cls(message, **state)
