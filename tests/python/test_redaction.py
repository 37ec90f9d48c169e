"""Secrets are told nowhere: canaries in every place that takes some, looked for in all that is told."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import scripted_s3
from watched_job import running_agent

import headrace
import web
from headrace import _native, observe, run_record
from headrace.checkpoint import Checkpointer

PATIENCE_S = 240
PROGRAM = [sys.executable, "-m", "headrace"]
KEY_ID = "AKIACANARYCANARY0000"
SECRET_KEY = "canary/secret+key/0123456789abcdefghijkl"
SESSION_TOKEN = "canary//session+token=="
PASSWORD = "canary-password"
SIGNATURE = "canary-signature%3D"
ADMIN_TOKEN = "canary-admin-token"
CANARIES = (KEY_ID, SECRET_KEY, SESSION_TOKEN, PASSWORD, SIGNATURE, ADMIN_TOKEN)

# What other libraries of a job log. The last one has no form by which it could be known.
LOGGED = (
    f"retrying https://user:{PASSWORD}@host/a?sv=2026&sig={SIGNATURE}&se=1",
    f"environ({{'AWS_ACCESS_KEY_ID': '{KEY_ID}', 'AWS_SECRET_ACCESS_KEY': '{SECRET_KEY}'}})",
    f"?X-Amz-Credential={KEY_ID}/2026/s3&X-Amz-Security-Token={SESSION_TOKEN}",
    f"sent Authorization: Bearer {ADMIN_TOKEN}",
    f"the server did not like {SECRET_KEY}",
)

# Where something is told, and a word that shows that it was.
PLACES = {
    "metrics": "headrace_loader_samples_total",
    "snapshot": "stages",
    "refused setting": "error",
    "refused stranger": "Bearer TOKEN",
    "agent": "processes",
    "agent's metrics": "headrace_node_processes",
    "record": "retrying https://***@host/a?",
    "trace": "traceEvents",
    "report": "the server did not like ***",
    "doctor of a record": "findings",
    "doctor of a job": "findings",
    "doctor of a data set": "samples",
    "errors": "NotFoundError",
    "errors of the program": "no driver",
    "texts of objects": "Dataset",
}


def fetch(url: str, token: str = "", data: bytes | None = None) -> str:
    """The text of an answer, whatever its status."""
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def program(*arguments: object) -> str:
    """All that the program says."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def error_of(action: Callable[[], object]) -> str:
    """What an action that fails says."""
    with pytest.raises(headrace.HeadraceError) as caught:
        action()
    return f"{caught.value!r} {caught.value}"


def served_by(base: str) -> dict[str, str]:
    """What the server of the process tells."""
    setting = json.dumps({"threads": "no number"}).encode()
    return {
        "metrics": fetch(f"{base}/metrics", ADMIN_TOKEN),
        "snapshot": fetch(f"{base}/snapshot", ADMIN_TOKEN),
        "refused setting": fetch(f"{base}/settings", ADMIN_TOKEN, setting),
        "refused stranger": fetch(f"{base}/metrics", ADMIN_TOKEN + "x"),
    }


def errors(web_url: str, bucket: scripted_s3.ScriptedS3) -> dict[str, str]:
    """What is said where the secrets are in the wrong place, or refused."""
    refusal = f"<AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId><StringToSign>{SECRET_KEY}</StringToSign>"
    bucket.rule = lambda _: scripted_s3.Refusal(403, "SignatureDoesNotMatch", refusal)
    urls = [
        f"{web_url}/none?sig={SIGNATURE}".replace("://", f"://user:{PASSWORD}@"),
        f"s3://{KEY_ID}:{SECRET_KEY}@bucket/set",
        "s3://bucket/set",
        f"s3://{KEY_ID}:{PASSWORD}@bucket/set",
        f"file://user:{PASSWORD}@host/set",
        f"azure://user:{PASSWORD}@host/set?sig={SIGNATURE}",
    ]
    options = {"session_token": SESSION_TOKEN, "retry_budget": "300ms"}
    said = [error_of(lambda url=url: headrace.open(url, storage_options=options)) for url in urls]
    said.append(error_of(lambda: Checkpointer(urls[1], rank=0, world_size=1).latest()))
    by_program = [program("ls", url) for url in urls]
    by_program.append(program("ls", "--nonsense", urls[0], urls[0]))
    return {"errors": "\n".join(said), "errors of the program": "\n".join(by_program)}


@pytest.fixture(scope="module")
def told(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """All that is told about a run whose data lie behind secrets."""
    folder = tmp_path_factory.mktemp("canaries")
    runtime, record, trace = folder / "sockets", folder / "run", folder / "trace.json"
    os.symlink(texts, folder / "set")
    with (
        pytest.MonkeyPatch.context() as patch,
        web.running(folder) as server,
        scripted_s3.running(texts) as bucket,
    ):
        environment = bucket.environment() | {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_SESSION_TOKEN": SESSION_TOKEN,
            "HEADRACE_RUNTIME_DIR": str(runtime),
        }
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("HEADRACE_ADMIN", raising=False)
        _native.admin_stop()
        patch.setattr(observe, "_started_in", None)
        said = errors(server.url, bucket)
        url = f"{server.url}/set?sv=2026&sig={SIGNATURE}".replace("://", f"://user:{PASSWORD}@")
        data = headrace.open(url)
        loader = data.loader(batch_size=10, rank=0, world_size=1, threads=1)
        batches = iter(loader)
        next(batches)
        run_record.start(record, interval=0.1)
        for line in LOGGED:
            logging.getLogger("another.library").warning("%s", line)
        with observe.trace(trace):
            next(batches)
        said |= served_by(f"http://127.0.0.1:{observe.serve(token=ADMIN_TOKEN)}")
        with running_agent(runtime) as agent:
            agent.wait("node", lambda node: node["live"] == 1)
            names = ("node", "history", "findings", "datasets", "caches", "checkpoints")
            said["agent"] = "\n".join(agent.get(f"api/v1/{name}") for name in names)
            said["agent's metrics"] = agent.get("metrics")
        said["doctor of a job"] = program(
            "doctor", "--attach", os.getpid(), "--json", "--seconds", 2
        )
        said["texts of objects"] = f"{data!r} {loader!r} {data.loader!r}"
        loader.close()
        run_record.stop()
        said["doctor of a data set"] = program("doctor", url)
        said["doctor of a record"] = program("doctor", record, "--json")
        said["record"] = (record / "rank-0.jsonl").read_text()
        said["trace"] = trace.read_text()
        said["report"] = program("report", record) and Path(f"{record}.html").read_text()
        _native.admin_stop()
        yield said


@pytest.mark.parametrize("place", PLACES)
def test_no_secret_is_told(told: dict[str, str], place: str) -> None:
    assert PLACES[place] in told[place]
    for canary in CANARIES:
        assert canary not in told[place], place
        assert canary.removesuffix("%3D") not in told[place], place


def test_each_place_was_looked_at(told: dict[str, str]) -> None:
    assert told.keys() == PLACES.keys()
    # A message still says where it was.
    assert "s3://bucket/set" in told["errors of the program"]
    assert "a bucket's URL holds no keys" in told["errors"]
