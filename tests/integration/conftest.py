"""Lets tests here import by name what lies beside them and what starts servers; a real bucket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS / "servers"), str(_TESTS / "integration")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SeaweedFS server with a bucket."""
    import seaweedfs

    with seaweedfs.running(tmp_path_factory.mktemp("weed")) as server:
        yield server
