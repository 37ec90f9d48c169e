#!/usr/bin/env python3
"""Find C++ sources that no CMake target builds and tests that nothing runs: check_targets.py [ROOT]"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import Finding, files, report, root_from_arguments

BUILT = ("src", "python", "fuzz", "tests")


def named_by_cmake(root: Path, path: Path) -> bool:
    """True if a CMake file in the file's folder or above it names the file."""
    for folder in path.parents:
        name = re.escape(path.relative_to(folder).as_posix())
        for lists in [root / folder / "CMakeLists.txt", *(root / folder).glob("*.cmake")]:
            text = re.sub(r"#.*", "", lists.read_text()) if lists.is_file() else ""
            if re.search(rf"(?<![\w./-]){name}(?![\w.-])", text):
                return True
    return False


def check_sources(root: Path) -> list[Finding]:
    findings = []
    cmake = "\n".join(
        (root / path).read_text() for path in files(root, ("CMakeLists.txt", ".cmake"))
    )
    for path in files(root, (".cc",)):
        if (
            path.parts[0] not in BUILT
            or named_by_cmake(root, path)
            or f"}}/{path.as_posix()}" in cmake
        ):
            continue
        findings.append(
            Finding(path, 1, "no CMake file in its folder or above names it: nothing builds it")
        )
    return findings


def check_corpora(root: Path) -> list[Finding]:
    """Every fuzz target has a corpus with something in it."""
    findings = []
    for path in files(root, ("CMakeLists.txt",)):
        text = re.sub(r"#.*", "", (root / path).read_text())
        for call in re.finditer(r"headrace_fuzzer\s*\(\s*(\w+)([^)]*)\)", text):
            line = text[: call.start()].count("\n") + 1
            corpus = re.search(r"\bCORPUS\s+([\w/-]+)", call.group(2))
            if not corpus:
                findings.append(Finding(path, line, f"fuzz target {call.group(1)} names no CORPUS"))
            elif not any(one.is_file() for one in (root / "fuzz/corpus" / corpus[1]).rglob("*")):
                findings.append(
                    Finding(path, line, f"fuzz/corpus/{corpus[1]} is empty: put a valid file in")
                )
    return findings


def check_python_tests(root: Path) -> list[Finding]:
    """Every Python test lies below a folder that pytest looks into."""
    found = re.search(
        r"^testpaths = \[(.*?)\]", (root / "pyproject.toml").read_text(), re.MULTILINE
    )
    folders = re.findall(r'"([^"]+)"', found.group(1)) if found else []
    return [
        Finding(path, 1, f"pytest does not look here; it looks into: {', '.join(folders)}")
        for path in files(root, (".py",))
        if (path.stem.startswith("test_") or path.stem.endswith("_test"))
        and path.parts[0] not in folders
    ]


def main() -> int:
    root = root_from_arguments()
    return report("targets", check_sources(root) + check_corpora(root) + check_python_tests(root))


if __name__ == "__main__":
    sys.exit(main())
