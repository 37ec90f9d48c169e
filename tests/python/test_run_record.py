"""The record of a run, kept by a training process and read by the program."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace.errors import InvalidArgumentError

import headrace
from headrace import observe, run_record
from headrace.checkpoint import Checkpointer

ATTEMPTS = 20


@pytest.fixture(autouse=True)
def _no_record_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("HEADRACE_RECORD", raising=False)
    yield
    run_record.stop()


def slow_length(data: bytes) -> int:
    """A transform that is the slowest thing of the loop."""
    time.sleep(0.002)
    return len(data)


def train(dataset: Path, record: Path | None) -> int:
    """Go over the data set once, with a Python transform. Returns the number of samples."""
    loader = headrace.open(dataset).loader(
        batch_size=20, seed=1, rank=0, world_size=1, threads=1, transforms={"txt": slow_length}
    )
    if record is not None:
        run_record.start(record, interval=0.1)
    samples = sum(len(batch["__key__"]) for batch in loader)
    loader.close()
    return samples


def lines_of(record: Path) -> list[dict[str, Any]]:
    """The lines of rank 0."""
    text = (record / "rank-0.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines() if line]


def program(*arguments: object) -> tuple[int, str]:
    """Exit code and output of the program."""
    command = [sys.executable, "-m", "headrace", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def checks_of(found: str) -> set[str]:
    """The names of what the doctor found."""
    return {finding["check"] for finding in json.loads(found)["findings"]}


def test_a_python_transform_is_found_in_the_record(texts: Path, tmp_path: Path) -> None:
    # Again where the machine was busy, and for that time slower than the transform.
    for number in range(ATTEMPTS):
        record = tmp_path / f"run-{number}"
        samples = train(texts, record)
        run_record.stop()
        code, out = program("doctor", record, "--json")
        if "python-transform" in checks_of(out):
            break
    assert (code, "python-transform" in checks_of(out)) == (1, True), out
    lines = lines_of(record)
    assert lines[0]["type"] == "run"
    assert lines[0]["dataset"]["name"] == str(texts)
    windows = [line["snapshot"] for line in lines if line["type"] == "window"]
    counted = [
        metric["value"]
        for window in windows
        for metric in window["metrics"]
        if metric["name"] == "headrace_loader_samples_total"
    ]
    assert sum(counted) == samples == 400
    code, out = program("report", record)
    assert code == 0
    page = Path(out.strip()).read_text()
    assert "python-transform" in page and "</html>" in page
    code, out = program("compare", record, record, "--json")
    assert code == 0
    assert json.loads(out)["findings_new"] == []


def test_warnings_of_the_log_are_kept(texts: Path, tmp_path: Path) -> None:
    run_record.start(tmp_path / "run")
    logging.getLogger("mine").warning("disk %s is slow", "sda")
    logging.getLogger("mine").info("not this")
    run_record.stop()
    logging.getLogger("mine").error("nor this")
    logs = [line for line in lines_of(tmp_path / "run") if line["type"] == "log"]
    assert [(line["level"], line["text"]) for line in logs] == [
        ("warning", "mine: disk sda is slow")
    ]


def test_the_environment_starts_a_record(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_RECORD", str(tmp_path / "run"))
    monkeypatch.setattr(observe, "_started_in", None)
    train(texts, None)
    run_record.stop()
    assert any(line["type"] == "window" for line in lines_of(tmp_path / "run"))


def test_what_cannot_be_recorded_is_no_reason_not_to_train(
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_RECORD", str(tmp_path / "file" / "run"))
    monkeypatch.setattr(observe, "_started_in", None)
    assert train(texts, None) == 400
    assert "this run is not recorded" in caplog.text
    monkeypatch.setenv("HEADRACE_RECORD_INTERVAL", "often")
    monkeypatch.setattr(observe, "_started_in", None)
    assert train(texts, None) == 400
    assert "HEADRACE_RECORD_INTERVAL" in caplog.text


def test_wrong_intervals_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="every"):
        run_record.start(tmp_path / "run", interval=0)
    with pytest.raises(InvalidArgumentError, match="64 KiB"):
        run_record.start(tmp_path / "run", limit_bytes=1)


def test_a_running_job_is_watched(texts: Path, tmp_path: Path) -> None:
    job = """
import sys, time
import headrace
loader = headrace.open(sys.argv[1]).loader(
    batch_size=20, seed=1, rank=0, world_size=1, threads=1,
    transforms={"txt": lambda data: time.sleep(0.001) or 0})
told = False
while True:
    for batch in loader:
        if not told:
            print("begun", flush=True)
            told = True
