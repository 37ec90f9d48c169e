"""``headrace`` and ``python -m headrace``: runs the native program that the package carries.

What needs PyTorch (``ckpt export --to torch|dcp``, ``ckpt import --from torch|dcp``) runs here."""

import itertools
import os
import sys
from pathlib import Path


def _needs_torch(arguments: list[str]) -> bool:
    words = [word for argument in arguments for word in argument.split("=", 1)]
    formats = [b for a, b in itertools.pairwise(words) if a in ("--to", "--from")]
    return words[:1] == ["ckpt"] and bool({"torch", "dcp"} & set(formats))


def main() -> None:
    """Replace this process by the native ``headrace`` program, with the same arguments."""
    if _needs_torch(sys.argv[1:]):
        from headrace.checkpoint import command

        sys.exit(command.main(sys.argv[2:]))
    program = Path(__file__).parent / "bin" / "headrace"
    if not program.exists():
        sys.exit(f"headrace: the program is missing at {program}; reinstall the package")
    os.execv(program, ["headrace", *sys.argv[1:]])


if __name__ == "__main__":
    main()
