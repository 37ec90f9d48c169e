"""Real faults in real jobs: the doctor names each from the job's record, and no other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import injected_faults
import pytest
from injected_faults import Place

# What another process on this machine can bring about while a test runs: a low frequency, and
# decodes that are held up now and then.
OF_THE_MACHINE = {"clock", "slow-samples"}
CHECKS = (
    "throttled",
    "network-full",
    "small-cache",
    "slow-node",
    "small-files",
    "decode-bound",
    "slow-samples",
    "too-many-threads",
    "python-transform",
    "save-stutter",
    "few-shards",
    "sliver",
    "page-cache-luck",
)
RUNS = 3  # each twice as long: the doctor sees what else runs on this machine, and is right to
PAIRS = (("python-transform", "throttled"), ("few-shards", "save-stutter"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with injected_faults.prepared(tmp_path_factory.mktemp("faults")) as place:
        yield place


def names(diagnosis: dict[str, Any], *wanted: str) -> list[str]:
    """The findings, without those that only the machine can be blamed for."""
    assert diagnosis["has_samples"], diagnosis
    found = [one["check"] for one in diagnosis["findings"]]
    return sorted(name for name in found if name in wanted or name not in OF_THE_MACHINE)


def diagnosed(
    run: Callable[[Path, float], dict[str, Any]], folder: Path, expected: list[str], *wanted: str
) -> dict[str, Any]:
    """Return the diagnosis of the first run with the expected findings."""
    for attempt in range(RUNS):
        diagnosis = run(folder / str(attempt), 2.0**attempt)
        if names(diagnosis, *wanted) == expected:
            break
    assert names(diagnosis, *wanted) == expected, diagnosis
    return diagnosis


@pytest.mark.parametrize("check", CHECKS)
def test_the_fault_is_named_and_no_other(check: str, place: Place, tmp_path: Path) -> None:
    faults = {fault.check: fault for fault in injected_faults.all_faults(place)}
    assert tuple(faults) == CHECKS
    if check == "page-cache-luck" and not Path("/proc/self/io").exists():
        pytest.skip("this kernel does not count what is read from disks")

    def run(folder: Path, longer: float) -> dict[str, Any]:
        return injected_faults.diagnose(faults[check], folder, longer)

    diagnosis = diagnosed(run, tmp_path, [check], check)
    finding = next(one for one in diagnosis["findings"] if one["check"] == check)
    assert finding["evidence"], finding
    assert finding["cure"], finding
    assert finding["disproof"], finding
    assert 0 < finding["confidence"] < 1


@pytest.mark.parametrize("pair", PAIRS)
def test_two_faults_at_once_are_both_named(
    pair: tuple[str, str], place: Place, tmp_path: Path
) -> None:
    jobs = injected_faults.two_at_once(place)
    assert tuple(jobs) == PAIRS

    def run(folder: Path, longer: float) -> dict[str, Any]:
        return injected_faults.doctor(injected_faults.run_jobs((jobs[pair],), folder, longer))

    diagnosed(run, tmp_path, list(pair))


def test_a_healthy_job_has_no_finding(place: Place, tmp_path: Path) -> None:
    def run(folder: Path, longer: float) -> dict[str, Any]:
        job = injected_faults.healthy(place)
        return injected_faults.doctor(injected_faults.run_jobs((job,), folder, longer))

    diagnosed(run, tmp_path, [])
