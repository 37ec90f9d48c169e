"""The files of the tree and the text of C++ sources, as the check scripts see them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CXX = (".h", ".cc")


@dataclass(frozen=True)
class Finding:
    """One thing to put right: where, and what and how in words."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def files(root: Path, suffixes: tuple[str, ...], under: str = "") -> Iterator[Path]:
    """The files below root/under that git tracks or would track, relative to root, sorted."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", under or "."],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout
    for name in sorted(set(listing.decode().split("\0"))):
        if name.endswith(suffixes) and (root / name).is_file():
            yield Path(name)


def is_test(path: Path) -> bool:
    """True for what is never part of the product: tests, doubles, fuzz targets, benchmarks."""
    in_test_folder = {"testing", "tests", "fuzz", "bench"} & set(path.parts[:-1])
    return bool(in_test_folder) or path.stem.endswith(("_test", "_fuzz", "_bench"))


def module_of(path: Path) -> str | None:
    """The module of src/headrace that a file belongs to; "python" for the bindings, else None."""
    if path.parts[:2] == ("src", "headrace") and len(path.parts) > 3:
        return path.parts[2]
    return "python" if path.parts[:2] == ("python", "src") else None


_TOKEN = re.compile(
    r"""(?P<raw>R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<digits>\b\d[\d']*\d\b)
      | (?P<char>'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL,
)


def code_of(text: str) -> str:
    """The text without comments and without what is in strings; the lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        if match.lastgroup == "digits":
            return match.group()
        newlines = "\n" * match.group().count("\n")
        return newlines if match.group("comment") else '""' + newlines

    # The names of included files are strings to this pattern; they are taken from the text itself.
    return _TOKEN.sub(blank, text)


def includes_of(text: str) -> Iterator[tuple[int, str]]:
    """Line number and target of each #include, the target with its quotes or brackets."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s+(["<][^">]+[">])', line)
        if found:
            yield number, found.group(1)


def report(name: str, findings: list[Finding]) -> int:
    """Print the findings; the exit status of the check."""
    for finding in findings:
        print(finding)
    if findings:
        print(f"{name}: {len(findings)} to put right", file=sys.stderr)
    return 1 if findings else 0


def root_from_arguments() -> Path:
    """The tree to check: the only argument, or the one this script lies in."""
    return Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
