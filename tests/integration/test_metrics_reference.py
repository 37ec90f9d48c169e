"""What is made from the list of metrics says what the program exports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_cli_reference import native_program


@pytest.mark.parametrize("script", ["metrics_reference.py", "grafana_board.py", "alert_rules.py"])
def test_file_is_up_to_date(script: str) -> None:
    path = Path(__file__).parents[2] / "tools" / script
    done = subprocess.run(
        [sys.executable, path, "--check", native_program()], capture_output=True, text=True
    )
    assert done.returncode == 0, f"run tools/{script}:\n" + done.stdout + done.stderr
