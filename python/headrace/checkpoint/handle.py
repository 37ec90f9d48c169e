"""A save under way, and the levels that it reaches."""

from __future__ import annotations

import time
from typing import Any, Literal

from headrace import _native
from headrace.errors import InvalidArgumentError

Level = Literal["memory", "local", "peer", "remote"]
_LEVELS: tuple[Level, ...] = ("memory", "local", "peer", "remote")


class SaveHandle:
    """A save under way."""

    def __init__(
        self, saver: Any, number: int, step: int, levels: tuple[Level, Level], stall_s: float
    ) -> None:
        self._saver = saver
        self._number = number
        self._first, self._level = levels  # the first one that is durable, and the last one
        self.step = step
        #: Seconds that ``save`` took: the training step's stall.
        self.stall_s = stall_s
        self._called = time.perf_counter() - stall_s
        self._traced: set[Level] = set()
        self._trace("memory")

    def wait(self, level: Level | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the save is durable at `level` (default: the first one that is durable).

        Returns a report: bytes, reused and written bytes, seconds of each phase.

        Raises:
            HeadraceError: The save failed; the checkpoint before is still the newest.
            TimeoutError: Not yet; nothing is lost.
        """
        level = level or self._first
        check_level(level, self._level)
        if level == "memory":
            return {"step": self.step, "stall_s": self.stall_s}
        report: dict[str, Any] = self._saver.wait(self._number, timeout, level)
        report["stall_s"] = self.stall_s
        self._trace(level)
        return report

    def done(self, level: Level | None = None) -> bool:
        """Whether `level` is reached. Raises as wait() when the save failed."""
        level = level or self._first
        check_level(level, self._level)
        if level == "memory":
            return True
        if not self._saver.ended(self._number, level):
            return False
        self.wait(level)
        return True

    def _trace(self, level: Level) -> None:
        """Tell a trace, once for each level, that it is known to be reached."""
        if level not in self._traced:
            self._traced.add(level)
            seconds = time.perf_counter() - self._called
            _native.book_save_level(self.step, _LEVELS.index(level), seconds)


def check_level(level: Level, reached: Level) -> None:
    """Raise InvalidArgumentError for a level that a store of level `reached` cannot give."""
    if level not in _LEVELS:
        raise InvalidArgumentError(f"no level is called {level!r}: there are {', '.join(_LEVELS)}")
    if _LEVELS.index(level) > _LEVELS.index(reached):
        raise InvalidArgumentError(
            f"this store reaches {reached!r} and not {level!r}; where it is a mounted file system that "
            f"outlives the node, open it with level={level!r}"
        )
