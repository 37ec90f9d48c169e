#!/usr/bin/env python3
"""Write docs/reference/cli.md from the program's own help: cli_reference.py [--check] PROGRAM

With --check nothing is written; the exit code is 1 when the page is not what the program says.
"""

from __future__ import annotations

import re
import subprocess
import sys

from reference_page import write_or_check

INTRODUCTION = """# The headrace program

Made by `tools/cli_reference.py` from the program's help: change the help, then run the script.

Sizes are written as `65536`, `64KiB`, `1.5GiB` or `10MB`, numbers as `12`, `10k` or `2M`. With
`--json` each command prints one JSON value on standard output and nothing else there; a fault is then
`{"error": {"code": ..., "message": ..., "file": ..., "offset": ..., "key": ..., "field": ...}}`, with
the parts that are known. Every fault is also one line on standard error that begins with `headrace: `.
Progress goes to standard error: a line that is drawn anew on a terminal, a plain line every 10 seconds
otherwise, nothing with `--quiet`.

| exit code | meaning |
|---|---|
| 0 | done; also when the reader of the output went away, as in `headrace ls x \\| head` |
| 1 | data is damaged, missing or wrong: `verify` found damage, no such sample; `doctor` found a problem |
| 2 | the command line asks for something that cannot be done; nothing was changed |
| 3 | the machine: I/O, permission, a full disk, memory, another pack at work |
| 130 | interrupted by SIGINT or SIGTERM; a second signal ends the program at once |
"""


def help_of(program: str, *arguments: str) -> str:
    """Return what the program prints for --help."""
    done = subprocess.run(
        [program, *arguments, "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip()


def page_of(program: str) -> str:
    """Return the text of the page."""
    overview = help_of(program)
    commands = re.findall(r"^  ([a-z]+) {2,}\S", overview.split("Subcommands:")[1], re.MULTILINE)
    parts = [INTRODUCTION]
    for command in commands:
        text = help_of(program, command).split("\nExit codes:")[0].rstrip()
        parts.append(f"## headrace {command}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check("docs/reference/cli.md", page_of, __doc__))