"""
    environment = {**os.environ, "HEADRACE_RUNTIME_DIR": str(tmp_path / "sockets")}
    with subprocess.Popen(
        [sys.executable, "-c", job, str(texts)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            command = [sys.executable, "-m", "headrace", "doctor", "--json", "--seconds", "2"]
            for _ in range(ATTEMPTS):  # as above
                done = subprocess.run(
                    [*command, "--attach", str(process.pid)],
                    capture_output=True,
                    text=True,
                    check=False,
                    env=environment,
                )
                if done.returncode == 1 and "python-transform" in checks_of(done.stdout):
                    break
        finally:
            process.kill()
    assert done.returncode == 1, done
    assert "python-transform" in checks_of(done.stdout), done


def saving_run(dataset: Path, store: Path, *steps: int, keep: int = 1) -> None:
    """A run that reads some batches and saves at these steps."""
    loader = headrace.open(dataset).loader(batch_size=20, seed=1, rank=0, world_size=1, threads=1)
    batches = iter(loader)
    next(batches)
    with Checkpointer(store, keep=keep, rank=0, world_size=1) as checkpointer:
        for step in steps:
            logging.getLogger("mine").warning("now comes step %d", step)
            checkpointer.save(step, {"w": b"x" * 1000}, wait="local")
            next(batches)
    loader.close()


def records(store: Path) -> list[str]:
    """The runs that are recorded beside checkpoints."""
    return sorted(path.name for path in (store / "records").glob("*") if path.is_dir())


def test_a_run_is_recorded_beside_its_checkpoints(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "_was_kept", False)
    saving_run(texts, tmp_path / "ckpt", 1, 2)
    saving_run(texts, tmp_path / "ckpt", 3, keep=0)
    first, second = (tmp_path / "ckpt" / "records" / name for name in records(tmp_path / "ckpt"))
    lines = lines_of(first)
    assert lines[0]["type"] == "run" and lines[0]["dataset"]["name"] == str(texts)
    windows = [line["snapshot"] for line in lines if line["type"] == "window"]
    # What came before the first save is in it.
    assert windows[0]["loop"]["batches"] >= 1
    assert sum(window["loop"]["batches"] for window in windows) >= 2
    assert [line["text"] for line in lines if line["type"] == "log"] == ["mine: now comes step 2"]
    code, out = program("report", first)
    assert code == 0 and "</html>" in Path(out.strip()).read_text()
    assert program("compare", first, second)[0] == 0
    # It is no checkpoint, and the store none of its readers stumbles over.
    steps = [
        entry["step"] for entry in Checkpointer(tmp_path / "ckpt", rank=0, world_size=1).list()
    ]
    assert steps == [2, 3]
    code, out = program("ckpt", "verify", tmp_path / "ckpt")
    assert code == 0, out


def test_a_record_goes_with_the_last_checkpoint_of_its_run(texts: Path, tmp_path: Path) -> None:
    store = tmp_path / "ckpt"
    saving_run(texts, store, 1, keep=2)
    (first,) = records(store)
    saving_run(texts, store, 2, keep=2)
    assert len(records(store)) == 2
    saving_run(texts, store, 3, keep=2)
    left = records(store)
    assert len(left) == 2 and first not in left
    code, out = program("ckpt", "prune", store, "--keep", 1, "--dry-run", "--json")
    assert code == 0 and records(store) == left
    code, out = program("ckpt", "prune", store, "--keep", 1, "--json")
    assert code == 0 and json.loads(out)["run_records_removed"] == 1
    assert records(store) == left[1:]


def test_a_run_is_recorded_once_and_where_it_is_asked_to(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_record.start(tmp_path / "mine")
    saving_run(texts, tmp_path / "ckpt", 1)
    assert records(tmp_path / "ckpt") == []
    run_record.stop()
    assert any(line["type"] == "window" for line in lines_of(tmp_path / "mine"))
    monkeypatch.setenv("HEADRACE_RECORD", "off")
    monkeypatch.setattr(observe, "_started_in", None)
    saving_run(texts, tmp_path / "ckpt", 2)
    assert records(tmp_path / "ckpt") == [] and not Path("off").exists()
    # Where nothing is loaded there is nothing to record.
    monkeypatch.delenv("HEADRACE_RECORD")
    monkeypatch.setattr(observe, "_started_in", None)
    with Checkpointer(tmp_path / "ckpt", rank=0, world_size=1) as checkpointer:
        checkpointer.save(3, {"w": 1})
    assert records(tmp_path / "ckpt") == []


def test_what_cannot_be_recorded_beside_checkpoints_is_no_reason_not_to_save(
    texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "ckpt"
    store.mkdir()
    (store / "records").write_text("in the way")
    saving_run(texts, store, 1, 2)
    assert caplog.text.count("this run is not recorded") == 1
    assert Checkpointer(store, rank=0, world_size=1).latest() == 2
