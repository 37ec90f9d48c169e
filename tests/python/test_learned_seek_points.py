"""Seek points of datasets used in place: the first epoch makes them, everything after finds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest

import headrace
from headrace import transforms as T

PHOTOS = 60


@pytest.fixture
def cached(tmp_path: Path) -> dict[str, str]:
    """Storage options with a cache of this test."""
    return {"cache_dir": str(tmp_path / "cache"), "cache_bytes": "64MiB"}


def epochs(
    folder: Path | str, storage: dict[str, str] | None, count: int = 1, seed: int = 1
) -> tuple[list[bytes], dict[str, Any]]:
    """Load some epochs; return the pixels of each batch, and what the loader counted."""
    dataset = headrace.open(str(folder), storage_options=storage)
    pixels = []
    with dataset.loader(
        batch_size=PHOTOS,
        transforms={"jpg": T.imagenet_train(48, dtype="uint8")},
        fields=["jpg"],
        seed=seed,
        threads=2,
        memory_bytes="64MiB",
        output="numpy",
    ) as loader:
        for _ in range(count):
            pixels += [np.ascontiguousarray(batch["jpg"]).tobytes() for batch in loader]
        loader.close()
        return pixels, loader.stats()


def test_the_first_epoch_adds_them_and_later_ones_use_them(
    photo_folder: Path, cached: dict[str, str]
) -> None:
    expected, plain = epochs(photo_folder, None, 3)
    assert plain["seek_points"] == {"used": 0, "added": 0, "build_seconds": 0.0}
    assert set(plain["decode"]) == {"no_record"}
    found, stats = epochs(photo_folder, cached, 3)
    assert found == expected
    assert set(stats["decode"]) == {"seek_points"}
    learned = stats["seek_points"]
    # Two threads may meet the same photo in two epochs at once and build it twice.
    assert PHOTOS <= learned["added"] <= 2 * PHOTOS
    assert learned["used"] + learned["added"] == stats["decode"]["seek_points"]
    assert learned["build_seconds"] > 0
    found, stats = epochs(photo_folder, cached, 3)
    assert found == expected
    assert stats["seek_points"]["added"] == 0
    assert stats["seek_points"]["used"] == stats["decode"]["seek_points"] >= 3 * PHOTOS


def test_they_can_be_turned_off(photo_folder: Path, cached: dict[str, str]) -> None:
    _, stats = epochs(photo_folder, cached | {"cache_seek_points": "false"})
    assert set(stats["decode"]) == {"no_record"}
    assert not Path(cached["cache_dir"]).exists()


def load_elsewhere(folder: Path, storage: dict[str, str], seed: int, answers: Any) -> None:
    """Load an epoch in this process, and send home what was counted."""
    answers.put(epochs(folder, storage, 2, seed)[1]["seek_points"])


def test_processes_share_them(photo_folder: Path, cached: dict[str, str]) -> None:
    each = [(photo_folder, cached, seed) for seed in range(2)]
    for used in children.answers_of("spawn", load_elsewhere, each):
        assert used["used"] > 0
    expected, _ = epochs(photo_folder, None, seed=9)
    found, stats = epochs(photo_folder, cached, seed=9)
    assert found == expected
    assert stats["seek_points"]["added"] == 0


def test_damaged_side_files_never_change_a_pixel(
    photo_folder: Path, cached: dict[str, str]
) -> None:
    expected, _ = epochs(photo_folder, None)
    epochs(photo_folder, cached)
    side = Path(cached["cache_dir"], "side")
    rng = np.random.default_rng(4)
    for suffix in ("records", "table"):
        (path,) = side.glob(f"*.{suffix}")
        data = np.frombuffer(path.read_bytes(), np.uint8).copy()
        places = rng.integers(0, len(data), 200)
        data[places] ^= rng.integers(1, 255, 200).astype(np.uint8)
        path.write_bytes(data.tobytes())
        found, stats = epochs(photo_folder, cached)
        assert found == expected
        assert "record_foreign" not in stats["decode"]
    (path,) = side.glob("*.records")
    path.write_bytes(b"")
    assert epochs(photo_folder, cached)[0] == expected


def test_the_cache_command_shows_and_clears_them(
    photo_folder: Path, cached: dict[str, str], run_headrace: Callable[..., str]
) -> None:
    epochs(photo_folder, cached)
    stat = json.loads(run_headrace("cache", "stat", "--json", "--cache-dir", cached["cache_dir"]))
    assert stat["side_files"] == 1
    assert 0 < stat["side_bytes"] == stat["used_bytes"]
    said = run_headrace("cache", "stat", "--cache-dir", cached["cache_dir"])
    assert "learned about 1 fields" in said
    run_headrace("cache", "clear", "--cache-dir", cached["cache_dir"])
    stat = json.loads(run_headrace("cache", "stat", "--json", "--cache-dir", cached["cache_dir"]))
    assert stat["side_files"] == stat["used_bytes"] == 0
    assert epochs(photo_folder, cached)[1]["seek_points"]["added"] > 0


def test_regions_use_them(photo_folder: Path, cached: dict[str, str]) -> None:
    plain = headrace.open(str(photo_folder))
    region = (10, 12, 40, 30)
    for _ in range(2):
        dataset = headrace.open(str(photo_folder), storage_options=cached)
        for i in range(5):
            one = dataset.read(i, "jpg", region=region).numpy()
            other = plain.read(i, "jpg", region=region).numpy()
            np.testing.assert_array_equal(one, other)
    assert list(Path(cached["cache_dir"], "side").glob("*.records"))


def test_a_folder_that_is_no_cache_is_told_once_and_done_without(
    photo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("something else")
    expected, _ = epochs(photo_folder, None)
    found, stats = epochs(photo_folder, {"cache_dir": str(tmp_path)})
    assert found == expected
    assert set(stats["decode"]) == {"no_record"}
    assert capfd.readouterr().err.count("going on without the cache") == 1
