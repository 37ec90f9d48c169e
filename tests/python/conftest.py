"""Small real datasets for the Python tests, packed by the built program."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "servers"))

PROGRAM = [sys.executable, "-m", "headrace"]


def call_headrace(*arguments: str | os.PathLike[str], check: bool = True) -> str:
    """Run the program and return what it printed."""
    done = subprocess.run(
        [*PROGRAM, *map(os.fspath, arguments)], capture_output=True, text=True, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"headrace {arguments} gave {done.returncode}: {done.stderr}")
    return done.stdout


@pytest.fixture(scope="session")
def run_headrace() -> Callable[..., str]:
    """The program as a function of its arguments."""
    return call_headrace


def call_on_ranks(world: int, program: Path, *arguments: object) -> None:
    """Run a Python program on some ranks, as torchrun starts them."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", str(world), str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def run_on_ranks() -> Callable[..., None]:
    """call_on_ranks, for tests that import nothing of this file."""
    return call_on_ranks


def make_photo(rng: random.Random, width: int, height: int) -> Image.Image:
    """Return a picture with smooth parts and edges, different for each call."""
    image = Image.effect_noise((width, height), 40).convert("RGB")
    base = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    tint = Image.new("RGB", (width, height), tuple(rng.randrange(256) for _ in range(3)))
    return Image.blend(Image.blend(base, tint, 0.5), image, 0.2)


def jpeg_bytes(image: Image.Image, **settings: object) -> bytes:
    """Return the image as a JPEG file."""
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 92, **settings})
    return out.getvalue()


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 JPEGs in three classes."""
    root = tmp_path_factory.mktemp("photos")
    rng = random.Random(5)
    for i in range(60):
        folder = root / f"class{i % 3}"
        folder.mkdir(exist_ok=True)
        photo = make_photo(rng, rng.randrange(90, 200), rng.randrange(90, 200))
        (folder / f"{i:04}.jpg").write_bytes(jpeg_bytes(photo))
    return root


@pytest.fixture(scope="session")
def photos(photo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed form of photo_folder: several shards."""
    target = tmp_path_factory.mktemp("packed") / "photos.hr"
    call_headrace("pack", photo_folder, target, "--shard-samples", "13", "--quiet")
    return target


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed dataset of 400 small text samples: cls = number, txt = some bytes."""
    root = tmp_path_factory.mktemp("texts-source")
    for i in range(400):
        (root / f"{i:04}.cls").write_text(str(i))
        (root / f"{i:04}.txt").write_bytes(b"x" * (i % 37))
    target = tmp_path_factory.mktemp("packed") / "texts.hr"
    call_headrace("pack", root, target, "--shard-samples", "50", "--quiet")
    return target


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """A web server of an empty folder, ``server.root``: tests/servers/web.py."""
    import web

    root = tmp_path / "www"
    root.mkdir()
    with web.running(root) as server:
        yield server


@pytest.fixture
def served(server: Any, texts: Path) -> str:
    """The URL of ``texts``."""
    os.symlink(texts, server.root / "a set")
    return f"{server.url}/a%20set"
