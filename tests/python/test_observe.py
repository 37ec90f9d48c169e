"""What a process tells about itself: snapshots, its socket, HTTP, and who may ask."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import local
import pytest

import headrace
from headrace import _native, observe
from headrace import transforms as T

PROGRAM = [sys.executable, "-m", "headrace"]
TOKEN = "0123456789abcdef"
PATIENCE_S = 240  # with what may hang, on a busy machine


@pytest.fixture(autouse=True)
def own_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime directory of the test's own, and no server left over."""
    monkeypatch.setenv("HEADRACE_RUNTIME_DIR", str(tmp_path / "run"))
    for name in ("HEADRACE_ADMIN", "HEADRACE_METRICS_PORT", "HEADRACE_ADMIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    _native.admin_stop()
    monkeypatch.setattr(observe, "_started_in", None)
    yield
    _native.admin_stop()


def fetch(url: str, token: str = "", data: bytes | None = None, **headers: str) -> str:
    request = urllib.request.Request(url, data=data, headers=headers)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
        return text


def refused(url: str, **arguments: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(url, **arguments)
    error.value.close()
    return error.value.code


def value_of(metrics: str, name: str, *labels: str) -> float:
    """The value of the only sample with this name and these labels."""
    lines = [
        line
        for line in metrics.splitlines()
        if re.match(rf"{name}[{{ ]", line) and all(label in line for label in labels)
    ]
    assert len(lines) == 1, lines
    return float(lines[0].split()[-1])


def test_a_running_loader_is_scraped_over_http(photos: Path) -> None:
    port = observe.serve()
    base = f"http://127.0.0.1:{port}"
    before = observe.snapshot()["loop"]["batches"]
    loader = headrace.open(photos).loader(
        batch_size=10, transforms={"jpg": T.imagenet_train(64), "cls": T.label()}
    )
    batches = iter(loader)
    next(batches)
    assert value_of(fetch(f"{base}/metrics"), "headrace_loop_batches_total") == before + 1
    for _ in batches:
        pass
    metrics = fetch(f"{base}/metrics")
    assert value_of(metrics, "headrace_loop_batches_total") == before + 6
    assert value_of(metrics, "headrace_stage_items_total", 'stage="decode"') >= 60
    told = json.loads(fetch(f"{base}/snapshot"))
    assert told["pid"] == os.getpid()
    assert told["dataset"] == str(photos)
    assert fetch(f"{base}/healthz") == "ok\n"
    pools = {pool["name"]: pool for pool in told["pools"]}
    for stage in told["stages"]:
        if pools[stage["pool"]]["thread_ns"]:
            total = stage["busy_ns"] + stage["wait_ns"] + stage["idle_ns"]
            assert total == pools[stage["pool"]]["thread_ns"], stage


def test_counts_stay_when_a_loader_is_gone(texts: Path) -> None:
    before = observe.snapshot()["loop"]["batches"]
    with headrace.open(texts).loader(batch_size=100) as loader:
        assert sum(1 for _ in loader) == 4
    del loader
    assert observe.snapshot()["loop"]["batches"] == before + 4


def test_settings_are_changed_over_http_with_a_token(texts: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=10, threads=1, max_threads=3)
    base = f"http://127.0.0.1:{observe.serve(token=TOKEN)}"
    change: dict[str, Any] = {
        "data": b'{"threads": 3}',
        "Content-Type": "application/json",
        "token": TOKEN,
    }
    answer = json.loads(fetch(f"{base}/settings", **change))
    told = {"name": "threads", "value": 3, "min": 1, "max": 3, "unit": "threads"}
    assert answer["settings"] == [told]
    assert loader.settings["threads"].value == 3
    assert refused(f"{base}/settings", **(change | {"data": b'{"threads": 4}'})) == 400
    assert refused(f"{base}/settings", **(change | {"Content-Type": "text/plain"})) == 415
    assert refused(f"{base}/settings", **(change | {"token": ""})) == 401
    # Without a token HTTP tells, and changes nothing.
    base = f"http://127.0.0.1:{observe.serve()}"
    assert refused(f"{base}/settings", **(change | {"token": ""})) == 403
    assert loader.settings["threads"] == (3, 1, 3)


def test_changed_settings_are_told(texts: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=10, threads=1, max_threads=3)
    before = {change["number"] for change in observe.snapshot()["changes"]}
    loader.change_setting("threads", 2)
    made = [c for c in observe.snapshot()["changes"] if c["number"] not in before]
    assert [(c["name"], c["from"], c["to"], c["by"]) for c in made] == [
        ("threads", 1, 2, "the program")
    ]
    with pytest.raises(headrace.InvalidArgumentError, match="1 to 3"):
        loader.change_setting("threads", 4)
    with pytest.raises(headrace.InvalidArgumentError):
        loader.change_setting("threads", "many")
    with pytest.raises(headrace.NotFoundError, match="it has: threads"):
        loader.change_setting("prefetch_bytes", "1MiB")
    assert loader.settings == {"threads": (2, 1, 3)}


def test_settings_are_those_of_the_loader_in_use(texts: Path) -> None:
    training = headrace.open(texts).loader(batch_size=10, threads=1, max_threads=3)
    validation = headrace.open(texts).loader(batch_size=10, threads=2, max_threads=2)
    next(iter(training))
    assert [one["max"] for one in observe.snapshot()["settings"]] == [3]
    next(iter(validation))
    assert [one["max"] for one in observe.snapshot()["settings"]] == [2]


def test_doctor_fixes_only_what_it_finds(texts: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=10, threads=1, max_threads=1)
    done = threading.Event()

    def train() -> None:
        while not done.is_set():
            for _ in loader:
                if done.is_set():
                    return

    next(iter(loader))  # its socket is there
    training = threading.Thread(target=train)
    training.start()
    try:
        shown = subprocess.run(
            [*PROGRAM, "doctor", "--fix", str(os.getpid()), "--seconds", "2", "--json"],
            capture_output=True,
            text=True,
        )
    finally:
        done.set()
        training.join()
    assert shown.returncode in (0, 1), shown.stderr
    told = json.loads(shown.stdout)
    # What it finds depends on the machine; but with one thread to choose from it changes nothing.
    assert told["changes"] == [] and not told["dry_run"]
    assert loader.settings["threads"].value == 1


def test_a_token_is_needed_where_others_can_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="token"):
        observe.serve(address="0.0.0.0")
    with pytest.raises(headrace.InvalidArgumentError, match="16"):
        observe.serve(token="short")
    base = f"http://127.0.0.1:{observe.serve(token=TOKEN)}"
    assert refused(f"{base}/metrics") == 401
    assert refused(f"{base}/metrics", token=TOKEN + "x") == 401
    assert TOKEN not in fetch(f"{base}/metrics", token=TOKEN)
    assert TOKEN not in fetch(f"{base}/snapshot", token=TOKEN)
    assert fetch(f"{base}/healthz") == "ok\n"


def test_pages_of_other_places_may_not_ask() -> None:
    base = f"http://127.0.0.1:{observe.serve()}"
    assert refused(f"{base}/snapshot", Origin="http://evil.example") == 403
    assert refused(f"{base}/snapshot", Host="evil.example") == 403


def test_secrets_of_storage_are_not_told(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key")
    scheme, rest = served.split("://")
    url = f"{scheme}://user:hunter2@{rest}?signature=abcdef"
    base = f"http://127.0.0.1:{observe.serve()}"
    loader = headrace.open(url).loader(batch_size=10)
    next(iter(loader))
    told = fetch(f"{base}/snapshot") + fetch(f"{base}/metrics")
    for secret in ("hunter2", "abcdef", "very-secret-key"):
        assert secret not in told
    # What the store was asked is told.
    assert '"headrace_store_requests_total"' in told
    assert 'stage="fetch"' in told


def test_the_environment_opens_a_port(texts: Path) -> None:
    (port,) = local.free_ports(1)
    code = f"""
import headrace, urllib.request
loader = headrace.open({str(texts)!r}).loader(batch_size=10)
next(iter(loader))
text = urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode()
assert 'run="night"' in text, text
"""
    job = {"HEADRACE_METRICS_PORT": str(port - 1), "LOCAL_RANK": "1", "HEADRACE_JOB": "night"}
    subprocess.run([sys.executable, "-c", code], env=os.environ | job, check=True)


def test_a_loader_works_where_nothing_can_be_watched(texts: Path, tmp_path: Path) -> None:
    code = f"""
import headrace
loader = headrace.open({str(texts)!r}).loader(batch_size=100)
print(sum(1 for _ in loader))
"""
    for extra in ({"HEADRACE_RUNTIME_DIR": "/no/such"}, {"HEADRACE_METRICS_PORT": "x"}):
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | extra, capture_output=True, text=True
        )
        assert done.stdout == "4\n", done.stderr
        assert "cannot be watched" in done.stderr
    quiet = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HEADRACE_ADMIN": "off", "HEADRACE_RUNTIME_DIR": "/no/such"},
        capture_output=True,
        text=True,
    )
    assert (quiet.stdout, quiet.stderr) == ("4\n", "")


