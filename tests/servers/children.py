"""Child processes of multiprocessing that send one answer home, for tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

# Only a child that hangs takes so long.
PATIENCE_SECONDS = 240


def answers_of(
    method: str, run: Callable[..., None], arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Call ``run(*one, answers)`` in a child for each of ``arguments``, all at once.

    ``run`` puts one answer into the queue ``answers``. Returns the answers as they came, once all
    children have ended, with exit code 0.
    """
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=run, args=(*one, answers)) for one in arguments]
    for child in children:
        child.start()
    found = [answers.get(timeout=PATIENCE_SECONDS) for _ in children]
    for child in children:
        child.join(PATIENCE_SECONDS)
        assert child.exitcode == 0
    return found
