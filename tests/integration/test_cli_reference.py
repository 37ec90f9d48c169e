"""The page about the program says what the program's help says."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path


def native_program() -> str:
    built = os.environ.get("HEADRACE_PROGRAM")
    if built:
        return built
    spec = importlib.util.find_spec("headrace")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "headrace")


def test_reference_page_is_up_to_date() -> None:
    script = Path(__file__).parents[2] / "tools" / "cli_reference.py"
    done = subprocess.run(
        [sys.executable, script, "--check", native_program()], capture_output=True, text=True
    )
    assert done.returncode == 0, "run tools/cli_reference.py:\n" + done.stdout + done.stderr
