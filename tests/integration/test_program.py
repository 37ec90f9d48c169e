"""The ``headrace`` program beside packing: index, ls, cat, verify, version, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("program", Path(__file__).with_name("program.py"))
assert _spec is not None and _spec.loader is not None
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)

run, run_json, fails, tree = program.run, program.run_json, program.fails, program.tree

COMMANDS = ["pack", "index", "ls", "cat", "thumbnail", "verify", "order", "bench", "version"]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    program.write_photos(tmp_path / "source")
    run("pack", tmp_path / "source", tmp_path / "set", "--shard-samples", 20)
    return tmp_path / "set"


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Three tars of another tool, without an index."""
    folder = tmp_path / "tars"
    folder.mkdir()
    for number in range(3):
        members = {
            b"%d/%02d.%s" % (number, i, f): b"data %d" % i for i in range(9) for f in (b"a", b"b")
        }
        program.write_tar(folder / f"{number}.tar", members)
    return folder


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_help_names_every_command_and_each_explains_itself() -> None:
    out, _ = run("--help")
    for command in COMMANDS:
        assert command in out.decode()
        text = run(command, "--help")[0].decode()
        assert f"headrace {command}" in text and "Exit codes" in text and "--json" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["frobnicate"]),
        (["pack", "only-one"], ["2"]),
        (["pack", "a", "b", "--shard-size", "3 parsecs"], ["3 parsecs", "64KiB"]),
        (["pack", "a", "b", "--on-error", "shrug"], ["shrug"]),
        (["ls"], ["dataset"]),
        (["ls", "x", "--nonsense"], ["--nonsense"]),
        (["cat", "x"], ["KEY"]),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments: list[str], words: list[str]) -> None:
    fails(*arguments, code=program.USAGE, words=words)


def test_without_a_command_help_is_printed() -> None:
    assert b"Subcommands" in run(code=program.USAGE)[0]


def test_version() -> None:
    out, _ = run("version")
    assert out.decode() == f"headrace {run_json('version')['version']}\n"


def test_missing_dataset_is_named(tmp_path: Path) -> None:
    for command in ["ls", "verify", "index"]:
        fails(command, tmp_path / "nowhere", code=program.BAD_DATA, words=["nowhere"])


def test_fault_is_json_too(tmp_path: Path) -> None:
    fault = run_json("ls", tmp_path / "nowhere", code=program.BAD_DATA)["error"]
    assert fault["code"] == "not found" and "nowhere" in fault["message"]


def test_ls_counts(packed: Path) -> None:
    listing = run_json("ls", packed)
    assert listing["samples"] == 60 and listing["fields"] == ["cls", "jpg"]
    assert listing["classes"] == ["class0", "class1", "class2", "class3"]
    assert [shard["samples"] for shard in listing["shards"]] == [20, 20, 20]
    assert all(
        s["checksums"] == {"in_index": 40, "learned": 0, "unverified": 0} for s in listing["shards"]
    )
    text = run("ls", packed)[0].decode()
    assert "shard-000002.tar" in text and "60" in text.splitlines()[-1]


def test_ls_samples_in_part(packed: Path) -> None:
    lines = run("ls", packed, "--samples", "--from", 57, "--limit", 10)[0].decode().splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        ["57", "class3/012"],
        ["58", "class3/013"],
        ["59", "class3/014"],
    ]
    assert run("ls", packed, "--samples", "--limit", 0)[0] == b""
    sample = json.loads(run("ls", packed, "--samples", "--limit", 1, "--json")[0])[0]
    tar = (packed / sample["shard"]).read_bytes()
    for field in sample["fields"]:
        data = tar[field["offset"] : field["offset"] + field["bytes"]]
        assert data == run("cat", packed, sample["key"], field["name"])[0]


def test_a_reader_that_goes_is_no_fault(tmp_path: Path) -> None:
    program.write_tar(tmp_path / "many.tar", {b"%06d.x" % i: b"" for i in range(20000)})
    listing = [*program.PROGRAM, "ls", "--samples", str(tmp_path / "many.tar")]
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", *listing],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout == b"0\t000000\tx:0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_a_fault(packed: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*program.PROGRAM, "ls", str(packed)], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == program.ENVIRONMENT
    assert b"standard output" in done.stderr


def test_verify_of_a_whole_dataset(packed: Path) -> None:
    out, _ = run("verify", packed)
    assert b"120 fields match their checksum; no damage" in out
    report = run_json("verify", packed)
    assert report["ok"] and report["checked"] == 120 and report["unverified"] == 0


