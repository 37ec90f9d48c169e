"""``headrace`` and ``python -m headrace``: runs the native program that the package carries."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Replace this process by the native ``headrace`` program, with the same arguments."""
    program = Path(__file__).parent / "bin" / "headrace"
    if not program.exists():
        sys.exit(f"headrace: the program is missing at {program}; reinstall the package")
    os.execv(program, ["headrace", *sys.argv[1:]])


if __name__ == "__main__":
    main()
