"""Tests of the network works: goals and their direction, the search for a step, sums over readers."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "peers"))
sys.path.insert(0, str(Path(__file__).parent / "peers" / "dlio"))
import dlio
import dlio_runner
import harness
import network
import remote
import report
from harness import RunError, run_program

MACHINE = {"processor": "test", "cores": 2, "memory_gib": 8, "system": "none"}


def page_of(*runs: tuple[str, str, str, dict]) -> str:
    head = {"date": "2001-01-01", "commit": "abc", "machine": MACHINE, "repeats": 1, "quick": False}
    rows = [
        {"work": work, "contender": contender, "variant": variant, "result": result}
        for work, contender, variant, result in runs
    ]
    return report.render({**head, "left_out": [], "runs": rows})


def bucket_runs(cpu: float, rate: float) -> list[tuple[str, str, str, dict]]:
    return [
        ("w9", "Headrace", "", {"cpu_s_per_gb": cpu, "gb_per_s": rate}),
        ("w9", "MDS", "", {"cpu_s_per_gb": 3.0, "gb_per_s": 0.3}),
        ("w9", "libcurl", "4 MiB ranges", {"cpu_s_per_gb": 0.3, "gb_per_s": 1.0}),
        ("w9", "libcurl", "64 KiB ranges", {"cpu_s_per_gb": 0.9, "gb_per_s": 0.5}),
    ]


@pytest.mark.parametrize(("cpu", "rate", "words"), [(0.9, 0.9, "reached"), (1.1, 0.8, "missed")])
def test_a_bucket_is_held_against_each_peer_and_the_faster_libcurl(
    cpu: float, rate: float, words: str
) -> None:
    page = page_of(*bucket_runs(cpu, rate))
    assert f"CPU at most a third of MDS's: {words}" in page
    assert f"85 % of libcurl's throughput: {words}" in page
    assert f"| {3 / cpu:.2f} x | 30% |" in page
    assert "third of libcurl" not in page


def test_nodes_are_held_against_what_is_not_cached() -> None:
    names = [fleet.name for fleet in network.FLEETS]
    page = page_of(
        ("w11", "Headrace", names[0], {"first_origin": 1.03}),
        (
            "w11",
            "Headrace",
            names[2],
            {"first_origin": 1.03, "later_origin": 0.49, "later_bound": 0.5},
        ),
        (
            "w11",
            "Headrace",
            names[3],
            {"first_origin": 1.03, "later_origin": 0.02, "later_bound": 0.0},
        ),
    )
    assert "later at most 0.01: missed" in page
    assert f"{names[0]}: at most 1.02 at first: missed" in page
    assert f"{names[2]}: at most 1.1 at first: reached" in page
    assert "later at most 0.50: reached" in page


def test_a_step_is_held_against_the_reader_of_its_own_workload() -> None:
    steps = {"a: x": (100.0, 140.0), "b: y": (10.0, 30.0)}
    runs = []
    for variant, (ours, theirs) in steps.items():
        runs += [
            ("w12", dlio.DEVICE, variant, {"step_ms": ours * 0.96}),
            ("w12", "Headrace", variant, {"step_ms": ours, "of_device": 0.96}),
            ("w12", "DLIO's own reader", variant, {"step_ms": theirs}),
        ]
    page = page_of(*runs)
    assert "a: step 1.5 x shorter: missed" in page
    assert "b: step 1.5 x shorter: reached" in page
    assert "b: 95 % of the device: reached" in page
    assert "3.00 x" in page


class FakeTrials:
    """A loader that needs `period` seconds for a batch, beside the computing or before it."""

    def __init__(self, period: float, overlaps: bool) -> None:
        self.period, self.overlaps = period, overlaps
        self.tried: list[float] = []

    def au(self, step: float) -> float:
        self.tried.append(step)
        return step / (max(step, self.period) if self.overlaps else step + self.period)


@pytest.mark.parametrize("goal", [0.9, 0.7])
@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("period", [0.004, 2.0])
def test_the_shortest_step_is_found(goal: float, overlaps: bool, period: float) -> None:
    trials = FakeTrials(period, overlaps)
    step, au = dlio_runner.shortest_step(trials, goal)
    exact = goal * period if overlaps else goal / (1 - goal) * period
    assert au >= goal
    assert exact <= step * (1 + 1e-9)
    assert step <= exact * dlio_runner.PRECISION * 1.01
    assert len(trials.tried) <= dlio_runner.MOST_TRIALS


def test_a_step_that_is_never_held_is_an_error() -> None:
    trials = FakeTrials(1.0, False)
    trials.au = lambda step: trials.tried.append(step) or 0.1
    with pytest.raises(RuntimeError, match="held"):
        dlio_runner.shortest_step(trials, 0.9)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_array_of_an_npz_is_taken_where_it_lies(order: str) -> None:
    numpy = pytest.importorskip("numpy")
    from npz import npz_array

    array = numpy.asarray(numpy.arange(60).reshape(3, 4, 5), order=order, dtype=numpy.uint16)
    file = io.BytesIO()
    numpy.savez(file, y=[0, 1], x=array)
    assert (npz_array(file.getvalue(), "x") == array).all()
    file = io.BytesIO()
    numpy.savez_compressed(file, x=array)
    with pytest.raises(ValueError, match="compressed"):
        npz_array(file.getvalue(), "x")


def test_items_may_be_samples_or_lists_of_them() -> None:
    assert remote.count_items([b"123", [b"4", b"56"], memoryview(b"7")]) == (4, 7)


READER = """
import sys
sys.path.insert(0, sys.argv[1])
from protocol import emit, event
if sys.argv[2] == "fails":
    sys.exit(3)
