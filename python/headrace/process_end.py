"""What is done before a process ends, also one that multiprocessing has started.

Before Python 3.13 a worker of multiprocessing (fork and forkserver; so a worker of PyTorch's
DataLoader) ends without asking atexit. It does run multiprocessing's own finalizers, but forgets
those that were there before its work began. So what is registered here is known to both.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Task = TypeVar("Task", bound=Callable[[], object])

_tasks: list[Callable[[], object]] = []
_is_with_multiprocessing = False


def at_process_end(task: Task) -> Task:
    """Have ``task()`` called before this process ends, and before each one forked from it does.

    What was registered last is called first. It may be called more than once. Returns ``task``, so
    that it can stand before a function.
    """
    _tasks.append(task)
    return task


@atexit.register
def _run_tasks() -> None:
    for task in reversed(_tasks):
        task()


def _join_multiprocessing() -> None:
    """Tell multiprocessing, where the program uses it: it is too large to be loaded for this."""
    global _is_with_multiprocessing
    util: Any = sys.modules.get("multiprocessing.util")
    if util is None or _is_with_multiprocessing:
        return
    _is_with_multiprocessing = True
    # Its children forget their finalizers, and call these then.
    util.register_after_fork(_run_tasks, _finalize)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        _finalize(_run_tasks)  # this is such a child, and may be past that


def _finalize(task: Callable[[], None]) -> None:
    # After its queues are closed (10), and before it waits for what they have to send (-5).
    sys.modules["multiprocessing.util"].Finalize(None, task, exitpriority=0)


_join_multiprocessing()
os.register_at_fork(before=_join_multiprocessing)
