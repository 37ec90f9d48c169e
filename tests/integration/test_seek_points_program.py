"""Seek points, lossless transcodes, pixel checks and thumbnails, as users call them.

The images are the golden ones of the codec; djpeg, where it is installed, tells their pixels.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("program", Path(__file__).with_name("program.py"))
assert _spec is not None and _spec.loader is not None
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)

run, run_json, fails = program.run, program.run_json, program.fails

IMAGES = Path(__file__).resolve().parent.parent / "compat" / "codec"
SEEKABLE = ["gray.jpg", "photo.jpg", "sampling_420.jpg", "sampling_422.jpg", "sampling_444.jpg"]
PROGRESSIVE = ["progressive.jpg", "gray_progressive.jpg"]
OTHERS = ["cmyk.jpg", "cmyk_without_adobe.jpg"]  # color_space


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, and of a file that only says that it is one."""
    root = tmp_path_factory.mktemp("images") / "source"
    (root / "a").mkdir(parents=True)
    for name in [*SEEKABLE, *PROGRESSIVE, *OTHERS, "gray.png"]:
        stem, _, ending = name.partition(".")
        field = "png" if ending == "png" else "jpg"
        shutil.copyfile(IMAGES / name, root / "a" / f"{stem}-{ending}.{field}")
    (root / "a" / "none.jpg").write_bytes(b"no image")
    return root


