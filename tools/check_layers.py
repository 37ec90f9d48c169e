#!/usr/bin/env python3
"""Hold the includes of src/headrace to tools/layers.txt: check_layers.py [ROOT]

A file may include its own module and those that its module's line names; the product never includes
what lies in a folder `testing`; our headers are always named from src on.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import (
    CXX,
    Finding,
    files,
    includes_of,
    is_test,
    module_of,
    report,
    root_from_arguments,
)


def read_layers(text: str) -> dict[str, set[str]]:
    """Module -> the modules it may use. Raises ValueError where a line uses a module not below it."""
    levels: dict[str, int] = {}
    may_use: dict[str, set[str]] = {}
    for line in text.splitlines():
        found = re.match(r"^(\d+)\s+([a-z]+)\s*:(.*)$", line)
        if not found:
            continue
        level, name, used = int(found[1]), found[2], set(found[3].split())
        for one in used:
            if levels.get(one, level) >= level:
                raise ValueError(
                    f"layers.txt: '{name}' (level {level}) may only use lower levels, not '{one}'"
                )
        levels[name] = level
        may_use[name] = used
    return may_use


def check_file(path: Path, text: str, may_use: dict[str, set[str]]) -> list[Finding]:
    module = module_of(path)
    if module is not None and module != "python" and module not in may_use:
        return [Finding(path, 1, f"module '{module}' is not in tools/layers.txt")]
    findings = []
    for line, target in includes_of(text):
        parts = target.strip('"<>').split("/")
        if target.startswith('"') and parts[0] != "headrace" and path.parts[0] == "src":
            findings.append(
                Finding(path, line, f'name our headers from src on: "headrace/...", not {target}')
            )
            continue
        if parts[0] != "headrace" or len(parts) < 3:
            continue
        if "testing" in parts and not is_test(path):
            findings.append(Finding(path, line, f"the product may not include test code: {target}"))
        if module in may_use and parts[1] != module and parts[1] not in may_use[module]:
            findings.append(
                Finding(path, line, f"'{module}' may not use '{parts[1]}': see tools/layers.txt")
            )
    return findings


def main() -> int:
    root = root_from_arguments()
    may_use = read_layers((root / "tools/layers.txt").read_text())
    findings: list[Finding] = []
    for path in files(root, CXX):
        if path.parts[0] in ("src", "python", "fuzz", "tests"):
            findings += check_file(path, (root / path).read_text(), may_use)
    return report("layers", findings)


if __name__ == "__main__":
    sys.exit(main())