for number in range(3):
    event("epoch")
emit({"result": {"name": sys.argv[2]}})
"""


def reader(name: str) -> list[str]:
    return [sys.executable, "-c", READER, str(Path(__file__).parent / "peers"), name]


def test_readers_wait_for_each_other_before_each_epoch() -> None:
    looks: list[int] = []
    results = network.run_together([reader("a"), reader("b")], {}, lambda: looks.append(1))
    assert [result["name"] for result in results] == ["a", "b"]
    assert len(looks) == 3


def test_a_reader_that_fails_ends_the_others() -> None:
    with pytest.raises(RunError, match="code 3"):
        network.run_together([reader("a"), reader("fails")], {}, lambda: None)


def program(text: str) -> list[str]:
    return [sys.executable, "-c", "import time\n" + text]


def test_a_program_that_hangs_is_named_with_what_it_said_last() -> None:
    hangs = program("""print('{"event": "epoch"}', flush=True); time.sleep(600)""")
    with pytest.raises(RunError, match=r'did not end within 2 s and was killed after "epoch"'):
        run_program(hangs, 2)


def test_a_result_counts_though_its_program_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "GRACE_S", 1)
    told = program("""print('{"result": {"n": 1}}', flush=True); time.sleep(600)""")
    assert run_program(told, 300)["n"] == 1


def test_a_child_that_keeps_the_output_open_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "GRACE_S", 1)
    leaves = program("""
import subprocess
subprocess.Popen(["sleep", "600"])
print('{"result": {"n": 2}}', flush=True)
""")
    assert run_program(leaves, 300)["n"] == 2


def test_readers_that_hang_are_ended_together() -> None:
    hangs = program("time.sleep(600)")
    with pytest.raises(RunError, match="did not end within"):
        network.run_together([reader("a"), hangs], {}, lambda: None, timeout_s=3)


def test_how_long_a_fleet_may_take_grows_with_what_it_reads() -> None:
    two, ranks = network.FLEETS[:2]
    assert network.longest_s(two, 10**9, 10**8) - network.START_S == pytest.approx(
        2 * (network.longest_s(ranks, 10**9, 10**8) - network.START_S)
    )
