"""Light saves, what saves cost, and advice on how often to save."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from headrace.checkpoint.light import at_path, put, select

import headrace
from headrace.checkpoint import Checkpointer

LIGHT = ("/model", "/step")


def state_at(step: int) -> dict[str, Any]:
    """A state all of whose values say the step; the optimizer is twice the model."""
    return {
        "model": {"w": torch.full((4000,), float(step)), "b": torch.full((3,), float(step))},
        "optimizer": {"state": {0: {"m": torch.full((8000,), float(step))}}, "lr": 0.1 * step},
        "step": step,
        "note": f"step {step}",
    }


def saved(folder: Path, steps: range, **options: Any) -> Checkpointer:
    """A closed checkpointer that has saved a state at each step."""
    with Checkpointer(folder, keep=0, light=LIGHT, **options) as checkpointer:
        for step in steps:
            checkpointer.save(step, state_at(step), wait="local")
    return checkpointer


def test_selects_and_puts_what_lies_at_paths() -> None:
    state = {"a": {"b": 1, "c": 2}, "d": {3: 4, "x~/": 5}, "e": 6}
    part = select(state, ["/a/b", "/d/3", "/d/x~0~1"])
    assert part == {"a": {"b": 1}, "d": {3: 4, "x~/": 5}}
    assert put({"a": {"b": 0, "c": 0}, "d": {3: 0}}, part, ["/a/b", "/d/3", "/d/x~0~1"]) == {
        "a": {"b": 1, "c": 0},
        "d": {3: 4, "x~/": 5},
    }
    assert at_path(state, "") is state
    for path in ("/f", "/a/b/c", "/e/0"):
        with pytest.raises(headrace.InvalidArgumentError, match=path):
            select(state, [path])
    with pytest.raises(headrace.InvalidArgumentError, match="no path"):
        select(state, ["a"])


def test_every_nth_save_is_full_and_the_first_one_is(tmp_path: Path) -> None:
    saved(tmp_path / "c", range(1, 8), full_every=3)
    with Checkpointer(tmp_path / "c") as checkpointer:
        kinds = [entry["kind"] for entry in checkpointer.list()]
    assert kinds == ["full", "light", "light", "full", "light", "light", "full"]


def test_restores_the_newest_light_with_the_newest_full(tmp_path: Path) -> None:
    saved(tmp_path / "c", range(1, 7), full_every=4)  # full: 1, 5
    checkpointer = Checkpointer(tmp_path / "c")
    state = checkpointer.restore()
    assert checkpointer.restored is not None
    assert checkpointer.restored["step"] == 6
    assert checkpointer.restored["full_step"] == 5
    assert checkpointer.restored["light"] == list(LIGHT)
    assert state["step"] == 6
    assert set(state["model"]["w"].tolist()) == {6.0}
    assert set(state["optimizer"]["state"][0]["m"].tolist()) == {5.0}
    assert state["optimizer"]["lr"] == 0.5
    assert state["note"] == "step 5"
    # An older light one takes the full one before it, not the newest.
    state = checkpointer.restore(3)
    assert set(state["model"]["b"].tolist()) == {3.0}
    assert set(state["optimizer"]["state"][0]["m"].tolist()) == {1.0}
    # A full one is itself.
    assert checkpointer.restore(5)["note"] == "step 5"
    assert checkpointer.restored["full_step"] == 5


def test_fills_the_arrays_that_there_are(tmp_path: Path) -> None:
    saved(tmp_path / "c", range(1, 4), full_every=3)
    into = state_at(0)
    weights, moments = into["model"]["w"], into["optimizer"]["state"][0]["m"]
    state = Checkpointer(tmp_path / "c").restore(into=into)
    assert state["model"]["w"] is weights
    assert state["optimizer"]["state"][0]["m"] is moments
    assert set(weights.tolist()) == {3.0}
    assert set(moments.tolist()) == {1.0}


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "c", range(1, 4), full_every=3)
    into = state_at(0)
    into["model"]["b"] = torch.zeros(4)
    with pytest.raises(headrace.InvalidArgumentError, match="/model/b"):
        Checkpointer(tmp_path / "c").restore(into=into)
    assert set(into["optimizer"]["state"][0]["m"].tolist()) == {0.0}


def test_a_view_of_a_light_array_from_elsewhere_stays_what_it_was(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "c", light=["/model"], full_every=2) as checkpointer:
        for step in (1, 2):
            weights = torch.full((100,), float(step))
            state = {"model": {"w": weights}, "average": weights[10:20]}
            checkpointer.save(step, state, wait="local")
    state = Checkpointer(tmp_path / "c").restore()
    assert set(state["model"]["w"].tolist()) == {2.0}
    assert set(state["average"].tolist()) == {1.0}


def test_without_a_full_one_the_light_part_is_still_there(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "c", light=LIGHT) as checkpointer:
        checkpointer.save(1, state_at(1), kind="light", wait="local")
        with pytest.raises(headrace.NotFoundError, match="light_only"):
            checkpointer.restore()
        part = checkpointer.restore(light_only=True)
    assert list(part) == ["model", "step"]


def test_pruning_keeps_the_full_one_that_the_newest_needs(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "c", keep=1, light=LIGHT, full_every=100) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, state_at(step), wait="local")
        assert [entry["step"] for entry in checkpointer.list()] == [1, 5]
        state = checkpointer.restore()
    assert state["step"] == 5
    assert set(state["optimizer"]["state"][0]["m"].tolist()) == {1.0}


def test_pruning_keeps_the_full_one_that_an_older_light_one_needs(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "c", keep=1, light=LIGHT, full_every=3) as checkpointer:
        for step in range(1, 8):  # full: 1, 4, 7
            checkpointer.save(step, state_at(step), wait="local")
        assert [entry["step"] for entry in checkpointer.list()] == [4, 6, 7]
        rows = {row["step"]: row["why"] for row in checkpointer.prune(dry_run=True)}
        assert rows[4] == "light step 6 needs it"
        state = checkpointer.restore(6)
        assert state["step"] == 6
        assert set(state["optimizer"]["state"][0]["m"].tolist()) == {4.0}
        # And goes with it.
        checkpointer.save(8, state_at(8), wait="local")
        assert [entry["step"] for entry in checkpointer.list()] == [7, 8]


def test_tells_what_each_kind_costs(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # light ones pay here: a third is written
        checkpointer = saved(tmp_path / "c", range(0, 60, 10), full_every=3)
    costs = checkpointer.costs()
    assert costs["full"]["saves"] == 2
    assert costs["light"]["saves"] == 4
    assert costs["full"]["bytes"] > 2.9 * costs["light"]["bytes"]
    assert costs["light"]["written_bytes"] >= 16_000
    written = costs["full"]["written_bytes"] + 4 * costs["light"]["written_bytes"]
    assert costs["per_step"]["written_bytes"] == pytest.approx(written / 50)
    assert costs["warning"] == ""


def test_unchanged_tensors_cost_nothing_and_the_report_says_so(tmp_path: Path) -> None:
    state = state_at(1)
    with Checkpointer(tmp_path / "c") as checkpointer:
        checkpointer.save(1, state, wait="local")
        report = checkpointer.save(2, state).wait()
    assert report["reused_bytes"] == report["bytes"]
    assert report["written_bytes"] == 0
    # A full save finds the full one before the light ones.
    folder = tmp_path / "d"
    with Checkpointer(folder, light=["/model"], full_every=2) as checkpointer:
        checkpointer.save(1, state, wait="local")
        checkpointer.save(2, state, wait="local")
        report = checkpointer.save(3, state).wait()
    assert report["reused_bytes"] == report["bytes"]


def test_warns_where_light_saves_do_not_pay() -> None:
    from headrace.checkpoint.light import SavePolicy

    class Ended:
        """A save that has ended."""

        def __init__(self, step: int, written: int) -> None:
            self.step, self.written = step, written

        def done(self) -> bool:
            return True

        def wait(self) -> dict[str, Any]:
            names = ("bytes", "reused_bytes", "hash_s", "write_s", "sync_s", "publish_s")
            return {**dict.fromkeys(names, 1), "stall_s": 0.1, "written_bytes": self.written}

    policy = SavePolicy(["/model"], 2)
    policy.saved("full", Ended(1, 100))  # type: ignore[arg-type]
    assert policy.costs()["warning"] == ""
    policy.saved("light", Ended(2, 90))  # type: ignore[arg-type]
    assert "90%" in policy.costs()["warning"]


def test_refuses_policies_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="full_every"):
        Checkpointer(tmp_path / "c", light=LIGHT, full_every=0)
    with pytest.raises(headrace.InvalidArgumentError, match="light="):
        Checkpointer(tmp_path / "c", full_every=2)


def test_advises_from_the_times_of_the_store(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "c") as checkpointer:
        with pytest.raises(headrace.StateError, match="measured times"):
            checkpointer.advice(3600)
        for step in range(3):
            checkpointer.save(step, state_at(step), wait="local")
    with Checkpointer(tmp_path / "c") as checkpointer:
        checkpointer.restore()
        checkpointer.save(4, state_at(4), wait="local")
        advice = checkpointer.advice(3600, restart=60, step_time=0.5)
        entries = checkpointer.list()
    # Which of two times is the longer one is a question of what the machine did meanwhile.
    assert all(entry["stall_s"] > 0 and entry["save_s"] > 0 for entry in entries)
    assert entries[-1]["restore_s"] > 0
    assert advice["saves"] == 3  # one was pruned
    assert advice["stall_s"] > 0 and advice["durable_s"] > 0
    assert advice["restore_s"] > 0
    assert advice["advised_interval_s"] >= advice["durable_s"]
    assert advice["advised_steps"] >= 1
    assert 0 < advice["advised_goodput"] < 1
    assert "sqrt(" in advice["text"]
    with_short = Checkpointer(tmp_path / "c").advice(3600, interval=1e-9)
    assert "shorter than the drain" in with_short["warning"]
