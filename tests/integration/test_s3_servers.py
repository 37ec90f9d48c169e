"""The driver s3 against real servers: the conformance suite of object stores, and failures' words."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HEADRACE_BUILD", ROOT / "build"))
TESTS = BUILD / "src/headrace/object/s3_server_test"


def load(name: str) -> ModuleType:
    """Return tests/servers/NAME.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests/servers" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_suite(server: Any, *arguments: str) -> None:
    """Run the C++ tests against a server."""
    environment = server.environment() | {"HEADRACE_TEST_S3_BUCKET": server.buckets[0]}
    done = subprocess.run(
        [TESTS, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "[==========] 0 tests" not in done.stdout


@pytest.mark.timeout(700)
def test_seaweedfs_passes_the_suite(tmp_path: Path) -> None:
    with load("seaweedfs").running(tmp_path) as server:
        run_suite(server)


@pytest.mark.timeout(700)
def test_ceph_passes_the_suite(tmp_path: Path) -> None:
    ceph = load("ceph")
    if ceph.missing():
        pytest.skip("the Ceph packages are not installed (scripts/debian-packages.txt)")
    with ceph.running(tmp_path / "cluster") as server:
        run_suite(server)
