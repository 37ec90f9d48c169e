"""The written order, three ways: the frozen files, the plain Python of order_reference.py, and the
built program. All must give one stream."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = sorted((ROOT / "tests/compat/order").glob("*.json"))

_spec = importlib.util.spec_from_file_location(
    "order_reference", Path(__file__).with_name("order_reference.py")
)
assert _spec is not None and _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def test_there_are_golden_files_for_every_case() -> None:
    assert {path.stem for path in GOLDEN} == set(reference.golden_cases())


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_reference_repeats_the_frozen_values(path: Path) -> None:
    case = reference.golden_cases()[path.stem]
    assert path.read_text() == reference.dump(reference.golden(case))


def test_every_stream_is_a_permutation() -> None:
    for path in GOLDEN:
        golden = json.loads(path.read_text())
        assert sorted(golden["stream"]) == list(range(sum(golden["shards"]))), path.stem


def test_ranks_share_each_global_batch_for_every_world() -> None:
    for tail in ("drop", "pad", "uneven"):
        whole = reference.rank_batches(103, 12, tail, 1, 0)
        for world in range(1, 13):
            ranks = [reference.rank_batches(103, 12, tail, world, rank) for rank in range(world)]
            for i, batch in enumerate(whole):
                rows = [row for own in ranks if i < len(own) for row in own[i]]
                assert sorted(rows) == sorted(batch), (tail, world, i)
