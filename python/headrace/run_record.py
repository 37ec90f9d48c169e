"""Keep the record of a run: what each rank did, for ``headrace doctor``, ``report`` and ``compare``.

The record is a folder of JSON lines, one file for each rank, that never grows beyond a limit. By
environment, without a line of code::

    HEADRACE_RECORD=/shared/runs/42    each rank records into this folder, from its first batch on
    HEADRACE_RECORD_INTERVAL=10        seconds between two looks
"""

from __future__ import annotations

import logging
import os

from headrace import _native
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.process_end import at_process_end

_log = logging.getLogger("headrace")


class _LogLines(logging.Handler):
    """Puts the job's warnings and errors into the record."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = "error" if record.levelno >= logging.ERROR else "warning"
            _native.record_log(level, f"{record.name}: {record.getMessage()}")
        except Exception:
            self.handleError(record)


_handler: _LogLines | None = None


def start(
    directory: str | os.PathLike[str], *, interval: float = 10.0, limit_bytes: int = 16 << 20
) -> None:
    """Record this process's run from now on, into a folder that all ranks of the run share.

    Call it when the loader is made: it says which rank this is. What is logged at the level of a
    warning or above, by any logger, goes into the record as well.

    Args:
        directory: the run's folder, made when it is missing. A record that is there is continued.
        interval: seconds between two looks, at least 0.1.
        limit_bytes: of a file; one older file is kept beside it.

    Raises:
        InvalidArgumentError: an interval or a limit that is too small.
        HeadraceError: the folder cannot be written.
    """
    global _handler
    _native.record_start(os.fspath(directory), float(interval), int(limit_bytes))
    if _handler is None:
        _handler = _LogLines(logging.WARNING)
        logging.getLogger().addHandler(_handler)


def stop() -> None:
    """Take a last look and end the record. No effect when none is kept."""
    global _handler
    if _handler is not None:
        logging.getLogger().removeHandler(_handler)
        _handler = None
    _native.record_stop()


def start_as_asked() -> None:
    """Start what the environment asks for. A record that cannot be kept is logged and left out."""
    directory = os.environ.get("HEADRACE_RECORD")
    if not directory:
        return
    text = os.environ.get("HEADRACE_RECORD_INTERVAL") or "10"
    try:
        try:
            interval = float(text)
        except ValueError:
            raise InvalidArgumentError(
                f"HEADRACE_RECORD_INTERVAL: expected seconds, found {text!r}"
            ) from None
        start(directory, interval=interval)
    except HeadraceError as error:
        _log.warning("this run is not recorded: %s", error)


# The last look comes before the interpreter takes anything away.
at_process_end(stop)
