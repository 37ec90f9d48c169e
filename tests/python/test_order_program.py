"""``headrace order`` of the built program against the order as docs/formats/order.md states it."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "order_reference", Path(__file__).with_name("order_reference.py")
)
assert _spec is not None and _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

SHARDS = [30, 17, 1, 44, 25, 30, 8, 30, 29, 61, 3]
KEYS = [f"s{shard:02}/{i:03}" for shard, samples in enumerate(SHARDS) for i in range(samples)]
PROGRAM = [sys.executable, "-m", "headrace", "order"]


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tars; the class is the number of the shard, as in data sorted by class."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, samples in enumerate(SHARDS):
        members: dict[str, bytes] = {}
        for i in range(samples):
            members[f"s{shard:02}/{i:03}.cls"] = str(shard).encode()
            members[f"s{shard:02}/{i:03}.txt"] = b"text"
        write_tar(folder / f"{shard:02}.tar", members)
    return folder


def order(folder: Path, *arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [*PROGRAM, str(folder), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def version(folder: Path) -> str:
    settings = json.loads(order(folder, "--json", "-b", 1, "--batches", 0))["settings"]
    found: str = settings["dataset_version"]
    return found


@pytest.mark.parametrize(
    "flags,settings",
    [
        ([], {}),
        (["--lanes", 4, "--window", 3], {"lanes": 4, "window_shards": 3}),
        (["--lanes", 1], {"lanes": 1}),
        (["--lanes", 11, "--window", 1], {"lanes": 11, "window_shards": 1}),
        (["--no-shuffle"], {"shuffle": False}),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("seed,epoch", [(0, 0), (7, 3), (2**64 - 1, 1)])
def test_stream_is_the_documented_one(
    shards: Path, flags: list[Any], settings: dict[str, Any], seed: int, epoch: int
) -> None:
    stream = reference.Order(SHARDS, version(shards), seed, **settings).stream(epoch)
    found = order(shards, "--seed", seed, "--epoch", epoch, "-b", 9, "--tail", "uneven", *flags)
    assert [key for line in lines(found) for key in line] == [KEYS[i] for i in stream]


@pytest.mark.parametrize("tail", ["drop", "pad", "uneven"])
@pytest.mark.parametrize("batch,world", [(12, 4), (10, 3), (64, 64), (7, 1), (300, 5)])
def test_every_rank_gets_the_documented_rows(
    shards: Path, tail: str, batch: int, world: int
) -> None:
    if tail == "drop" and batch > len(KEYS):
        pytest.skip("refused, see below")
    stream = reference.Order(SHARDS, version(shards), 1).stream(0)
    for rank in {0, world // 2, world - 1}:
        rows = reference.rank_batches(len(KEYS), batch, tail, world, rank)
        flags = ["--seed", 1, "-b", batch, "--tail", tail, "--world-size", world, "--rank", rank]
        found = [[int(i) for i in line] for line in lines(order(shards, *flags, "--ids"))]
        assert found == [[stream[p] for p in row] for row in rows]


def test_keys_and_ids_name_the_same_samples(shards: Path) -> None:
    keys = lines(order(shards, "--seed", 3, "-b", 20))
    ids = lines(order(shards, "--seed", 3, "-b", 20, "--ids"))
    assert keys == [[KEYS[int(i)] for i in line] for line in ids]


def test_a_part_is_the_same_part_of_the_whole(shards: Path) -> None:
    whole = order(shards, "--seed", 1, "-b", 10).splitlines()
    assert order(shards, "--seed", 1, "-b", 10, "--from-batch", 5).splitlines() == whole[5:]
    part = order(shards, "--seed", 1, "-b", 10, "--from-batch", 5, "--batches", 3)
    assert part.splitlines() == whole[5:8]
    assert order(shards, "--seed", 1, "-b", 10, "--from-batch", len(whole)) == ""


def test_json_holds_the_same_batches(shards: Path) -> None:
    flags = ["--seed", 1, "-b", 50, "--from-batch", 2]
    answer = json.loads(order(shards, *flags, "--json"))
    assert answer["complete"] is True
    assert answer["num_batches"] == len(KEYS) // 50
    assert [batch["batch"] for batch in answer["batches"]] == [2, 3, 4]
    assert [batch["keys"] for batch in answer["batches"]] == lines(order(shards, *flags))
    ids = json.loads(order(shards, *flags, "--json", "--ids"))
    assert [[KEYS[i] for i in b["ids"]] for b in ids["batches"]] == lines(order(shards, *flags))
    assert answer["settings"]["lanes"] == 2 and answer["settings"]["window_shards"] == 32


def test_odd_keys_stay_on_their_line(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"tab\there.txt": b"1", "line\nbreak.txt": b"2", "é.txt": b"3"})
    found = order(tmp_path, "-b", 3, "--no-shuffle")
    assert found == "tab\\there\tline\\nbreak\té\n"


def test_a_reader_that_leaves_ends_the_program_well(shards: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, str(shards), "-b", "1", "--ids"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=240) == 0


def test_stats_tell_good_mixing_from_none(shards: Path) -> None:
    def stats(*flags: object) -> dict[str, dict[str, float]]:
        found = json.loads(order(shards, "-b", 16, "--stats", "--json", *flags))
        assert isinstance(found, dict)
        return found

    mixed, natural = stats("--lanes", 1), stats("--no-shuffle")
    assert abs(mixed["order"]["serial_correlation"]) < 0.3
    assert natural["order"]["serial_correlation"] > 0.99
    assert 0.5 < mixed["order"]["class_imbalance"] < 2 < natural["order"]["class_imbalance"]
    assert mixed["expected_of_random"] == natural["expected_of_random"]
    assert mixed["expected_of_random"]["class_imbalance"] == 1
    assert natural["full_permutation"]["samples"] == len(KEYS) // 16 * 16
    text = order(shards, "-b", 16, "--stats")
    assert "class imbalance" in text and "full permutation" in text


def test_stats_without_a_class_leave_it_out(shards: Path) -> None:
    text = order(shards, "-b", 16, "--stats", "--class-field", "nothing", "-q")
    assert "neighbors from one shard" in text and "class" not in text


@pytest.mark.parametrize(
    "flags,words",
    [
        ([], "--global-batch-size"),
        (["-b", 0], "--global-batch-size"),
        (["-b", 4, "--world-size", 8], "4 rows for 8 ranks"),
        (["-b", 8, "--world-size", 2, "--rank", 2], "rank must be 0 to 1"),
        (["-b", 8, "--world-size", 0], "world_size must be at least 1"),
        (["-b", 1000], "tail=pad or tail=uneven"),
        (["-b", 8, "--lanes", 12], "lanes must be 1 to 11"),
        (["-b", 8, "--lanes", 2**33], "--lanes must be at most"),
        (["-b", 8, "--from-batch", 99], "has 34 batches"),
        (["-b", 8, "--stats", "--rank", 0], "leave out --rank"),
        (["-b", 8, "--tail", "wag"], "drop"),
        (["-b", 8, "--seed", "x"], "seed"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_with_words(
    shards: Path, flags: list[Any], words: str
) -> None:
    assert words in order(shards, *flags, code=2)


def test_the_loader_gives_what_the_program_prints(
    shards: Path, run_headrace: Callable[..., str]
) -> None:
    import headrace

    printed = run_headrace(
        "order",
        shards,
        "--seed",
        "5",
        "--epoch",
        "1",
        "-b",
        "12",
        "--world-size",
        "3",
        "--rank",
        "2",
    )
    loader = headrace.open(shards).loader(
        global_batch_size=12, seed=5, world_size=3, rank=2, fields=["txt"]
    )
    loader.set_epoch(1)
    assert [batch["__key__"] for batch in loader] == lines(printed)
