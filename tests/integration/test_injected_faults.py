"""Real faults in real jobs: the doctor names each from the job's record, and no other one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import injected_faults
import pytest
from injected_faults import Place

# What another process on this machine can bring about while a test runs: a low frequency, and
# decodes that are held up now and then.
OF_THE_MACHINE = {"clock", "slow-samples"}
CHECKS = (
    "throttled",
    "slow-node",
    "decode-bound",
    "too-many-threads",
    "save-stutter",
    "small-files",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with injected_faults.prepared(tmp_path_factory.mktemp("faults")) as place:
        yield place


def problems(record: Path, *arguments: str) -> list[str]:
    """What the doctor calls a problem of the job, the worst first."""
    found = injected_faults.doctor(record, *arguments)
    assert found["has_samples"], found
    names = [one["check"] for one in found["findings"] if one["severity"] == "problem"]
    return [name for name in names if name not in OF_THE_MACHINE]


@pytest.mark.parametrize("check", CHECKS)
def test_the_fault_is_named_and_no_other(check: str, place: Place, tmp_path: Path) -> None:
    faults = {fault.check: fault for fault in injected_faults.all_faults(place)}
    assert tuple(faults) == CHECKS
    record = injected_faults.run_jobs(faults[check].jobs, tmp_path)
    assert problems(record, *faults[check].doctor) == [check]


def test_a_healthy_job_has_no_finding(place: Place, tmp_path: Path) -> None:
    record = injected_faults.run_jobs((injected_faults.healthy(place),), tmp_path)
    assert problems(record) == []
