"""Tests of the timing's cost: what is read from callgrind's files, and what counts as timing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import timing_cost

PROFILE = """version: 1
events: Ir
fl=(1) loader_workers.cc
fn=(1) headrace::loader::LoaderImpl::Run(headrace::loader::LoaderImpl::Worker*)
10 1000
cfn=(2) std::chrono::_V2::steady_clock::now()
calls=5 0
+1 100
cfn=(3) headrace::StageRecorder::Busy(headrace::Stage, unsigned long)
calls=4 0
* 200
cfn=(4) decode
calls=1 7
* 5000

fn=(2)
20 60
cfn=(5) clock_gettime
calls=5 0
* 40

fn=(5)
30 40

fn=(3)
40 160
cfn=(2)
calls=1 0
-2 40

fn=(4)
50 5000
"""


def test_calls_from_outside_are_counted_with_all_below_them() -> None:
    profile = timing_cost.read_profile(PROFILE.splitlines(True))
    assert profile.total == 1000 + 60 + 40 + 160 + 5000
    found = timing_cost.timing_share(profile)
    assert found["clock_readings"] == 6
    unseen = 6 * timing_cost.FAST_PATH + 9 * timing_cost.INLINED
    assert found["timing_instructions"] == 100 + 200 + unseen
    assert found["instructions"] == 6260 + 6 * timing_cost.FAST_PATH
    assert found["share"] == pytest.approx((300 + unseen) / (6260 + 6 * timing_cost.FAST_PATH))


def test_a_profile_of_something_else_is_refused() -> None:
    profile = timing_cost.read_profile(["fn=(1) main\n", "1 500\n"])
    with pytest.raises(RuntimeError, match="no reading of the clock"):
        timing_cost.timing_share(profile)
