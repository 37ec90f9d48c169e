"""Tiers of a checkpoint store: memory that outlives the trainer, folders, and the drain behind them."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from headrace import observe
from headrace import transforms as T
from headrace.checkpoint import Checkpointer, helper

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_places import (
    LONG_S,
    Places,
    end_helpers,
    make_state,
    same,
    wait_until,
)


@pytest.fixture(autouse=True)
def _helpers_end_with_the_test(tmp_path: Path) -> Iterator[None]:
    yield
    end_helpers(tmp_path)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Tiers in the test's folder."""
    return Places(tmp_path)


TRAINER = textwrap.dedent(
    """
    import os, signal, sys
    sys.path.insert(0, sys.argv[1])
    from checkpoint_places import Places, make_state
    from pathlib import Path
    checkpointer = Places(Path(sys.argv[2])).open()
    state = make_state(1)
    checkpointer.save(1, state, wait="local")
    newer = make_state(2)
    checkpointer.save(2, newer)
    for value in newer["model"].values():
        value.zero_()
    os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_after_sigkill_the_state_comes_back_from_memory(places: Places, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINER, str(Path(__file__).parent), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * LONG_S,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with places.open() as checkpointer:
        restored = checkpointer.restore()
        assert same(restored, make_state(2))
        assert checkpointer.restored is not None
        assert checkpointer.restored["step"] == 2
        came_from = checkpointer.restored["from"]
        assert came_from["memory"] > 0
        assert came_from["local"] == came_from["remote"] == 0
        # And the run goes on with the same helper.
        before = places.helper_process()
        checkpointer.save(3, make_state(3), wait="remote", timeout=LONG_S)
        assert places.helper_process() == before
        assert [entry["step"] for entry in checkpointer.list()] == [1, 2, 3]
        for step in (1, 2, 3):
            assert same(checkpointer.restore(step), make_state(step))


def test_each_level_in_its_time(places: Places) -> None:
    with places.open() as checkpointer:
        state = make_state(1)
        handle = checkpointer.save(1, state)
        assert handle.done("memory")
        report = handle.wait("local", timeout=LONG_S)
        assert report["bytes"] > 0
        assert handle.done("local")
        handle.wait("remote", timeout=LONG_S)
        assert handle.done("remote")
        assert handle.done("peer")  # remote is farther
        assert checkpointer.latest("remote") == 1
        assert checkpointer.drain_progress()["drained"] == 1
        checkpointer.report_input_stall(0.01, next_save_s=10)
        with pytest.raises(headrace.InvalidArgumentError, match="0 to 1"):
            checkpointer.report_input_stall(2)
    helper._STARTED[-1].wait(LONG_S)  # closed and drained: the helper ends
    # Data lies on both disks; without the helper it comes from there.
    assert all(list((folder / "data").glob("*.safetensors")) for folder in places.near)
    checkpointer = places.open()
    assert same(checkpointer.restore(), state)
    assert checkpointer.restored is not None
    assert checkpointer.restored["from"]["local"] > 0
    assert checkpointer.restored["from"]["remote"] == 0


def test_the_loss_of_a_disk_or_of_all_of_them(places: Places) -> None:
    import shutil

    with places.open() as checkpointer:
        checkpointer.save(1, make_state(1), wait="remote", timeout=LONG_S)
    helper._STARTED[-1].wait(LONG_S)
    shutil.rmtree(places.near[1] / "data")
    checkpointer = places.open()
    assert same(checkpointer.restore(), make_state(1))
    assert checkpointer.restored is not None
    assert checkpointer.restored["from"]["remote"] > 0
    for folder in places.near:
        shutil.rmtree(folder)
    checkpointer = places.open()
    assert same(checkpointer.restore(), make_state(1))
    # The run goes on, and what it saves is newer than what it found.
    with places.open() as checkpointer:
        checkpointer.save(2, make_state(2), wait="remote", timeout=LONG_S)
        assert checkpointer.latest() == 2


def test_the_death_of_the_helper_costs_what_was_in_memory_only(places: Places) -> None:
    with places.open() as checkpointer:
        checkpointer.save(1, make_state(1), wait="local", timeout=LONG_S)
        end_helpers(places.near[0].parent)
        with pytest.raises(headrace.HeadraceError, match="helper is gone"):
            checkpointer.wait(LONG_S)
        assert same(checkpointer.restore(), make_state(1))
        with pytest.warns(UserWarning, match="helper died"):
            checkpointer.save(2, make_state(2), wait="remote", timeout=LONG_S)
        assert checkpointer.latest("remote") == 2


def metric(name: str) -> float:
    """What this process tells of its checkpoints."""
    return sum(
        one["value"]
        for one in observe.snapshot()["metrics"]
        if one["name"] == f"headrace_checkpoint_{name}"
    )


@pytest.mark.parametrize("tiers", [None, ["memory"]])
def test_saves_are_counted_and_so_are_those_under_way(
    tmp_path: Path, tiers: list[str] | None
) -> None:
    folder = tmp_path / "run"
    saves, written = metric("saves_total"), metric("written_bytes_total")
    with Checkpointer(folder, tiers=tiers, linger=2 * LONG_S) as checkpointer:
        checkpointer.save(1, make_state(1), wait="local", timeout=LONG_S)
        wait_until(lambda: metric("pending_saves") == 0, "the end of the first save")
        with (folder / "head.lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nothing can be published
            handle = checkpointer.save(2, make_state(2))
            assert metric("pending_saves") == 1
        handle.wait(timeout=LONG_S)
        wait_until(lambda: metric("pending_saves") == 0, "the end of the second save")
        checkpointer.save(3, make_state(3))
    assert metric("saves_total") == saves + 3
    assert metric("written_bytes_total") > written


def test_the_drain_hears_of_the_loaders_input_stall(places: Places, photos: Path) -> None:
    # The loop does nothing, so that it waits for images nearly all the time.
    loader = headrace.open(photos).loader(
        batch_size=16, threads=1, transforms={"jpg": T.imagenet_train(224)}
    )
    with loader, places.open() as checkpointer:
        checkpointer.save(1, make_state(1), loader=loader)
        assert checkpointer.drain_progress()["input_stall"] is None

        def is_heard() -> bool:
            for _ in loader:
                pass
            stall = checkpointer.drain_progress()["input_stall"]
            return stall is not None and stall > 0.3

        wait_until(is_heard, "a report of the input stall")


def test_drain_and_explain(
    places: Places, run_headrace: Callable[..., str], tmp_path: Path
) -> None:
    home = places.near[0]
    checkpointer = places.open(drain_limit=1)
    checkpointer.save(1, make_state(1), wait="local", timeout=LONG_S)
    told = json.loads(run_headrace("ckpt", "explain", home, "--json"))
    assert told["newest_after_loss_of"] == {"process": 1, "memory": 1, "node": None}
    assert told["checkpoints"][0]["places"] == ["memory", "local"]
    assert told["lost_with_node"] == [1]
    handle = checkpointer.save(2, make_state(2), timeout=LONG_S)
    handle.wait("local", timeout=LONG_S)
    with pytest.raises(TimeoutError, match="local and not yet remote"):
        handle.wait("remote", timeout=0.05)
    assert not handle.done("remote")
    end_helpers(tmp_path)
    del checkpointer
    done = json.loads(run_headrace("ckpt", "drain", home, "--json", "--quiet"))
    assert done["drained"] == 2
    assert done["damaged"] == []
    assert json.loads(run_headrace("ckpt", "drain", home, "--json", "--quiet"))["drained"] == 0
    told = json.loads(run_headrace("ckpt", "explain", home, "--json"))
    assert told["newest_after_loss_of"]["node"] == 2
    assert "if this node is lost" in run_headrace("ckpt", "explain", home)
    assert same(Checkpointer(places.far).restore(), make_state(2))


def test_memory_before_a_folder(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "run", tiers=["memory"], linger=2 * LONG_S) as checkpointer:
        checkpointer.save(1, make_state(1), wait="local", timeout=LONG_S)
        restored = checkpointer.restore()
        assert same(restored, make_state(1))
        assert checkpointer.restored is not None
        assert checkpointer.restored["from"]["memory"] > 0
    helper._STARTED[-1].wait(LONG_S)
    assert same(Checkpointer(tmp_path / "run").restore(), make_state(1))


@pytest.mark.parametrize(
    ("dest", "tiers", "words"),
    [
        ("far", [], "names none"),
        ("far", ["near", "memory"], "comes first"),
        ("far", ["s3://bucket/x"], "folder of this node"),
        ("far", ["remote"], "folder of this node"),
        ("s3://bucket/run", ["memory"], "folder of this node to live in"),
        ("near", ["near"], "cannot be a tier"),
    ],
)
def test_tiers_that_make_no_sense(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dest: str,
    tiers: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(headrace.InvalidArgumentError, match=words):
        Checkpointer(dest, tiers=tiers)
