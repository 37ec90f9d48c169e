"""Traces of running loaders and savers: whole, and by the rules of the format."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import _native, observe
from headrace import transforms as T
from headrace.checkpoint import Checkpointer

sys.path.insert(0, str(Path(__file__).parent))
import trace_rules


@pytest.fixture(autouse=True)
def own_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime directory of the test's own, and no server left over."""
    monkeypatch.setenv("HEADRACE_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("HEADRACE_ADMIN", raising=False)
    _native.admin_stop()
    monkeypatch.setattr(observe, "_started_in", None)
    yield
    _native.admin_stop()


def photo_loader(photos: Path) -> Any:
    return headrace.open(photos).loader(
        batch_size=10, threads=2, transforms={"jpg": T.imagenet_train(64), "cls": T.label()}
    )


def read(path: Path) -> dict[str, Any]:
    """A trace that keeps the rules."""
    trace: dict[str, Any] = json.loads(path.read_text())
    trace_rules.check(trace)
    return trace


def begins(trace: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "b" and e["cat"] == category]


def thread_names(trace: dict[str, Any]) -> dict[int, str]:
    events = trace["traceEvents"]
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_each_batch_goes_through_all_its_stages(photos: Path, tmp_path: Path) -> None:
    with observe.trace(tmp_path / "t.json"), photo_loader(photos) as loader:
        assert sum(1 for _ in loader) == 6
    trace = read(tmp_path / "t.json")
    assert trace["otherData"]["lost_events"] == 0
    parts = defaultdict(list)
    for event in begins(trace, "batch"):
        parts[event["id"]].append(event["name"])
    wanted = [[f"batch 0/{i}", "plan", "load", "ready"] for i in range(6)]
    assert sorted(parts.values()) == wanted
    names = thread_names(trace)
    stages = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            pool = names[event["tid"]].split()[0]
            stages[pool, event["args"].get("batch")].append(event["name"])
    for i in range(6):
        assert sorted(stages["consumer", f"0/{i}"]) == ["step", "wait: queue"]
        found = stages["loader", f"0/{i}"]
        assert found.count("plan") == 1, (i, found)
        for name in ("read", "decode", "transform"):  # each sample
            assert found.count(name) >= 10, (i, name, found)


def test_each_save_goes_through_its_levels(tmp_path: Path) -> None:
    with observe.trace(tmp_path / "t.json"), Checkpointer(tmp_path / "store") as saver:
        saver.save(3, {"weights": b"x" * 1000}, wait="local")
        saver.save(4, {"weights": b"y" * 1000}).wait("local")
    trace = read(tmp_path / "t.json")
    levels = [event["name"] for event in begins(trace, "checkpoint level")]
    assert levels == ["step 3: memory", "step 3: local", "step 4: memory", "step 4: local"]
    saves = [event["name"] for event in begins(trace, "checkpoint")]
    assert [name for name in saves if name.startswith("step")] == ["step 3", "step 4"]
    assert saves.count("write") == saves.count("publish") == 2
    assert len(begins(trace, "save stall")) == 2


def test_requests_of_a_store_are_told(served: str, tmp_path: Path) -> None:
    ds = headrace.open(served, storage_options={"cache_dir": str(tmp_path / "cache")})
    with observe.trace(tmp_path / "t.json"), ds.loader(batch_size=100) as loader:
        assert sum(1 for _ in loader) == 4
    fetched = [e for e in begins(read(tmp_path / "t.json"), "request") if e["name"] == "fetch"]
    assert any(event["args"]["bytes"] > 0 for event in fetched)


def test_nothing_is_traced_outside_of_the_block(texts: Path, tmp_path: Path) -> None:
    with headrace.open(texts).loader(batch_size=100) as loader:
        assert sum(1 for _ in loader) == 4
    with observe.trace(tmp_path / "t.json"):
        pass
    trace = json.loads((tmp_path / "t.json").read_text())
    assert {event["ph"] for event in trace["traceEvents"]} == {"M"}


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(headrace.HeadraceError), observe.trace(tmp_path / "none" / "t.json"):
        pass


def test_a_running_job_is_traced_from_outside(texts: Path, tmp_path: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=20, threads=2)
    assert sum(1 for _ in loader) == 20  # now it has a socket
    done = threading.Event()

    def train() -> None:
        while not done.is_set():
            for _ in loader:
                pass

    thread = threading.Thread(target=train)
    thread.start()
    try:
        out = tmp_path / "t.json"
        command = [sys.executable, "-m", "headrace", "trace", str(os.getpid()), "--seconds", "1"]
        told = subprocess.run(
            [*command, "-o", str(out), "--json"], capture_output=True, text=True, check=True
        )
    finally:
        done.set()
        thread.join()
        loader.close()
    trace = read(out)
    events = json.loads(told.stdout)
    assert events["trace"] == str(out) and events["processes"] == 1 and events["events"] > 0
    assert any(event["name"].startswith("batch ") for event in begins(trace, "batch"))
    assert {name.split()[0] for name in thread_names(trace).values()} >= {"loader", "consumer"}
    assert {event["pid"] for event in trace["traceEvents"]} == {os.getpid()}


def test_who_is_not_there_cannot_be_traced(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "trace"]
    for who, said in (("1", "no process"), ("x1", "is no process")):
        done = subprocess.run([*command, who], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and said in done.stderr
    done = subprocess.run(
        [*command, "all", "--seconds", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "--seconds" in done.stderr


def broken(change: Callable[[list[dict[str, Any]]], None]) -> dict[str, Any]:
    """A good trace with a change."""
    shared: dict[str, Any] = {"pid": 1, "tid": 0, "args": {}}
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "p"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 0, "args": {"name": "t"}},
        {"ph": "X", "cat": "c", "name": "outer", "ts": 1.0, "dur": 5.0} | shared,
        {"ph": "X", "cat": "c", "name": "inner", "ts": 2.0, "dur": 4.0} | shared,
        {"ph": "b", "cat": "c", "name": "whole", "id": "0x1", "ts": 1.0} | shared,
        {"ph": "b", "cat": "c", "name": "part", "id": "0x1", "ts": 1.0} | shared,
        {"ph": "e", "cat": "c", "name": "part", "id": "0x1", "ts": 2.0} | shared,
        {"ph": "e", "cat": "c", "name": "whole", "id": "0x1", "ts": 3.0} | shared,
    ]
    events = copy.deepcopy(events)
    change(events)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def test_the_rules_find_what_breaks_them() -> None:
    trace_rules.check(broken(lambda events: None))
    changes: list[Callable[[list[dict[str, Any]]], Any]] = [
        lambda events: events[3].update(dur=4.001),  # reaches out of the outer one
        lambda events: events[2].update(ts=-1.0),
        lambda events: events[2].pop("dur"),
        lambda events: events[3].update(tid=9),  # a thread without a name
        lambda events: events.pop(7),  # never ends
        lambda events: events[6].update(name="whole"),  # crosses
        lambda events: events[6].update(id="0x2"),
        lambda events: events[7].update(ts=1.5),  # goes back
        lambda events: events.append(dict(events[1])),  # two names
        lambda events: events[4].update(ph="B"),
    ]
    for change in changes:
        with pytest.raises((AssertionError, KeyError)):
            trace_rules.check(broken(change))