def test_verify_finds_each_damaged_field_and_no_other(packed: Path) -> None:
    samples = json.loads(run("ls", packed, "--samples", "--json")[0])
    hit = [samples[3], samples[25], samples[26]]
    for sample in hit:
        field = next(f for f in sample["fields"] if f["name"] == "cls")
        flip(packed / sample["shard"], field["offset"])
    before = tree(packed)
    report = run_json("verify", packed, "--threads", 3, code=program.BAD_DATA)
    assert [fault["key"] for fault in report["faults"]] == [sample["key"] for sample in hit]
    assert {fault["field"] for fault in report["faults"]} == {"cls"}
    assert report["damaged"] == 3 and report["checked"] == 117
    out, _ = run("verify", packed, code=program.BAD_DATA)
    assert samples[25]["key"].encode() in out and b"shard-000001.tar" in out
    assert tree(packed) == before, "verify changes nothing"


def test_verify_finds_damage_between_the_fields(packed: Path) -> None:
    flip(packed / "shard-000001.tar", 100)  # the mode in the first header
    report = run_json("verify", packed, code=program.BAD_DATA)
    assert [fault["file"] for fault in report["faults"]] == ["shard-000001.tar"]


def test_verify_finds_a_damaged_index_and_goes_on(packed: Path) -> None:
    index = packed / "shard-000001.tar.hridx"
    flip(index, index.stat().st_size - 20)
    report = run_json("verify", packed, code=program.BAD_DATA)
    assert not report["ok"] and any(
        "shard-000001" in f["message"] + f["file"] for f in report["faults"]
    )
    assert [shard["damaged"] > 0 for shard in report["shards"]] == [False, True, False]


def test_verify_finds_a_shard_cut_short_or_a_damaged_manifest(packed: Path) -> None:
    shard = packed / "shard-000000.tar"
    content = shard.read_bytes()
    shard.write_bytes(content[:-2000])
    report = run_json("verify", packed, code=program.BAD_DATA)
    assert len(report["faults"]) == 1 and "shard-000000.tar" in report["faults"][0]["file"]
    shard.unlink()
    fails("verify", packed, code=program.BAD_DATA, words=["shard-000000.tar"])
    shard.write_bytes(content)
    flip(packed / "headrace.json", 300)
    run("verify", packed, code=program.BAD_DATA)


def test_index_gives_tars_a_dataset_and_checksums_are_learned(tars: Path) -> None:
    before = tree(tars)
    report = run_json("index", tars, "--seek-points=off")
    assert report["samples"] == 27 and len(report["shards"]) == 3
    assert {name: data for name, data in tree(tars).items() if name in before} == before

    def unverified() -> list[int]:
        return [s["checksums"]["unverified"] for s in run_json("ls", tars)["shards"]]

    indexed = tree(tars)
    assert unverified() == [18, 18, 18]
    assert run_json("verify", tars)["unverified"] == 54
    assert tree(tars) == indexed, "without --learn nothing is written"
    assert run_json("verify", tars, "--learn")["learned"] == 54
    assert unverified() == [0, 0, 0]
    assert run_json("verify", tars, "--learn")["checked"] == 54
    sample = json.loads(run("ls", tars, "--samples", "--limit", 5, "--json")[0])[4]
    flip(tars / "0.tar", sample["fields"][0]["offset"])
    report = run_json("verify", tars, "--learn", code=program.BAD_DATA)
    assert [fault["key"] for fault in report["faults"]] == ["0/04"]


@pytest.mark.parametrize("options", [[], ["--checksums"], ["--checksums", "--seek-points=off"]])
def test_index_that_reads_the_data_knows_all_checksums(tars: Path, options: list[str]) -> None:
    run("index", tars, *options)
    assert run_json("verify", tars)["checked"] == 54


def test_index_elsewhere_takes_a_relative_path(tars: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere"
    run("index", "--output", out, tars.name, cwd=tars.parent)
    assert run_json("ls", out)["samples"] == run_json("ls", tars)["samples"]


def test_index_elsewhere_leaves_the_data_alone(tars: Path, tmp_path: Path) -> None:
    before = tree(tars)
    run("index", tars, "--output", tmp_path / "indexes")
    assert tree(tars) == before
    assert run("cat", tmp_path / "indexes", "2/08", "b")[0] == b"data 8"


def test_damaged_tar_is_told_with_its_place(tars: Path) -> None:
    flip(tars / "1.tar", 2 * 1024 + 5)  # the name in a header
    fails("index", tars, code=program.BAD_DATA, words=["1.tar", "2048"])
    _, err = run("index", tars, "--allow-damage")
    assert "1.tar" in err and "2048" in err
    assert run_json("ls", tars)["samples"] in (26, 27)


def test_plain_folder_is_read_in_place(tmp_path: Path) -> None:
    members = program.write_photos(tmp_path / "source")
    assert run_json("ls", tmp_path / "source")["samples"] == 60
    assert run("cat", tmp_path / "source", "class1/003", "cls")[0] == b"1"
    assert run("cat", tmp_path / "source", "class1/003", "jpg")[0] == members["class1/003.jpg"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
