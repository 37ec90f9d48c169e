#!/usr/bin/env python3
"""Find calls and headers that do not belong where they are: check_banned.py [ROOT]

Each rule has a name, a pattern, the modules where it does not apply, and the reason. A place that
needs an exception gets a line in tools/banned_allowed.txt: PATH RULE REASON. A line there that is no
longer needed is a finding too.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from sources import CXX, Finding, code_of, files, is_test, module_of, report, root_from_arguments


@dataclass(frozen=True)
class Rule:
    name: str
    pattern: re.Pattern[str]
    allowed_in: tuple[str, ...]  # modules
    in_tests: bool  # does it hold for tests too?
    reason: str


def rule(
    name: str, pattern: str, reason: str, *, allowed_in: str = "", in_tests: bool = False
) -> Rule:
    return Rule(name, re.compile(pattern), tuple(allowed_in.split()), in_tests, reason)


OS_HEADERS = (
    r"aio|arpa/\w+|dirent|dlfcn|fcntl|ftw|glob|grp|linux/\w+|netdb|netinet/\w+|poll|pthread|pwd|sched"
    r"|semaphore|signal|spawn|sys/\w+|syslog|termios|ucontext|unistd|utime"
)
NOT_A_MEMBER = r"(?<![\w.>:])(?:std::|::)?"

RULES = (
    rule(
        "os-header",
        rf"#\s*include\s*<(?:(?:{OS_HEADERS})\.h|csignal)>",
        "only base and env touch the operating system; go through headrace/env",
        allowed_in="base env",
    ),
    rule(
        "file-access",
        r"#\s*include\s*<(?:filesystem|fstream)>|\bstd::(?:filesystem|[io]?fstream)\b"
        + rf"|{NOT_A_MEMBER}(?:fopen|getenv|setenv|unlink|mmap|tmpfile|tmpnam|mkstemp)\s*\(",
        "only env touches files and the environment; use headrace/env/file.h or process.h",
        allowed_in="base env",
    ),
    rule(
        "raw-mutex",
        r"#\s*include\s*<(?:mutex|shared_mutex|condition_variable)>"
        r"|\bstd::(?:\w*mutex|condition_variable\w*|lock_guard|unique_lock|scoped_lock)\b",
        "use headrace::Mutex and CondVar, which the thread-safety analysis knows",
        allowed_in="base",
    ),
    rule(
        "raw-thread",
        r"#\s*include\s*<(?:thread|future)>|\bstd::(?:j?thread|async|future|promise)\b",
        "threads are counted and named: start them through env",
        allowed_in="base env",
    ),
    rule(
        "printing",
        r"#\s*include\s*<iostream>|\bstd::(?:cout|cerr|clog)\b|\bfmt::print\b"
        + rf"|{NOT_A_MEMBER}(?:v?f?printf|f?puts|putchar|perror)\s*\(",
        "a library never prints; return a Status or a value",
        allowed_in="cli",
    ),
    rule(
        "randomness",
        rf"{NOT_A_MEMBER}(?:s?rand|drand48|rand_r)\s*\(|\bstd::(?:random_)?shuffle\b"
        r"|\bstd::(?:random_device|mt19937(?:_64)?|minstd_rand0?|default_random_engine|sample)\b"
        r"|\bstd::\w+_distribution\b",
        "the result depends on library or machine; use headrace/base/keyed_random.h",
    ),
    rule(
        "library-hash",
        r"\bstd::hash\b|\bstd::_Hash_bytes\b",
        "its value depends on the library; nothing stored or decided may hang on it",
    ),
    rule(
        "ending-the-process",
        rf"{NOT_A_MEMBER}(?:abort|exit|_exit|_Exit|quick_exit|terminate)\s*\(",
        "a library never ends the process; return a Status",
        allowed_in="base cli",
    ),
    rule(
        "signal-handler",
        rf"{NOT_A_MEMBER}(?:signal|sigaction)\s*\(",
        "a library installs no signal handler",
        allowed_in="cli env",
    ),
    rule(
        "exceptions",
        r"\bthrow\b(?!\s*\()",
        "errors are values: Status or Result",
        allowed_in="python",
    ),
    rule(
        "locale",
        rf"{NOT_A_MEMBER}(?:ato[ifl]|atoll|strtod|strtof|sscanf|setlocale)\s*\(|\bstd::sto(?:[idf]|u?ll?|ld)\b",
        "depends on the locale or hides errors; use std::from_chars or headrace/base/text.h",
    ),
    rule(
        "wall-clock",
        rf"\bsystem_clock::now\b|{NOT_A_MEMBER}(?:time|gettimeofday|localtime|gmtime)\s*\(",
        "what is decided may not depend on the time of day",
        allowed_in="base env cli",
    ),
    rule(
        "heavy-header",
        r"#\s*include\s*<(?:nlohmann/json|toml\+\+/\w+)\.\w+>",
        "slow to compile; only headrace/base wraps it (headrace/base/json.h)",
        allowed_in="base",
        in_tests=True,
    ),
    rule(
        "heavy-header",
        r"#\s*include\s*<(?:CLI/[\w./]+)>",
        "slow to compile; only headrace/cli needs it",
        allowed_in="cli",
        in_tests=True,
    ),
    rule("using-namespace", r"\busing\s+namespace\s+std\s*;", "name what you use", in_tests=True),
)


def check_file(path: Path, text: str) -> list[tuple[str, Finding]]:
    """(rule name, finding) for each place in the file that breaks a rule."""
    module = module_of(path)
    test = is_test(path)
    if module is None and not test:
        return []
    found = []
    for number, line in enumerate(code_of(text).splitlines(), 1):
        for one in RULES:
            if (test and not one.in_tests) or module in one.allowed_in:
                continue
            if hit := one.pattern.search(line):
                text = f"[{one.name}] '{hit.group().strip()}': {one.reason}"
                found.append((one.name, Finding(path, number, text)))
        if path.suffix == ".h" and re.search(r"#\s*include\s*<(?:nlohmann/json\.hpp|CLI/)", line):
            found.append(
                ("heavy-header", Finding(path, number, "[heavy-header] only in .cc files"))
            )
    return found


def read_allowed(text: str) -> dict[tuple[str, str], int]:
    """(path, rule) -> line number in banned_allowed.txt. Raises ValueError on a line without a reason."""
    allowed = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(maxsplit=2)
        if len(fields) < 3 or fields[1] not in {one.name for one in RULES}:
            raise ValueError(
                f"banned_allowed.txt:{number}: expected PATH RULE REASON, found: {line}"
            )
        allowed[(fields[0], fields[1])] = number
    return allowed


def main() -> int:
    root = root_from_arguments()
    list_path = Path("tools/banned_allowed.txt")
    allowed = read_allowed((root / list_path).read_text()) if (root / list_path).exists() else {}
    used = set()
    findings = []
    for path in files(root, CXX):
        for name, finding in check_file(path, (root / path).read_text()):
            if (str(path), name) in allowed:
                used.add((str(path), name))
            else:
                findings.append(finding)
    for key, number in allowed.items():
        if key not in used:
            findings.append(Finding(list_path, number, f"no longer needed: {' '.join(key)}"))
    return report("banned calls", findings)


if __name__ == "__main__":
    sys.exit(main())
