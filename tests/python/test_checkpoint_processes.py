"""Forked children, signals, and several trainers: who may save, and what becomes of what was saved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.checkpoint import Checkpointer

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_places import (
    LONG_S,
    Places,
    end_helpers,
    helpers_below,
    make_state,
    same,
    wait_until,
)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Tiers in the test's folder; no helper outlives the test."""
    yield Places(tmp_path)
    end_helpers(tmp_path)


def run_python(program: str, *arguments: object) -> str:
    """Run a program to its end; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=2 * LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FORKED = textwrap.dedent(
    """
    import os, sys, numpy, torch, headrace
    from headrace.checkpoint import Checkpointer
    tiers = ["memory"] if sys.argv[2] == "tiers" else None
    state = {"w": torch.arange(3_000_000)}
    with Checkpointer(sys.argv[1], tiers=tiers, arena_bytes="128MiB") as checkpointer:
        checkpointer.save(1, state, wait="local")
        handle = checkpointer.save(2, state)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (
                lambda: checkpointer.save(3, {"w": numpy.zeros(1000)}),
                lambda: checkpointer.save(3, {"w": numpy.zeros(1000)}, wait="local", timeout=60),
                handle.wait,
                handle.done,
                checkpointer.wait,
            ):
                try:
                    use()
                except headrace.StateError as error:
                    refused += "forked child" in str(error)
            # It may read, and leave as any other program does: the saver goes with it.
            found = checkpointer.restore(1)
            sys.exit(0 if refused == 5 and found["w"][-1] == 2_999_999 else 1)
        assert os.waitpid(child, 0)[1] == 0
        handle.wait(timeout=120)
        checkpointer.save(4, state, wait="local", timeout=120)
        assert [entry["step"] for entry in checkpointer.list()] == [1, 2, 4]
        for step in (2, 4):
            assert torch.equal(checkpointer.restore(step)["w"], state["w"])
    print("done")
    """
)


@pytest.mark.parametrize("kind", ["plain", "tiers"])
def test_a_fork_in_the_midst_of_a_save(tmp_path: Path, kind: str) -> None:
    try:
        assert run_python(FORKED, tmp_path / "run", kind).endswith("done\n")
    finally:
        end_helpers(tmp_path)


TERMINATED = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, sys.argv[1])
    import signal
    from pathlib import Path
    from checkpoint_places import Places, make_state
    checkpointer = Places(Path(sys.argv[2])).open()
    checkpointer.save(1, make_state(1), wait="local")
    print("ready", flush=True)
    if sys.argv[3] == "saves":  # as trainers do that are told to end
        def save(*_):
            checkpointer.save(2, make_state(2))
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
    else:
        checkpointer.save(2, make_state(2))
    print("saved", flush=True)
    while True:
        signal.pause()
    """
)


@pytest.mark.parametrize("trainer", ["saves", "dies"])
def test_sigterm_to_all_processes_of_a_job_loses_nothing(
    places: Places, tmp_path: Path, trainer: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINATED, str(Path(__file__).parent), str(tmp_path), trainer],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "saved\n"
    helper_process = places.helper_process()
    assert helper_process is not None
    # The helper first: it must not go before its trainer.
    for number in (helper_process, process.pid):
        os.kill(number, signal.SIGTERM)
    process.wait(LONG_S)
    process.stdout.close()
    # It writes, drains, and ends, though it would linger for minutes after a trainer that was killed.
    wait_until(lambda: not helpers_below(tmp_path), "the end of the helper")
    found = Checkpointer(places.far, level="remote")
    assert found.latest("remote") == 2
    assert same(found.restore(), make_state(2))


def test_of_two_trainers_with_tiers_the_second_stays(places: Places) -> None:
    first = places.open()
    first.save(1, make_state(1), wait="local", timeout=LONG_S)
    with places.open() as second:
        assert same(second.restore(), make_state(1))
        second.save(2, make_state(2), wait="remote", timeout=LONG_S)
        with pytest.raises(headrace.StateError, match="taken over"):
            first.save(3, make_state(3), wait="local", timeout=LONG_S)
        second.save(4, make_state(4), wait="remote", timeout=LONG_S)
    with pytest.raises(headrace.StateError, match="taken over"):
        first.save(5, make_state(5), wait="local", timeout=LONG_S)
    assert [entry["step"] for entry in first.list()] == [1, 2, 4]
    assert same(Checkpointer(places.far).restore(), make_state(4))
