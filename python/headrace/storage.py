"""Storage options as the native module takes them, and what a program owes the node's cache."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace import _native as native
from headrace.errors import InvalidArgumentError
from headrace.process_end import at_process_end

# A program that ends waits so long at most for what it has fetched to come to the disk.
EXIT_SECONDS = 5.0


@at_process_end  # registered before the loader's, so it runs after that
def _finish_caching() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    try:
        # In slices, so that Ctrl-C ends it.
        while not native.wait_for_caches(0.1) and time.monotonic() < deadline:
            pass
    except KeyboardInterrupt:
        pass


def storage_texts(options: Mapping[str, str | bool | int]) -> dict[str, str]:
    """Return storage options as text. Raises InvalidArgumentError for other values."""
    texts = {}
    for name, value in options.items():
        if not isinstance(value, (str, bool, int)):
            raise InvalidArgumentError(
                f"storage_options[{name!r}]: expected text, a number or a bool, found "
                f"{type(value).__name__}"
            )
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts
