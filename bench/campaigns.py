"""What the programs that measure have in common: how a campaign begins, its files, and runs of fio."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path

import limits
from contenders import BENCH
from harness import RunError

FIO_TIMEOUT_S = 900
FIO_ENGINES = ("io_uring", "libaio")  # the first that the system lets fio use


def commit_name() -> str:
    """The commit that is measured, marked where files differ from it."""
    command = ["git", "-C", str(BENCH), "describe", "--always", "--dirty", "--abbrev=9"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def begin(**more: object) -> dict:
    """A campaign without runs: when it is, what is measured, and where."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit_name(),
        "machine": limits.describe_machine(),
        "repeats": 0,
        **more,
        "runs": [],
    }


def write(path: Path, campaign: dict) -> None:
    """Write every single run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(campaign, indent=1) + "\n")


def write_with_page(folder: Path, name: str, campaign: dict, page: str) -> None:
    """Write NAME.json and, beside it, NAME.md."""
    write(folder / f"{name}.json", campaign)
    (folder / f"{name}.md").write_text(page)
    print(f"bench: wrote {folder / name}.md")


def fio(path: Path, size: int, verb: str, block: int, depth: int, *more: str) -> dict:
    """What fio tells of direct sequential writes or reads ("write", "read") of one file."""
    command = ["fio", f"--name={verb}", f"--filename={path}", f"--size={size}", f"--rw={verb}"]
    command += [f"--bs={block}", f"--iodepth={depth}", "--direct=1", *more]
    for engine in FIO_ENGINES:
        done = subprocess.run(
            [*command, f"--ioengine={engine}", "--output-format=json"],
            capture_output=True,
            text=True,
            timeout=FIO_TIMEOUT_S,
        )
        if done.returncode == 0:
            job: dict = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
            return job
    raise RunError(f"fio: {done.stderr.strip()[-300:]}")
