"""The method of three runs: what is slow in reading is a fetch stall, what is slow after it a prep stall."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from headrace.three_runs import ThreeRuns, three_runs

import headrace
import web


def test_shares_are_differences_of_the_cold_run() -> None:
    runs = ThreeRuns(10, synthetic_s=2.0, cached_s=5.0, cold_s=10.0, exported_stall=0.8)
    assert (runs.prep_stall, runs.fetch_stall, runs.input_stall) == (0.3, 0.5, 0.8)
    luck = ThreeRuns(10, synthetic_s=2.0, cached_s=1.9, cold_s=2.5, exported_stall=0.1)
    assert (luck.prep_stall, luck.fetch_stall) == (0.0, 0.2)


def test_slow_python_is_a_prep_stall(texts: Path) -> None:
    def slow(data: bytes) -> int:
        time.sleep(0.003)
        return len(data)

    seen: list[Any] = []
    runs = three_runs(
        texts, seen.append, batches=10, batch_size=20, fields=["txt"], transforms={"txt": slow}
    )
    assert runs.steps == 9
    # The same batches twice, and then the last one again and again.
    keys = [batch["__key__"] for batch in seen]
    assert keys[:10] == keys[10:20]
    assert keys[20:] == [keys[19]] * 9
    slept = 9 * 20 * 0.003
    assert runs.cached_s >= slept and runs.cold_s >= slept
    assert runs.prep_stall * runs.cold_s >= slept - runs.synthetic_s


LATE_S = 0.15


class LateHandler(web.RangeHandler):
    """Gives shards late."""

    def give(self, failing: bool) -> None:
        if self.command == "GET" and self.path.endswith(".tar"):
            time.sleep(LATE_S)
        super().give(failing)


def test_a_slow_origin_is_a_fetch_stall(run_headrace: Any, server: Any, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for i in range(200):
        (tmp_path / "src" / f"{i:03}.txt").write_bytes(b"x" * i)
    run_headrace("pack", tmp_path / "src", server.root / "set", "--shard-samples", "10", "--quiet")
    server.RequestHandlerClass = LateHandler
    # A shard after the other, and not ahead of the batches that the loader fills: when the first
    # batch is there, the last shard has not been asked for.
    runs = three_runs(
        f"{server.url}/set",
        lambda batch: None,
        batch_size=10,
        threads=1,
        lanes=1,
        window_shards=1,
        prefetch_bytes=0,
    )
    assert runs.steps == 19
    assert runs.cold_s >= LATE_S and 0 < runs.exported_stall <= 1
    rest = max(runs.cached_s, runs.synthetic_s)
    assert runs.fetch_stall * runs.cold_s == pytest.approx(max(0.0, runs.cold_s - rest))
    reads = [(name, part) for method, name, part in server.requests if method == "GET"]
    shards = [read for read in reads if read[0].endswith(".tar")]
    assert shards and len(shards) == len(set(shards))  # the second run asked for none


def test_batches_of_more_than_an_epoch_would_be_cached(texts: Path) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="3 to 20"):
        three_runs(texts, lambda batch: None, batches=21, batch_size=20)
    with pytest.raises(headrace.InvalidArgumentError, match="3 to 20"):
        three_runs(texts, lambda batch: None, batches=2, batch_size=20)


def test_it_runs_without_a_program(texts: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.three_runs", str(texts), "--batch-size", "40"]
    done = subprocess.run(
        [*command, "--step-ms", "1", "--json"], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["steps"] == 9 and told["synthetic_s"] >= 0.009
    shown = subprocess.run([*command, "--step-ms", "1"], capture_output=True, text=True, check=True)
    assert "prep stall" in shown.stdout
    none = subprocess.run(
        [sys.executable, "-m", "headrace.three_runs", str(tmp_path / "none"), "--step-ms", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert none.returncode == 2 and none.stderr.startswith("headrace: ")
