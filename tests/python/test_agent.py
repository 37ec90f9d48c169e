"""The agent of a node beside real jobs: what it finds, tells and keeps, and who may ask."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watched_job import PATIENCE_S, Agent, running_agent, running_job

PROGRAM = [sys.executable, "-m", "headrace"]
TOKEN = "0123456789abcdef"
PROMTOOL = shutil.which("promtool", path=f"{Path(sys.executable).parent}") or shutil.which(
    "promtool"
)


@pytest.fixture(scope="module")
def watched(
    photos: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Agent, list[int], Path]]:
    """A job of two ranks that saves now and then, and the agent that watches it."""
    folder = tmp_path_factory.mktemp("node")
    store = folder / "ckpt"
    with (
        running_job(photos, folder / "run", ranks=2, store=store) as pids,
        running_agent(folder / "run", store) as agent,
    ):
        yield agent, pids, store


def both_live(node: Any) -> bool:
    """Both ranks are seen, more than once."""
    done = [p["recent"]["batches_per_second"] for p in node["processes"] if p["state"] == "live"]
    return len(done) == 2 and all(rate > 0 for rate in done)


def test_it_finds_the_jobs_of_its_node(
    watched: tuple[Agent, list[int], Path], photos: Path
) -> None:
    agent, pids, _ = watched
    node = agent.wait("node", both_live)
    assert sorted(p["pid"] for p in node["processes"]) == sorted(pids)
    assert [p["rank"] for p in node["processes"]] == [0, 1]
    for process in node["processes"]:
        assert process["run"] == "night-run" and process["dataset"] == str(photos)
        recent = process["recent"]
        whole = recent["input_stall"] + recent["save_stall"] + recent["au"]
        assert whole == pytest.approx(1, abs=1e-3)
        assert {"loader/decode", "consumer/step"} <= {
            f"{stage['pool']}/{stage['name']}" for stage in process["stages"]
        }


def test_it_remembers_what_they_did(watched: tuple[Agent, list[int], Path]) -> None:
    agent, pids, _ = watched

    def known(history: Any) -> bool:
        return len(history["processes"]) == len(pids) and all(
            sum(point is not None for point in one["points"]) >= 2 for one in history["processes"]
        )

    history = agent.wait("history?seconds=120&points=60", known)
    assert len(history["processes"][0]["points"]) == 60
    for point in filter(None, history["processes"][0]["points"]):
        told = dict(zip(history["columns"], point, strict=True))
        assert 0 <= told["au"] <= 1 and len(told["stages"]) == len(history["stages"])


def test_the_doctor_looks_at_each_run(watched: tuple[Agent, list[int], Path]) -> None:
    agent, _, _ = watched
    findings = agent.wait("findings", lambda f: f["runs"] and f["runs"][0]["has_samples"])
    assert [(run["run"], run["ranks"]) for run in findings["runs"]] == [("night-run", 2)]


def test_data_sets_and_checkpoints_are_told(
    watched: tuple[Agent, list[int], Path], photos: Path
) -> None:
    agent, _, store = watched
    datasets = agent.wait("datasets", lambda d: d["datasets"] and d["datasets"][0]["facts"])
    assert datasets["datasets"][0]["name"] == str(photos)
    assert datasets["datasets"][0]["facts"]["samples"] == 60
    said = agent.wait("checkpoints", lambda c: c.get("stores") and c["stores"][0]["checkpoints"])
    assert said["stores"][0]["store"] == str(store)
    newest = said["stores"][0]["checkpoints"][0]
    assert newest["step"] % 100 == 20 and newest["bytes"] >= 1 << 20
    assert [place["level"] for place in newest["places"]] == ["local"]


def test_the_node_is_scraped(watched: tuple[Agent, list[int], Path]) -> None:
    agent, pids, _ = watched
    agent.wait("node", both_live)
    metrics = agent.get("metrics")
    for pid in pids:
        assert f'run="night-run",rank="{pids.index(pid)}",pid="{pid}"' in metrics
    assert 'headrace_node_processes{state="live"} 2' in metrics
    if PROMTOOL is None:
        pytest.skip("all but promtool's check: needs the package 'prometheus'")
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=metrics, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_job_that_ends_is_remembered(photos: Path, tmp_path: Path) -> None:
    with running_agent(tmp_path / "run") as agent:
        assert agent.api("node")["processes"] == []  # not even the folder is there
        with running_job(photos, tmp_path / "run", name="short") as pids:
            agent.wait("node", lambda n: n["live"] == 1)
        node = agent.wait("node", lambda n: n["ended"] == 1)
        assert [p["pid"] for p in node["processes"]] == pids
        assert f'pid="{pids[0]}"' not in agent.get("metrics")


def test_a_token_is_needed_where_one_is_given(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    with running_agent(tmp_path / "run", "--token-file", file, token=TOKEN) as agent:
        assert agent.api("node")["processes"] == []
        agent.token = ""
        for path in ("api/v1/node", "metrics"):
            with pytest.raises(urllib.error.HTTPError) as error:
                agent.get(path)
            error.value.close()
            assert error.value.code == 401
        # The page itself says nothing of the node.
        assert TOKEN not in agent.get("")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "0.0.0.0:0"], "token"),
        (["--listen", "nonsense"], "ADDRESS:PORT"),
        (["--listen", "127.0.0.1:70000"], "ADDRESS:PORT"),
        (["--token-file", "/no/such/file"], "/no/such/file"),
    ],
)
def test_what_it_cannot_do_is_said(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "agent", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode in (1, 2, 3) and words in done.stderr, done.stderr


def test_it_ends_cleanly_while_it_is_asked(tmp_path: Path) -> None:
    with running_agent(tmp_path / "run") as agent:
        port = int(agent.url.rstrip("/").rsplit(":", 1)[1])
        client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        client.sendall(b"GET /api")
    client.close()
