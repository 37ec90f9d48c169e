"""``headrace pack`` as users run it: what it writes, and what is left when it is stopped or fails."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("program", Path(__file__).with_name("program.py"))
assert _spec is not None and _spec.loader is not None
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)

run, fails, tree = program.run, program.fails, program.tree


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("photos")
    return folder, program.write_photos(folder)


@pytest.fixture(scope="module")
def packed(
    photos: tuple[Path, dict[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """The files of an undisturbed pack with the options that these tests use."""
    target = tmp_path_factory.mktemp("packed") / "set"
    pack(photos[0], target)
    return tree(target)


def pack(source: object, target: Path, *more: object, **options: object) -> str:
    return run("pack", source, target, "--shard-samples", 9, *more, **options)[1]


def test_python_and_gnu_tar_read_what_was_packed(
    photos: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source, members = photos
    target = tmp_path / "set"
    pack(source, target)
    assert program.read_tars(target) == members
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    for shard in sorted(target.glob("*.tar")):
        done = subprocess.run(
            ["tar", "xf", shard, "-C", unpacked], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", "GNU tar has nothing to complain about"
    assert tree(unpacked) == members


def test_headers_are_one_block_for_each_member(
    photos: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source, members = photos
    run("pack", source, tmp_path / "set")
    size = (tmp_path / "set" / "shard-000000.tar").stat().st_size
    assert size == 1024 + sum(512 + (len(data) + 511) // 512 * 512 for data in members.values())


def test_cat_gives_each_field_back(photos: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    source, members = photos
    pack(source, tmp_path / "set")
    for name in ["class0/000.jpg", "class3/014.jpg", "class2/005.cls"]:
        key, field = name.split(".")
        assert run("cat", tmp_path / "set", key, field)[0] == members[name]
    assert run("cat", tmp_path / "set", "--index", 59, "cls")[0] == b"3"
    fails("cat", tmp_path / "set", "class9/1", "jpg", code=program.BAD_DATA, words=["class9/1"])
    fails("cat", tmp_path / "set", "class0/000", "gif", code=program.BAD_DATA, words=["jpg"])
    fails("cat", tmp_path / "set", "class0/000", code=program.USAGE, words=["which field"])
    fails("cat", tmp_path / "set", "--index", 60, "cls", code=program.BAD_DATA, words=["60"])


@pytest.mark.parametrize("threads", [1, 2, 5, 32])
def test_bytes_do_not_depend_on_threads(
    photos: tuple[Path, dict[str, bytes]], packed: dict[str, bytes], tmp_path: Path, threads: int
) -> None:
    pack(photos[0], tmp_path / "set", "--threads", threads)
    assert tree(tmp_path / "set") == packed


POINTS = [
    "pack.shard.sample@1",
    "pack.shard.sample@30",
    "pack.shard.write@1",
    "pack.shard.write@4",
    "pack.shard.before_sync@3",
    "pack.shard.before_index@2",
    "pack.shard.before_record@1",
    "pack.shard.before_record@5",
    "env.write_atomically.before_sync@1",
    "env.write_atomically.before_rename@3",
    "pack.publish.begin@1",
    "pack.publish.between_renames@1",
    "pack.publish.between_renames@4",
    "pack.publish.before_manifest@1",
    "env.write_atomically.before_rename@9",
    "env.write_atomically.before_directory_sync@9",
    "pack.publish.after_manifest@1",
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_pack_goes_on_to_the_same_bytes(
    photos: tuple[Path, dict[str, bytes]],
    packed: dict[str, bytes],
    tmp_path: Path,
    point: str,
    threads: int,
) -> None:
    target = tmp_path / "set"
    name, passage = point.split("@")
    pack(photos[0], target, "--threads", threads, code=-9, faults=f"{name}=kill@{passage}")
    manifest = target / "headrace.json"
    if manifest.exists():
        assert json.loads(manifest.read_bytes()) == json.loads(packed["headrace.json"])
        run("verify", target)
    pack(photos[0], target)
    assert tree(target) == packed


def test_pack_killed_again_and_again_ends(
    photos: tuple[Path, dict[str, bytes]], packed: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "set"
    for passage in [2, 1, 3, 1]:
        pack(photos[0], target, code=-9, faults=f"pack.shard.before_record=kill@{passage}")
    report = program.run_json("pack", photos[0], target, "--shard-samples", 9)
    assert tree(target) == packed
    assert report["shards"] == 7


@pytest.mark.parametrize("point", ["pack.shard.before_sync", "pack.publish.before_manifest"])
def test_killed_overwrite_leaves_the_version_before(
    photos: tuple[Path, dict[str, bytes]], tmp_path: Path, point: str
) -> None:
    other = tmp_path / "other"
    old = program.write_photos(other, classes=1, per_class=3)
    target = tmp_path / "set"
    pack(other, target)
    pack(photos[0], target, "--overwrite", code=-9, faults=f"{point}=kill@1")
    run("verify", target)
    assert run("cat", target, "class0/000", "jpg")[0] == old["class0/000.jpg"]
    assert b"3 samples" not in run("ls", target)[0]
    assert program.run_json("ls", target)["samples"] == 3
    pack(photos[0], target, "--overwrite")
    assert program.read_tars(target) == photos[1], "and no tar of the old version is left"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_pack_says_so_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    source, target = tmp_path / "source", tmp_path / "set"
    program.write_photos(source, classes=2, per_class=60)
    options = ["--shard-samples", 1, "--threads", 1]
    fault = "pack.shard.before_record=stop@5"
    process = program.start("pack", source, target, *options, faults=fault)
    program.interrupt(process, number)
    _, err = process.communicate(timeout=program.TIMEOUT_S)
    assert process.returncode == program.INTERRUPTED
    assert b"same command goes on" in err
    assert not (target / "headrace.json").exists()
    fails("ls", target, code=program.BAD_DATA, words=[str(target), "not finished"])
    staged = sorted(path.name for path in (target / ".headrace-pack").iterdir())
    done = {name.removesuffix(".done") for name in staged if name.endswith(".done")}
    tars = {name for name in staged if name.endswith(".tar")}
    assert tars == done, "no half-written shard is left"
    report = program.run_json("pack", source, target, *options)
    assert report["reused_shards"] == len(done) >= 4
    run("verify", target)


def test_two_packs_at_once(photos: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    target = tmp_path / "set"
    target.mkdir()
    # The first one holds the lock, stopped in the middle of its work.
    pack = ("pack", photos[0], target, "--shard-samples", 1, "--threads", 1)
    first = program.start(*pack, faults="pack.shard.write=stop")
    assert program.stopped(first)
    try:
        fails(
            "pack", photos[0], target, code=program.ENVIRONMENT, words=["another pack", str(target)]
        )
    finally:
        program.go_on(first)
    first.communicate(timeout=program.TIMEOUT_S)
    assert first.returncode == program.OK
    assert program.read_tars(target) == photos[1]


def test_existing_dataset_and_foreign_files_are_refused(
    photos: tuple[Path, dict[str, bytes]], packed: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "set"
    pack(photos[0], target)
    fails("pack", photos[0], target, code=program.USAGE, words=["--overwrite"])
    assert tree(target) == packed
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    fails("pack", photos[0], foreign, "--overwrite", code=program.USAGE, words=["notes.txt"])
    assert tree(foreign) == {"notes.txt": b"mine"}
    fails("pack", photos[0], foreign / "notes.txt", code=program.USAGE, words=["is a file"])
    fails("pack", photos[0], photos[0] / "in", code=program.USAGE, words=["lies in the source"])


def test_shuffle_mixes_classes(photos: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    pack(photos[0], tmp_path / "one", "--shuffle", 1)
    pack(photos[0], tmp_path / "again", "--shuffle", 1)
    pack(photos[0], tmp_path / "two", "--shuffle", 2)
    assert tree(tmp_path / "one") == tree(tmp_path / "again") != tree(tmp_path / "two")
    assert program.read_tars(tmp_path / "one") == photos[1]
    first = json.loads(run("ls", tmp_path / "one", "--samples", "--limit", 9, "--json")[0])
    assert len({sample["key"].split("/")[0] for sample in first}) > 1


def as_nobody() -> None:
    """Give up root's rights in a child process: root reads every file."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may write to, under parents that any user may pass."""
    with tempfile.TemporaryDirectory(prefix="headrace-test-", dir="/tmp") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_unreadable_file_is_named_or_skipped(open_folder: Path, native: str) -> None:
    source = open_folder / "source"
    members = program.write_photos(source, classes=1, per_class=3)
    (source / "class0" / "001.jpg").chmod(0)
    command = [native, "pack", str(source), str(open_folder / "set")]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=as_nobody)
    assert done.returncode == program.ENVIRONMENT, done.stderr
    assert "001.jpg" in done.stderr and "ermission" in done.stderr
    assert not (open_folder / "set").exists()
    command += ["--on-error", "skip", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=as_nobody)
    assert done.returncode == program.OK, done.stderr
    assert [skip["key"] for skip in json.loads(done.stdout)["skipped"]] == ["class0/001"]
    del members["class0/001.jpg"], members["class0/001.cls"]
    assert program.read_tars(open_folder / "set") == members