def top_once(*options: str) -> str:
    """What top shows of this process; again where a busy machine let it answer too late."""
    while True:
        done = subprocess.run(
            [*PROGRAM, "top", "--once", *options], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout
        assert done.returncode == 1 and "no process" in done.stderr


def test_top_finds_this_process(texts: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=100)
    for _ in loader:
        pass
    shown = top_once()
    assert str(os.getpid()) in shown and str(texts) in shown
    processes = json.loads(top_once("--json"))["processes"]
    assert [one["snapshot"]["pid"] for one in processes] == [os.getpid()]
    assert processes[0]["snapshot"]["loop"]["batches"] >= 4
    none = subprocess.run([*PROGRAM, "top", "--once", "--pid", "1"], capture_output=True, text=True)
    assert none.returncode == 1 and "no process" in none.stderr


def test_saves_are_a_stall_of_the_loop(tmp_path: Path) -> None:
    from headrace.checkpoint import Checkpointer

    before = observe.snapshot()["loop"]["save_stall_ns"]
    saver = Checkpointer(tmp_path / "store")
    saver.save(1, {"weights": b"x" * 1000}, wait="local")
    told = observe.snapshot()
    assert told["loop"]["save_stall_ns"] > before
    stages = {(stage["pool"], stage["name"]): stage for stage in told["stages"]}
    assert stages["checkpoint", "step"]["count"] >= 1
    saved = [m for m in told["metrics"] if m["name"] == "headrace_checkpoint_saves_total"]
    assert saved and saved[0]["value"] >= 1


def test_mfu_comes_from_what_the_user_tells(texts: Path) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        observe.describe_model(0, 1)
    try:
        observe.describe_model(1e6, 1e12)
        with headrace.open(texts).loader(batch_size=100) as loader:
            for _ in loader:
                pass
            loop = observe.snapshot()["loop"]
        seconds = (loop["input_wait_ns"] + loop["between_batches_ns"]) * 1e-9
        assert loop["mfu"] == pytest.approx(1e6 * loop["batches"] / (1e12 * seconds))
    finally:
        _native.set_model(0, 0)


def test_flops_of_a_matrix_product() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.ones(16, 32, requires_grad=True)
    flops = observe.count_flops(lambda: (torch.ones(8, 16) @ weight).sum().backward())
    assert flops == 2 * (2 * 8 * 16 * 32)  # forward, and the weight's gradient


def read_until(terminal: int, seen: bytes, done: Callable[[bytes], bool]) -> bytes:
    """Read what a program writes to its terminal until it is enough."""
    while not done(seen):
        seen += os.read(terminal, 65536)
    return seen


def set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def last_frame(seen: bytes) -> list[str]:
    """The lines of the last screen that was drawn whole; empty when there is none."""
    frames = seen.decode(errors="replace").split("\x1b[H")
    whole = [frame for frame in frames[1:] if "\x1b[J" in frame]
    lines = whole[-1].split("\x1b[J")[0].split("\x1b[K") if whole else [""]
    return [line.strip("\r\n") for line in lines[:-1]]


def names_of_threads() -> list[str]:
    """Those of this process, also the native ones."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def test_clients_that_say_nothing_disturb_nobody(texts: Path) -> None:
    port = observe.serve()
    loader = headrace.open(texts).loader(batch_size=10, rank=0, world_size=1, threads=1)
    batches = iter(loader)
    samples = len(next(batches)["__key__"])
    with ExitStack() as stack:
        for number in range(200):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.sendall(b"GET /metrics HTTP/1.1\r\n"[: number % 4])
        samples += sum(len(batch["__key__"]) for batch in batches)
        told = fetch(f"http://127.0.0.1:{port}/metrics")
        assert [name for name in names_of_threads() if name == "hr-admin-http"] == ["hr-admin-http"]
    assert samples == 400
    assert value_of(told, "headrace_loader_samples_total") >= 400


def test_top_draws_resizes_and_quits(texts: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=100)
    for _ in loader:
        pass
    terminal, its_side = pty.openpty()
    set_size(terminal, 150, 40)
    shown = subprocess.Popen([*PROGRAM, "top"], stdin=its_side, stdout=its_side)
    os.close(its_side)
    try:
        name = f"process {os.getpid()}, {texts}"
        seen = read_until(terminal, b"", lambda s: any(name in line for line in last_frame(s)))
        assert b"\x1b[?1049h" in seen
        set_size(terminal, 40, 5)
        read_until(
            terminal,
            b"",
            lambda s: 0 < len(last_frame(s)) <= 5 and max(map(len, last_frame(s))) <= 40,
        )
        os.write(terminal, b"q")
        read_until(terminal, b"", lambda s: b"\x1b[?1049l" in s)
        assert shown.wait(timeout=PATIENCE_S) == 0
    finally:
        shown.kill()
        shown.wait()
        os.close(terminal)


def test_top_without_a_terminal_says_what_to_add() -> None:
    done = subprocess.run(
        [*PROGRAM, "top"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 2 and "--once" in done.stderr
