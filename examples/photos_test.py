"""Tests of photos.py on photographs made here, so that no package is needed."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path

import pytest

Image = pytest.importorskip("PIL.Image")

sys.path.insert(0, str(Path(__file__).parent))
import photos  # noqa: E402


def make_photograph(path: Path, seed: int, size: tuple[int, int] = (1200, 950)) -> None:
    """A picture as full of detail as a photograph."""
    small = random.Random(seed).randbytes(75 * 60 * 3)
    picture = Image.frombytes("RGB", (75, 60), small).resize(size, Image.BICUBIC)
    grain = Image.frombytes("L", (400, 300), random.Random(-seed).randbytes(400 * 300)).resize(size)
    Image.blend(picture, grain.convert("RGB"), 0.2).save(path, quality=90)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    make_photograph(folder / "Red Barn.jpg", 1)
    make_photograph(folder / "sea.jpg", 2)
    make_photograph(folder / "too-small.jpg", 3, (640, 480))
    Image.new("RGB", (1600, 1200), "navy").save(folder / "plain.jpg")
    (folder / "broken.jpg").write_bytes(b"not an image")
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.jpg"))
    }


def test_labels_are_the_photographs_and_all_pieces_are_there(source: Path, tmp_path: Path) -> None:
    made = photos.make(tmp_path / "out", 9, source=source, jobs=2)
    assert made["labels"] == ["red-barn", "sea"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == made["labels"]
    sizes = {Image.open(path).size for path in (tmp_path / "out").rglob("*.jpg")}
    assert sizes <= {(width, height) for width, height, _ in photos.SHAPES}
    assert len(digests(tmp_path / "out")) == 9


def test_the_same_seed_gives_the_same_bytes_whatever_the_jobs(source: Path, tmp_path: Path) -> None:
    photos.make(tmp_path / "a", 8, seed=5, source=source, jobs=1)
    photos.make(tmp_path / "b", 8, seed=5, source=source, jobs=2)
    photos.make(tmp_path / "c", 8, seed=6, source=source, jobs=2)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(tmp_path / "a") != digests(tmp_path / "c")


def test_a_finished_set_is_left_alone_and_another_count_makes_it_anew(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    photos.make(out, 4, source=source, jobs=1)
    mark = out / "sea" / "mark.txt"
    mark.touch()
    photos.make(out, 4, source=source, jobs=1)
    assert mark.exists()
    photos.make(out, 6, source=source, jobs=1)
    assert not mark.exists()
    assert json.loads((tmp_path / "out.json").read_text())["count"] == 6


def test_too_few_photographs_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(photos.PhotosError, match=r"found 0.*--source FOLDER"):
        photos.make(tmp_path / "out", 4, source=tmp_path / "empty")
    assert not (tmp_path / "out").exists()