@pytest.fixture(scope="module")
def packed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, packed with seek points."""
    target = tmp_path_factory.mktemp("packed") / "set"
    run("pack", folder, target)
    return target


def pixels(jpeg: bytes) -> bytes:
    """Decode with djpeg."""
    program_path = shutil.which("djpeg")
    if program_path is None:
        pytest.skip("djpeg is not installed")
    return subprocess.run([program_path], input=jpeg, capture_output=True, check=True).stdout


def test_pack_and_index_report_the_same(folder: Path, tmp_path: Path) -> None:
    report = run_json("pack", folder, tmp_path / "set")["seek_points"]
    assert report["images"] == 9 and report["with_points"] == 5
    assert report["without"] == {"progressive": 2, "color_space": 2}
    assert 0 < report["record_bytes"] < report["image_bytes"]
    indexed = run_json("index", folder, "--output", tmp_path / "index")
    assert indexed["seek_points"] == report
    out, _ = run("index", folder, "--output", tmp_path / "again")
    assert b"seek points for 5 of 9 images" in out
    assert b"2 progressive" in out


def test_ls_tells_whether_there_are_seek_points(folder: Path, packed: Path, tmp_path: Path) -> None:
    assert run_json("ls", packed)["seek_points_bytes"] > 0
    assert b"seek points in 1 of 1 shards" in run("ls", packed)[0]
    run("pack", folder, tmp_path / "off", "--seek-points=off")
    listed = run_json("ls", tmp_path / "off")
    assert listed["seek_points_bytes"] == 0
    assert listed["version"] == run_json("ls", packed)["version"], "the order must stay"


def test_every_fourth_mcu_takes_more_room(folder: Path, packed: Path, tmp_path: Path) -> None:
    run("pack", folder, tmp_path / "four", "--seek-points=4")
    assert (
        run_json("ls", tmp_path / "four")["seek_points_bytes"]
        > run_json("ls", packed)["seek_points_bytes"]
    )
    fails("pack", folder, tmp_path / "x", "--seek-points=5", code=program.USAGE, words=["5"])


def test_verify_pixels_compares_what_has_seek_points(packed: Path) -> None:
    report = run_json("verify", packed, "--pixels")["pixels"]
    assert report["images"] == 9 and report["compared"] == 5 and report["different"] == 0
    assert report["regions"] == 5 * 5
    assert report["not_compared"] == {"progressive": 2, "color_space": 2}
    assert b"5 of 9 JPEGs compared" in run("verify", packed, "--pixels")[0]
    assert "pixels" not in run_json("verify", packed)


def test_sequential_makes_progressive_files_seekable(
    folder: Path, packed: Path, tmp_path: Path
) -> None:
    report = run_json("pack", folder, tmp_path / "set", "--jpeg=sequential")
    assert report["jpeg"]["rewritten"] == 2 and report["jpeg"]["unchanged"] == 7
    assert report["seek_points"]["without"] == {"color_space": 2}
    for name in PROGRESSIVE:
        key = "a/" + name.replace(".", "-")
        before = run("cat", packed, key, "jpg")[0]
        after = run("cat", tmp_path / "set", key, "jpg")[0]
        assert before == (IMAGES / name).read_bytes()
        assert before != after and pixels(before) == pixels(after)
    key = "a/photo-jpg"
    assert run("cat", packed, key, "jpg")[0] == run("cat", tmp_path / "set", key, "jpg")[0]


def test_optimize_makes_files_smaller(folder: Path, packed: Path, tmp_path: Path) -> None:
    report = run_json("pack", folder, tmp_path / "set", "--jpeg=optimize")["jpeg"]
    assert report["rewritten"] >= 3 and report["not_identical"] == 0
    before = run("cat", packed, "a/photo-jpg", "jpg")[0]
    after = run("cat", tmp_path / "set", "a/photo-jpg", "jpg")[0]
    assert len(after) < len(before) and pixels(before) == pixels(after)
    assert run_json("verify", tmp_path / "set", "--pixels")["pixels"]["different"] == 0


def test_thumbnail_of_a_region_is_that_of_djpeg(packed: Path) -> None:
    whole = pixels((IMAGES / "photo.jpg").read_bytes())
    head, body = whole[: whole.index(b"255\n") + 4], whole[whole.index(b"255\n") + 4 :]
    assert b"211 157" in head
    part, _ = run(
        "thumbnail", packed, "a/photo-jpg", "--region", "20,30,50,40", "--size=0", "--format=ppm"
    )
    rows = [body[(y * 211 + 20) * 3 : (y * 211 + 70) * 3] for y in range(30, 70)]
    assert part == b"P6\n50 40\n255\n" + b"".join(rows)


def test_thumbnail_writes_files_and_says_what(packed: Path, tmp_path: Path) -> None:
    for ending, magic in [("png", b"\x89PNG"), ("jpg", b"\xff\xd8\xff"), ("ppm", b"P6\n")]:
        file = tmp_path / f"x.{ending}"
        said = run_json("thumbnail", packed, "a/photo-jpg", "--size", 100, "-o", file)
        assert file.read_bytes().startswith(magic) and said["bytes"] == file.stat().st_size
        assert (said["width"], said["height"]) == (100, 74)
        assert said["image"] == {"width": 211, "height": 157}
        assert said["decode"] == "seek_points"
    assert run_json("thumbnail", packed, "a/gray-png", "-o", tmp_path / "g.png")["field"] == "png"
    assert run("thumbnail", packed, "--index", 0)[0].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["a/photo-jpg", "--region", "200,0,20,20"], program.USAGE, ["--region", "211 x 157"]),
        (["a/photo-jpg", "--region", "1,2,3"], program.USAGE, ["X,Y,WIDTH,HEIGHT"]),
        (["a/photo-jpg", "--region", "1,2,0,4"], program.USAGE, ["X,Y,WIDTH,HEIGHT"]),
        (["a/photo-jpg", "-o", "x.gif"], program.USAGE, ["x.gif", "--format"]),
        (["a/photo-jpg", "--json"], program.USAGE, ["--output"]),
        (["nobody"], program.BAD_DATA, ["nobody"]),
        (["a/none"], program.BAD_DATA, ["no image", "shard-000000.tar"]),
        (["a/none", "jpg"], program.BAD_DATA, ["not an image", "shard-000000.tar", "offset: "]),
        ([], program.USAGE, ["KEY"]),
    ],
)
def test_thumbnail_refuses(packed: Path, arguments: list[str], code: int, words: list[str]) -> None:
    fails("thumbnail", packed, *arguments, code=code, words=words)


def test_interrupted_index_leaves_nothing_and_the_one_before(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    photo = (IMAGES / "photo.jpg").read_bytes()
    for i in range(3000):
        (source / f"{i:05}.jpg").write_bytes(photo)
    run("index", source, "--seek-points=off")
    before = program.tree(source / ".headrace")
    process = program.start("index", source, "--threads", 1, faults="")
    program.interrupt_running(process)
    process.communicate(timeout=program.TIMEOUT_S)
    if process.returncode == program.OK:
        pytest.skip("the index was finished before the signal came")
    assert process.returncode == program.INTERRUPTED
    assert program.tree(source / ".headrace") == before
    assert run_json("ls", source)["samples"] == 3000
