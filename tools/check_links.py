#!/usr/bin/env python3
"""Find links in the documents that lead nowhere in the tree: check_links.py [ROOT]

Only links to files and headings of this repository; addresses on the web are not asked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

from sources import Finding, files, report, root_from_arguments

_LINK = re.compile(
    r"\[[^\]]*\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE
)


def without_code(text: str) -> str:
    """The text with code blocks and code spans blanked; the lines keep their numbers."""
    text = re.sub(
        r"^(```|~~~).*?^\1", lambda m: "\n" * m.group().count("\n"), text, flags=re.S | re.M
    )
    return re.sub(r"`[^`\n]*`", "``", text)


def anchors(text: str) -> set[str]:
    """The names by which the headings of a document can be linked."""
    found: set[str] = set()
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.S | re.M)
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (unique := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(unique)
    return found


def check_link(root: Path, path: Path, target: str) -> str | None:
    """What is wrong with a link in the document, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    name, _, anchor = unquote(target).partition("#")
    linked = (root / path.parent / name) if name else root / path
    if not linked.exists():
        return f"there is no {name}"
    if not linked.resolve().is_relative_to(root.resolve()):
        return f"{name} lies outside the repository"
    if anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text()):
        return f"{name or path} has no heading '#{anchor}'"
    return None


def main() -> int:
    root = root_from_arguments()
    findings = []
    for path in files(root, (".md",)):
        text = without_code((root / path).read_text())
        for match in _LINK.finditer(text):
            wrong = check_link(root, path, match.group(1) or match.group(2))
            if wrong:
                findings.append(
                    Finding(path, text[: match.start()].count("\n") + 1, f"broken link: {wrong}")
                )
    return report("links", findings)


if __name__ == "__main__":
    sys.exit(main())
