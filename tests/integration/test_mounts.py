"""Data sets on CephFS and GlusterFS, in the place of a cluster's parallel file system.

Each is mounted twice, as on two nodes. Mounting needs root and /dev/fuse; what else is missing here the
skipped tests tell.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ceph
import fuse_mount
import glusterfs
import nodes
import program
import pytest

import headrace

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HEADRACE_BUILD", ROOT / "build"))
SUITE = BUILD / "src/headrace/object/shared_folder_test"
SYSTEMS = {"cephfs": ceph, "glusterfs": glusterfs}
PACK = ["--shard-samples", 9, "--quiet"]

run = program.run


@pytest.fixture(scope="module", params=SYSTEMS)
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[fuse_mount.SharedFileSystem]:
    """The servers of a file system."""
    kind: Any = SYSTEMS[request.param]
    if obstacle := kind.file_system_obstacle():
        pytest.skip(f"no {request.param} here: {obstacle}")
    with kind.file_system(tmp_path_factory.mktemp(request.param) / "servers") as running:
        yield running


@pytest.fixture(scope="module")
def mounts(system: fuse_mount.SharedFileSystem) -> Iterator[list[Path]]:
    """Its root, by the mounts of two nodes."""
    with system.mounted() as one, system.mounted() as other:
        yield [one.path, other.path]


@pytest.fixture
def places(mounts: list[Path], request: pytest.FixtureRequest) -> list[Path]:
    """A new folder in it, by both mounts."""
    name = request.node.name.replace("[", "-").rstrip("]")
    (mounts[0] / name).mkdir()
    return [mount / name for mount in mounts]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder on this machine's disk."""
    folder = tmp_path_factory.mktemp("source") / "photos"
    program.write_photos(folder)
    return folder


@pytest.fixture(scope="module")
def local(photos: Path) -> Path:
    """The same, packed on this machine's disk."""
    packed = photos.parent / "packed"
    run("pack", photos, packed, *PACK)
    return packed


def epoch_of(path: object) -> dict[str, Any]:
    """What an epoch of the set gives."""
    with headrace.open(str(path)).loader(batch_size=8, seed=1, tail="uneven", threads=2) as loader:
        return nodes.digest(list(loader))


def test_a_set_is_packed_on_one_node_and_read_on_another(
    places: list[Path], photos: Path, local: Path
) -> None:
    here, there = places
    run("pack", photos, here / "set", *PACK)
    assert program.tree(there / "set") == program.tree(local)
    assert b"no damage" in run("verify", there / "set")[0]
    for path in (here / "set", there / "set", f"file://{there}/set"):
        ds = headrace.open(str(path))
        assert ds.version == headrace.open(local).version
        assert list(ds) == list(headrace.open(local))
        assert epoch_of(path) == epoch_of(local)
    assert run("ls", "--samples", there / "set") == run("ls", "--samples", local)


def test_a_set_is_packed_from_it(
    places: list[Path], photos: Path, local: Path, tmp_path: Path
) -> None:
    here, there = places
    subprocess.run(["cp", "-r", photos, here / "photos"], check=True, timeout=program.TIMEOUT_S)
    run("pack", there / "photos", tmp_path / "set", *PACK)
    assert program.tree(tmp_path / "set") == program.tree(local)
    run("pack", local, there / "set", *PACK)
    assert program.read_tars(here / "set") == program.read_tars(local)


def test_tars_are_indexed_in_place(
    places: list[Path], photos: Path, local: Path, tmp_path: Path
) -> None:
    here, there = places
    for tar in local.glob("*.tar"):
        (here / tar.name).write_bytes(tar.read_bytes())
    run("index", there, "--quiet")
    assert b"no damage" in run("verify", here)[0]
    run("index", here, "--output", tmp_path / "index", "--quiet")
    for path in (here, there, tmp_path / "index"):
        assert list(headrace.open(path)) == list(headrace.open(local)), path


