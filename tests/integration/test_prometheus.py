"""A real Prometheus reads what a running loader exports, runs the board's queries and the alert rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import local
import pytest
from test_cli_reference import native_program

import web

REPOSITORY = Path(__file__).resolve().parents[2]
BOARD = REPOSITORY / "deploy" / "grafana" / "headrace.json"
RULES = REPOSITORY / "deploy" / "prometheus" / "headrace-alerts.yml"

# Through the node's cache from a web server, and with a checkpoint: what most metrics are about.
EXAMPLE = """
import sys, headrace
from headrace import observe
from headrace.checkpoint import Checkpointer
port = observe.serve()
observe.describe_model(1e6, 1e12)
options = {"cache_dir": sys.argv[2], "cache_bytes": "64MiB"}
loader = headrace.open(sys.argv[1], storage_options=options).loader(batch_size=8)
for batch in loader:
    pass
with Checkpointer(sys.argv[3]) as saver:
    saver.save(1, {"weights": b"x" * 1000}, wait="local")
print(port, flush=True)
sys.stdin.read()
"""

# Beside this Python, where scripts/setup.sh puts them, or installed.
PLACES = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
PROMETHEUS, PROMTOOL = (shutil.which(name, path=PLACES) for name in ("prometheus", "promtool"))
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="needs the package 'prometheus'"
)
DEADLINE_S = 240


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process whose loader has given an epoch, with its port."""
    folder = tmp_path_factory.mktemp("exporter")
    (folder / "src").mkdir()
    (folder / "www").mkdir()
    for i in range(40):
        (folder / "src" / f"{i:03}.txt").write_text("x" * i)
    packed = folder / "www" / "texts.hr"
    subprocess.run([native_program(), "pack", folder / "src", packed, "--quiet"], check=True)
    environment = os.environ | {"HEADRACE_RUNTIME_DIR": str(folder / "run"), "HEADRACE_JOB": "t"}
    with web.running(folder / "www") as server:
        places = [f"{server.url}/texts.hr", str(folder / "cache"), str(folder / "store")]
        process = subprocess.Popen(
            [sys.executable, "-c", EXAMPLE, *places],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdin is not None
        port = process.stdout.readline().strip()
        assert port.isdigit()
        yield int(port)
        process.stdin.close()
        process.wait(timeout=DEADLINE_S)
        process.stdout.close()


@pytest.fixture(scope="module")
def prometheus(exporter: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that scrapes it, with its port. It has the alert rules, too."""
    folder = tmp_path_factory.mktemp("prometheus")
    port = local.free_ports(1)[0]
    config = folder / "prometheus.yml"
    config.write_text(
        f"rule_files: ['{RULES}']\n"
        "scrape_configs:\n"
        "- job_name: headrace\n"
        "  scrape_interval: 1s\n"
        "  static_configs:\n"
        f"  - targets: ['127.0.0.1:{exporter}']\n"
    )
    server = local.Daemon(
        "prometheus",
        [
            str(PROMETHEUS),
            f"--config.file={config}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
        ],
        folder / "log",
    )
    yield port
    server.stop(patience=10)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def ask(port: int, query: str) -> list[Any]:
    """What a query finds now; a query that Prometheus refuses is an error."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        answer = json.loads(get(url))
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it still starts
            raise
        raise AssertionError(f"{query}: {error.read().decode()}") from None
    assert answer["status"] == "success", (query, answer)
    found: list[Any] = answer["data"]["result"]
    return found


def wait_for(port: int, query: str) -> float:
    """The value of a query, as soon as there is one."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            found = ask(port, query)
            if found:
                return float(found[0]["value"][1])
        except OSError:  # it does not answer yet
            pass
        time.sleep(0.2)
    raise AssertionError(f"no value of {query} within {DEADLINE_S} s")


def promtool(*arguments: str | Path, text: str | None = None) -> str:
    """What the tool prints; it must find nothing wrong."""
    done = subprocess.run(
        [str(PROMTOOL), *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_finds_nothing_to_mend(exporter: int) -> None:
    metrics = get(f"http://127.0.0.1:{exporter}/metrics")
    assert promtool("check", "metrics", text=metrics) == ""


def test_prometheus_scrapes_it(prometheus: int) -> None:
    value = wait_for(prometheus, 'headrace_loop_batches_total{run="t",rank="0",job="headrace"}')
    assert value == 5
    quantile = "histogram_quantile(0.5, headrace_stage_item_seconds_bucket{stage='read'})"
    assert wait_for(prometheus, quantile) > 0


def board_queries() -> list[str]:
    """All expressions of the board, with Grafana's variables filled in."""
    panels = json.loads(BOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    values = {"$run": "t", "$rank": ".*", "$__rate_interval": "10m"}
    return [re.sub(r"\$\w+", lambda name: values[name[0]], query) for query in queries]


def test_every_query_of_the_board_is_answered(exporter: int, prometheus: int) -> None:
    exported = set(
        re.findall(r"^(headrace_\w+)", get(f"http://127.0.0.1:{exporter}/metrics"), re.MULTILINE)
    )
    # A rate needs two looks at all that is exported now.
    looks = "count_over_time(headrace_loop_batches_total[10m])"
    wait_for(prometheus, f"{looks} >= {wait_for(prometheus, looks) + 2}")
    queries = board_queries()
    answered = 0
    for query in queries:
        found = ask(prometheus, query)
        if set(re.findall(r"\bheadrace_\w+", query)) <= exported:
            assert found, query
            answered += 1
    # Left out are only what the machine does not count and what this job has none of.
    assert answered > len(queries) * 3 / 4, f"{answered} of {len(queries)}"


def test_the_board_has_every_metric_that_is_exported(exporter: int) -> None:
    text = " ".join(board_queries())
    metrics = get(f"http://127.0.0.1:{exporter}/metrics")
    for name in re.findall(r"^# TYPE (headrace_\w+)", metrics, re.MULTILINE):
        assert re.search(rf"\b{name}(_bucket)?\b", text), name


def test_the_choices_of_the_board_are_there(prometheus: int) -> None:
    wait_for(prometheus, "headrace_process_info")
    variables = json.loads(BOARD.read_text())["templating"]["list"]
    for one in variables:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"])
        if match is None:
            assert one["type"] == "datasource"
            continue
        query = match[1].replace("$run", "t")
        found = ask(prometheus, f"count by ({match[2]}) ({query})")
        assert [series["metric"] for series in found] == [
            {match[2]: {"run": "t", "rank": "0"}[match[2]]}
        ]


def test_alert_rules_are_sound(prometheus: int) -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)
    promtool("test", "rules", Path(__file__).parent / "alert_rules_test.yml")
    wait_for(prometheus, "up")
    groups = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/rules"))["data"]["groups"]
    loaded = [rule["name"] for group in groups for rule in group["rules"]]
    assert loaded == re.findall(r"alert: (\w+)", RULES.read_text())
