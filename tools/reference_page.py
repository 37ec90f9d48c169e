"""What the scripts share that write a file from what the program says of itself."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(name: str, page_of: Callable[[str], str], usage: str | None) -> int:
    """Write the file that `page_of(PROGRAM)` gives, or with --check compare it. Returns the exit code.

    `name` is the file's path below the repository.
    """
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    if len(arguments) != 1:
        print(usage, file=sys.stderr)
        return 2
    page, wanted = ROOT / name, page_of(arguments[0])
    if "--check" not in sys.argv:
        page.write_text(wanted)
        return 0
    found = page.read_text() if page.exists() else ""
    sys.stdout.writelines(
        difflib.unified_diff(
            found.splitlines(True), wanted.splitlines(True), str(page), "the program's own words"
        )
    )
    return 0 if found == wanted else 1
