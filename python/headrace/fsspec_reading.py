"""What Headrace's file systems for fsspec have in common: their errors, and that they only read."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError, InvalidArgumentError

# Settings that fsspec gives to every file system of its own accord.
OF_FSSPEC = (
    "asynchronous",
    "loop",
    "skip_instance_cache",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
)
_ERRNO = {
    "not found": errno.ENOENT,
    "permission denied": errno.EACCES,
    "limit reached": errno.ENOMEM,
    "failed precondition": errno.ESTALE,
    "not supported": errno.ENOTSUP,
    "unavailable": errno.ECONNABORTED,
    "deadline exceeded": errno.ETIMEDOUT,
    "cancelled": errno.ECANCELED,
}
_WRITES = (
    *("_rm", "cp_file", "makedirs", "mkdir", "mv", "pipe_file", "put_file"),
    *("rm", "rm_file", "rmdir", "touch"),
)


def called(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the call returns; its errors become OSErrors about ``name``."""
    try:
        return call(*arguments)
    except InvalidArgumentError:
        raise
    except HeadraceError as error:
        number = _ERRNO.get(error.code_name, errno.EIO)
        raise OSError(number, str(error), name) from error


def refuse_to_write(file_system: type, advice: str) -> None:
    """Make every call of a class of file systems that would write an OSError with this advice."""

    def refuse(self: Any, path: Any = "", *_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, advice, path)

    for name in _WRITES:
        setattr(file_system, name, refuse)


class PositionedFile(io.RawIOBase):
    """An open file without a buffer: its position. A subclass sets ``size`` and reads."""

    size: int

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise ValueError(f"cannot seek to {offset}, whence {whence}")
        self._at = base + offset
        return self._at