@pytest.fixture(scope="module")
def native() -> Iterator[str]:
    """The native program in a place that any user may execute."""
    built = os.environ.get("HEADRACE_PROGRAM")
    if not built:
        spec = importlib.util.find_spec("headrace")
        assert spec is not None and spec.origin is not None
        built = str(Path(spec.origin).parent / "bin" / "headrace")
    with tempfile.TemporaryDirectory(prefix="headrace-program-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        copy = shutil.copy(built, name)
        os.chmod(copy, 0o755)
        yield str(copy)


def test_source_that_is_not_there_or_empty(tmp_path: Path) -> None:
    target = tmp_path / "set"
    fails("pack", tmp_path / "no", target, code=program.BAD_DATA, words=[str(tmp_path / "no")])
    (tmp_path / "empty").mkdir()
    fails("pack", tmp_path / "empty", target, code=program.USAGE, words=["no sample"])
    (tmp_path / "junk.tar").write_bytes(b"not a tar" * 1000)
    fails("pack", tmp_path / "junk.tar", target, code=program.BAD_DATA, words=["junk.tar"])
    assert not target.exists()


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    program.write_photos(source, classes=1, per_class=2)
    (source / "class0" / "folder.jpg").mkdir()
    (source / "class0" / "folder.jpg" / "x.jpg").write_bytes(b"x")
    pack(source, tmp_path / "set")
    assert program.read_tars(tmp_path / "set")["class0/folder.jpg/x.jpg"] == b"x"
    listed = tmp_path / "list.jsonl"
    listed.write_text(json.dumps({"path": "source/class0"}) + "\n")
    _, err = run("pack", listed, tmp_path / "two", code=program.USAGE)
    assert "class0" in err
    assert not (tmp_path / "two").exists()


def test_odd_keys_of_a_tar_survive(tmp_path: Path) -> None:
    names = [b"new\nline", b"inv\xffalid", b"../up/x", b"k" * 4000, "schön/é".encode()]
    members = {name + b".txt": name for name in names}
    program.write_tar(tmp_path / "odd.tar", members)
    run("pack", tmp_path / "odd.tar", tmp_path / "set")
    found = program.read_tars(tmp_path / "set")
    assert {
        name.encode("utf-8", "surrogateescape"): data for name, data in found.items()
    } == members
    for name in names:
        assert run("cat", tmp_path / "set", name, "txt")[0] == name
    listing = run("ls", "--samples", tmp_path / "set")[0].splitlines()
    assert len(listing) == len(names), "one line a sample, whatever is in its key"
    assert rb"new\nline" in listing[0] and rb"inv\xffalid" in listing[1]
    assert run("cat", tmp_path / "set", r"new\nline", "txt")[0] == b"new\nline"
    run("verify", tmp_path / "set")


def test_every_kind_of_source_gives_the_same_samples(
    photos: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source, members = photos
    run("index", source, "--output", tmp_path / "in-place")
    pack(source, tmp_path / "one")
    rows = [
        {
            "path": str(path.relative_to(source)),
            "cls": path.parent.name[-1],
            "key": str(path.relative_to(source))[:-4],
        }
        for path in sorted(source.rglob("*.jpg"))
    ]
    listed = tmp_path / "source.jsonl"
    (tmp_path / "photos").symlink_to(source)
    for row in rows:
        row["jpg_path"] = "photos/" + row.pop("path")
    listed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = subprocess.run(
        ["tar", "cf", tmp_path / "plain.tar", "-C", source, "."], capture_output=True, check=False
    )
    assert plain.returncode == 0
    sources = [
        tmp_path / "in-place",
        tmp_path / "one",
        tmp_path / "one" / "shard-000000.tar",
        listed,
    ]
    for number, other in enumerate(sources):
        run("pack", other, tmp_path / f"packed-{number}")
        found = program.read_tars(tmp_path / f"packed-{number}")
        if other.suffix == ".tar":
            assert 0 < len(found) < len(members) and found.items() <= members.items()
        else:
            assert found == members, other
    run("pack", *sorted((tmp_path / "one").glob("*.tar")), tmp_path / "joined")
    assert program.read_tars(tmp_path / "joined") == members
    run("pack", tmp_path / "plain.tar", tmp_path / "unlabeled")
    assert {name.removeprefix("./") for name in program.read_tars(tmp_path / "unlabeled")} == {
        name for name in members if name.endswith(".jpg")
    }


def limited(what: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (value, value))


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    for number in range(100):
        program.write_tar(tmp_path / f"{number:03}.tar", {b"%03d.txt" % number: b"x"})
    target = tmp_path / "set"
    target.mkdir()
    sources = sorted(tmp_path.glob("*.tar"))
    few = limited(resource.RLIMIT_NOFILE, 64)
    run(
        "pack",
        *sources,
        target,
        "--shuffle",
        3,
        "--shard-samples",
        1,
        "--threads",
        16,
        preexec_fn=few,
    )
    assert program.read_tars(target) == {f"{n:03}.txt": b"x" for n in range(100)}
    out, _ = run("verify", target, "--threads", 16, preexec_fn=few)
    assert b"no damage" in out


def test_little_memory_is_an_error_and_no_crash(
    photos: tuple[Path, dict[str, bytes]], tmp_path: Path, native: str
) -> None:
    codes = set()
    for mebibytes in [40, 60, 80, 100, 130, 200, 400, 2000]:
        target = tmp_path / str(mebibytes)
        done = subprocess.run(
            [native, "pack", str(photos[0]), str(target), "--threads", "4"],
            capture_output=True,
            text=True,
            preexec_fn=limited(resource.RLIMIT_AS, mebibytes << 20),
        )
        if "error while loading shared libraries" in done.stderr:
            continue  # the system's loader has no room for the program itself
        assert done.returncode in (program.OK, program.ENVIRONMENT), done
        codes.add(done.returncode)
        if done.returncode == program.OK:
            assert program.read_tars(target) == photos[1]
        else:
            assert "memory" in done.stderr and not target.exists()
    assert program.OK in codes


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk_leaves_the_target_as_before(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False)
    if mounted.returncode != 0:
        pytest.skip("this system does not let root mount a tmpfs")
    try:
        source = tmp_path / "source"
        program.write_photos(source, classes=1, per_class=3)
        (source / "class0" / "big.jpg").write_bytes(os.urandom(3 << 20))
        fails("pack", source, disk / "set", code=program.ENVIRONMENT, words=["more are needed"])
        assert tree(disk) == {}
        (source / "class0" / "big.jpg").unlink()
        run("pack", source, disk / "set")
        before = tree(disk)
        (source / "class0" / "big.jpg").write_bytes(os.urandom(3 << 20))
        fails("pack", source, disk / "set", "--overwrite", code=program.ENVIRONMENT, words=["full"])
        assert tree(disk) == before
        run("verify", disk / "set")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_no_progress_when_quiet_and_notes_otherwise(
    photos: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    program.write_photos(source, classes=1, per_class=2)
    (source / "README").write_text("beside the classes")
    assert "README" in run("pack", source, tmp_path / "one")[1]
    assert run("pack", source, tmp_path / "two", "--quiet")[1] == ""


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