def test_two_nodes_do_not_pack_into_one_place(places: list[Path], photos: Path) -> None:
    here, there = places
    (here / "set").mkdir()
    pack = ("pack", photos, here / "set", "--shard-samples", 1, "--threads", 1)
    first = program.start(*pack, faults="pack.shard.write=stop")
    assert program.stopped(first)
    try:
        words = ["another pack", str(there / "set")]
        program.fails("pack", photos, there / "set", code=program.ENVIRONMENT, words=words)
    finally:
        program.go_on(first)
    _, errors = first.communicate(timeout=program.TIMEOUT_S)
    assert first.returncode == program.OK, errors
    assert b"no damage" in run("verify", there / "set")[0]


@pytest.mark.parametrize(
    "point",
    [
        "pack.shard.write@4",
        "pack.shard.before_record@3",
        "pack.publish.between_renames@2",
        "pack.publish.before_manifest@1",
    ],
)
def test_a_killed_pack_goes_on_elsewhere(
    places: list[Path], photos: Path, local: Path, point: str
) -> None:
    """On another node than the one that it was killed on."""
    here, there = places
    name, passage = point.split("@")
    run("pack", photos, here / "set", *PACK, code=-9, faults=f"{name}=kill@{passage}")
    assert not (there / "set" / "headrace.json").exists()
    run("pack", photos, there / "set", *PACK)
    assert program.tree(here / "set") == program.tree(local)


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_mount_that_goes_away_is_an_error_that_says_so(
    system: fuse_mount.SharedFileSystem, places: list[Path], tmp_path: Path, policy: str
) -> None:
    """In the middle of an epoch; its process neither hangs nor dies."""
    program.write_tar(tmp_path / "large.tar", {b"%d.bin" % n: bytes(1 << 20) for n in range(24)})
    run("pack", tmp_path / "large.tar", places[0] / "set", "--shard-samples", 1, "--quiet")
    loader = {"batch_size": 2, "on_error": policy, "max_bad_samples": 5, "memory_bytes": "8MiB"}
    with system.mounted() as mount:
        path = mount.path / places[0].name / "set"
        with nodes.Node(path, loader=loader) as node:
            assert node.ask("batches 2")["rows"] == 4
            mount.break_off()
            node.tell("batches 0")
            answer = node.answer()
            assert "error" in answer, answer
            if policy == "skip":
                assert answer["error"] == "BudgetError"
                assert "bad samples" in answer["message"]
            else:
                assert answer["error"] == "HeadraceError"
                assert "shard-" in answer["message"], answer
            assert node.finish() == ""


def run_suite(places: list[Path], *arguments: str) -> None:
    """Run the C++ tests in a folder, by both mounts."""
    folders = ":".join(map(str, places))
    done = subprocess.run(
        [SUITE, *arguments],
        env=os.environ | {"HEADRACE_TEST_FOLDERS": folders},
        capture_output=True,
        text=True,
        check=False,
        timeout=program.TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "NoSwapOfTwoProcessesIsLost" in done.stdout


@pytest.mark.timeout(1600)  # thousands of round trips, each slow where the processors are busy
def test_the_driver_and_pointers_pass_their_suites(places: list[Path]) -> None:
    """Objects, and pointers by lock file and rename, which two processes on two mounts swap."""
    run_suite(places)


def test_no_swap_is_lost_where_mounts_remember_names(tmp_path: Path) -> None:
    """As they do by default: what a node sees may have been replaced a moment ago."""
    if obstacle := glusterfs.file_system_obstacle():
        pytest.skip(f"no GlusterFS here: {obstacle}")
    with glusterfs.file_system(tmp_path / "servers", remember_seconds=1) as running:
        with running.mounted() as one, running.mounted() as other:
            run_suite([one.path, other.path], "--gtest_filter=*NoSwapOfTwoProcessesIsLost")
