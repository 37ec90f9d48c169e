"""Keep the record of a run: what each rank did, for ``headrace doctor``, ``report`` and ``compare``.

The record is a folder of JSON lines, one file for each rank, that never grows beyond a limit. By
environment, without a line of code::

    HEADRACE_RECORD=/shared/runs/42    each rank records into this folder, from its first batch on
    HEADRACE_RECORD=off                no record, not even beside checkpoints
    HEADRACE_RECORD_INTERVAL=10        seconds between two looks

Without it a run that saves checkpoints into a folder is recorded beside them:
``headrace.checkpoint.Checkpointer``.
"""

from __future__ import annotations

import logging
import os

from headrace import _native
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.process_end import at_process_end

_log = logging.getLogger("headrace")
# Of a file of a record that nobody asked for: smaller than of one that somebody did.
BESIDE_LIMIT_BYTES = 4 << 20


class _LogLines(logging.Handler):
    """Puts the job's warnings and errors into the record."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = "error" if record.levelno >= logging.ERROR else "warning"
            _native.record_log(level, f"{record.name}: {record.getMessage()}")
        except Exception:
            self.handleError(record)


_handler: _LogLines | None = None
_directory = ""  # of the record that is kept; empty: none
_was_kept = False  # whether this process has kept one


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
    _start(os.fspath(directory), float(interval), int(limit_bytes), False)


def _start(directory: str, interval: float, limit_bytes: int, from_beginning: bool) -> None:
    global _handler, _directory, _was_kept
    _native.record_start(directory, interval, limit_bytes, from_beginning)
    _directory, _was_kept = directory, True
    if _handler is None:
        _handler = _LogLines(logging.WARNING)
        logging.getLogger().addHandler(_handler)


def stop() -> None:
    """Take a last look and end the record. No effect when none is kept."""
    global _handler, _directory
    _directory = ""
    if _handler is not None:
        logging.getLogger().removeHandler(_handler)
        _handler = None
    _native.record_stop()


def start_as_asked() -> None:
    """Start what the environment asks for. A record that cannot be kept is logged and left out."""
    directory = os.environ.get("HEADRACE_RECORD")
    if not directory or _is_off(directory):
        return
    try:
        start(directory, interval=_interval())
    except HeadraceError as error:
        _log.warning("this run is not recorded: %s", error)


def start_beside(directory: str) -> bool:
    """Record into a folder beside the run's checkpoints, with all that it did so far.

    Returns False when the run is recorded elsewhere already, or the environment says what to do.

    Raises:
        HeadraceError: the folder cannot be written.
    """
    if _directory or os.environ.get("HEADRACE_RECORD"):
        return False
    # What a run before it in the same process did is in the record of that one.
    _start(directory, _interval(), BESIDE_LIMIT_BYTES, not _was_kept)
    return True


def stop_beside(directory: str) -> None:
    """End the record that start_beside() began; one that was begun elsewhere since goes on."""
    if _directory == directory:
        stop()


def _is_off(text: str) -> bool:
    return text.lower() in ("off", "0", "no", "false")


def _interval() -> float:
    text = os.environ.get("HEADRACE_RECORD_INTERVAL") or "10"
    try:
        return float(text)
    except ValueError:
        raise InvalidArgumentError(
            f"HEADRACE_RECORD_INTERVAL: expected seconds, found {text!r}"
        ) from None


def _forget() -> None:
    """In a forked child: nothing is recorded there."""
    global _directory
    _directory = ""


os.register_at_fork(after_in_child=_forget)
# The last look comes before the interpreter takes anything away.
at_process_end(stop)
