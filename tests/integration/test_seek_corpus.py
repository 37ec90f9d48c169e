"""Seek decoding against libjpeg-turbo over many files, through the program as a user runs it."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("program", Path(__file__).with_name("program.py"))
assert _spec and _spec.loader
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)
run = program.run

ROOT = Path(__file__).resolve().parents[2]
PHOTO = ROOT / "tests" / "compat" / "codec" / "photo.jpg"
PROGRESSIVE = "progressive"


def index_and_verify(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Index a folder of JPEGs with seek points; returns the reports of index and verify --pixels."""
    index, _ = run("index", folder, "--json")
    verify, _ = run("verify", "--pixels", folder, "--json")
    return json.loads(index), json.loads(verify)


def check(folder: Path, files: int, progressive: int) -> None:
    """Every baseline file has seek points, and no pixel differs."""
    index, verify = index_and_verify(folder)
    points = index["seek_points"]
    assert points["images"] == files
    assert points["with_points"] == files - progressive
    assert points["without"] == ({PROGRESSIVE: progressive} if progressive else {})
    pixels = verify["pixels"]
    assert (pixels["images"], pixels["compared"]) == (files, files - progressive)
    assert pixels["regions"] == 5 * (files - progressive)
    assert (pixels["different"], verify["ok"]) == (0, True)


def cut(folder: Path, count: int) -> int:
    """Cut `count` JPEGs of all sizes and settings out of a photograph; returns the progressive ones."""
    image_module = pytest.importorskip("PIL.Image")
    draw = random.Random(11)
    photo = image_module.open(PHOTO).convert("RGB").resize((900, 700))
    progressive = 0
    for number in range(count):
        width, height = draw.randint(1, 400), draw.randint(1, 300)
        left, top = draw.randint(0, 900 - width), draw.randint(0, 700 - height)
        piece = photo.crop((left, top, left + width, top + height))
        if draw.random() < 0.1:
            piece = piece.convert("L")
        options = {
            "quality": draw.randint(10, 100),
            "subsampling": draw.choice(["4:4:4", "4:2:2", "4:2:0"]),
            "optimize": draw.random() < 0.3,
            "progressive": draw.random() < 0.1,
        }
        if draw.random() < 0.2:
            options["restart_marker_blocks"] = draw.randint(1, 40)
        progressive += options["progressive"]
        piece.save(folder / f"{number:04d}.jpg", **options)
    return progressive


def test_some_hundred_files(tmp_path: Path) -> None:
    progressive = cut(tmp_path, 300)
    assert progressive > 0
    check(tmp_path, 300, progressive)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_thousands_of_photographs(tmp_path: Path) -> None:
    photos, count = tmp_path / "photos", 6000
    command = [sys.executable, str(ROOT / "examples" / "photos.py"), str(photos), str(count)]
    subprocess.run([*command, "--cache", str(tmp_path / "cache")], check=True)
    index, verify = index_and_verify(photos)
    points, pixels = index["seek_points"], verify["pixels"]
    baseline = count - points["without"].get(PROGRESSIVE, 0)
    assert points["with_points"] >= 0.98 * baseline
    assert pixels["compared"] == points["with_points"]
    assert (pixels["different"], verify["ok"]) == (0, True)
    # Progressive files become seekable without loss.
    packed = tmp_path / "packed"
    run("pack", "--jpeg=sequential", photos, packed)
    verified, _ = run("verify", "--pixels", packed, "--json")
    pixels = json.loads(verified)["pixels"]
    assert (pixels["compared"], pixels["different"]) == (count, 0)
    assert pixels["regions"] >= 30_000
