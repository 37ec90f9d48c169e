#!/usr/bin/env python3
"""Hold files and functions to a size that fits a head: check_sizes.py [ROOT]

Header <= 300 lines, source <= 600, function <= 100. A longer function says why in a comment right
above it or in its first line: "// Long because ...". Longer test files are only mentioned.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sources import CXX, Finding, code_of, files, is_test, report, root_from_arguments

MAX_HEADER = 300
MAX_SOURCE = 600
MAX_FUNCTION = 100

_NOT_A_FUNCTION = re.compile(
    r"^\s*(?:if|else|for|while|switch|do|try|catch|return|namespace|class|struct|union|enum|extern)\b|=\s*$"
)


def functions(code: str) -> Iterator[tuple[int, int]]:
    """First and last line of each outermost block that follows a parameter list."""
    head = ""
    line = 1
    blocks: list[tuple[bool, int]] = []  # is it a function?, its first line
    for char in code:
        if char == "\n":
            line += 1
            head += " "
        elif char == "{":
            inside = any(block[0] for block in blocks)
            is_function = not inside and "(" in head and not _NOT_A_FUNCTION.search(head.strip())
            blocks.append((is_function, line - head.strip().count("\n")))
            head = ""
        elif char == "}":
            head = ""
            if blocks:
                is_function, start = blocks.pop()
                if is_function:
                    yield start, line
        elif char == ";":
            head = ""
        else:
            head += char


def says_why(lines: list[str], start: int) -> bool:
    """True if a comment near the function's first line gives the reason for its length."""
    return any(
        re.search(r"//.*\blong because\b", one, re.IGNORECASE)
        for one in lines[max(0, start - 8) : start + 1]
    )


def check_file(path: Path, text: str) -> tuple[list[Finding], list[Finding]]:
    """What must be put right, and what is only mentioned."""
    lines = text.splitlines()
    limit = MAX_HEADER if path.suffix == ".h" else MAX_SOURCE
    errors: list[Finding] = []
    notes: list[Finding] = []
    if len(lines) > limit:
        finding = Finding(
            path, limit, f"{len(lines)} lines; at most {limit}: split it by what the parts do"
        )
        (notes if is_test(path) else errors).append(finding)
    code = re.sub(r"^[ \t]*#.*$", "", code_of(text), flags=re.MULTILINE)
    for start, end in functions(code):
        length = end - start + 1
        if length > MAX_FUNCTION and not says_why(lines, start):
            say = f"a function of {length} lines; at most {MAX_FUNCTION}, or say why: // Long because ..."
            errors.append(Finding(path, start, say))
    return errors, notes


def main() -> int:
    root = root_from_arguments()
    errors: list[Finding] = []
    for path in files(root, CXX):
        found, notes = check_file(path, (root / path).read_text())
        errors += found
        for note in notes:
            print(f"{note} (a test: only mentioned)")
    return report("sizes", errors)


if __name__ == "__main__":
    sys.exit(main())
