"""The demo, small: real processes under torchrun, really killed; and the checks that it makes."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "demo"))
from attempt import helpers
from saves import Restore, Saves, read_saves, stalls_in_words
from stall import Stall, of_attempt, of_pass
from stream import (
    Attempt,
    Batch,
    Run,
    StreamError,
    first_difference,
    join,
    read_attempt,
    read_lines,
)
from terminal import line_chart, resampled, share_chart, table

RUN = Path(__file__).resolve().parents[2] / "examples" / "demo" / "run.py"
IMAGES, CLASSES, GLOBAL_BATCH, EPOCHS, CHECKPOINT_EVERY = 200, 4, 16, 2, 4
BATCHES_PER_EPOCH = IMAGES // GLOBAL_BATCH


def make_photos(folder: Path) -> None:
    """Small JPEGs whose class is their color, with noise so that they differ."""
    image_module = pytest.importorskip("PIL.Image")
    source = random.Random(5)
    for number in range(IMAGES):
        label = number % CLASSES
        target = folder / f"color-{label}" / f"{number:03d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        noise = image_module.frombytes("RGB", (8, 6), source.randbytes(8 * 6 * 3)).resize((80, 60))
        color = image_module.new("RGB", noise.size, (60 * label, 200 - 50 * label, 128))
        image_module.blend(noise, color, 0.6).save(target, quality=90)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a demo that has run, and what it wrote."""
    for module in ("torch", "matplotlib"):
        pytest.importorskip(module)
    root = tmp_path_factory.mktemp("demo")
    make_photos(root / "photos")
    command = [sys.executable, str(RUN), "--photos", str(root / "photos")]
    command += ["--work", str(root / "work"), "--shard-size", "32KiB", "--image-size", "32"]
    command += ["--epochs", str(EPOCHS), "--global-batch-size", str(GLOBAL_BATCH)]
    command += ["--checkpoint-every", str(CHECKPOINT_EVERY), "--repeats", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "work", done.stdout


def test_order_is_the_same_after_kills_and_other_world_sizes(demo: tuple[Path, str]) -> None:
    _, output = demo
    samples = EPOCHS * BATCHES_PER_EPOCH * GLOBAL_BATCH
    assert f"SAME ORDER: {samples} of {samples} sample ids" in output
    assert output.count("SIGKILL to torchrun and its workers") == 2


def test_attempts_had_different_world_sizes_and_redid_batches(demo: tuple[Path, str]) -> None:
    work, _ = demo
    attempts = [read_attempt(work / "killed" / f"log-{i}", BATCHES_PER_EPOCH) for i in (1, 2, 3)]
    assert [attempt.world for attempt in attempts] == [2, 1, 3]
    for attempt in attempts[1:]:
        assert attempt.start % BATCHES_PER_EPOCH % CHECKPOINT_EVERY == 0
        assert attempt.start % BATCHES_PER_EPOCH != 0, "the kill was not in mid-epoch"
    run = join(attempts, EPOCHS * BATCHES_PER_EPOCH)
    # How many depends on where the kill met each rank; some always are.
    assert run.redone >= 1
    assert run.redone == json.loads((work / "result.json").read_text())["redone_batches"]


def test_each_resumed_attempt_was_restored_from_the_memory_that_outlived_the_kill(
    demo: tuple[Path, str],
) -> None:
    work, output = demo
    figures = json.loads((work / "result.json").read_text())
    starts = [read_attempt(work / "killed" / f"log-{i}", BATCHES_PER_EPOCH).start for i in (2, 3)]
    assert [restore["step"] for restore in figures["restores"]] == starts
    assert all(restore["bytes_from"]["memory"] > 0 for restore in figures["restores"])
    assert output.count(" from memory") == 2
    assert "saves into the helper's memory held the training up" in output
    # A kill may come between a save and the note of it.
    saves = EPOCHS * (BATCHES_PER_EPOCH // CHECKPOINT_EVERY)
    assert len(figures["save_stall_seconds"]) >= saves - 2


def test_no_checkpoint_helper_is_left(demo: tuple[Path, str]) -> None:
    work, _ = demo
    assert list((work / "killed" / "checkpoints").glob("helper/rank*.log"))
    assert helpers(work) == []


def test_each_sample_comes_at_most_once_an_epoch(demo: tuple[Path, str]) -> None:
    work, _ = demo
    batches = read_attempt(work / "reference" / "log-1", BATCHES_PER_EPOCH).batches
    for epoch in range(EPOCHS):
        numbers = range(epoch * BATCHES_PER_EPOCH, (epoch + 1) * BATCHES_PER_EPOCH)
        keys = [key for number in numbers for key in batches[number].keys]
        assert len(set(keys)) == len(keys) == BATCHES_PER_EPOCH * GLOBAL_BATCH


def test_resumed_training_follows_the_reference(demo: tuple[Path, str]) -> None:
    figures = json.loads((demo[0] / "result.json").read_text())
    assert figures["loss"] == pytest.approx(figures["reference_loss"], rel=0.02, abs=0.01)


def test_picture_and_table_are_made(demo: tuple[Path, str]) -> None:
    work, output = demo
    assert (work / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "images/CPU-s" in output and "DataLoader, 2 workers" in output
    assert "without seek points" in output
    assert (
        json.loads((work / "result.json").read_text())["comparison"]["Headrace, 2 threads"]["au"]
        > 0
    )


# --- the checks of the demo ----------------------------------------------------------------------


def global_batch(number: int, world: int, size: int = 4, missing: int | None = None) -> Batch:
    """A global batch with the keys "number/row", shared out as the order's page says."""
    batch = Batch(world)
    positions = range(number * size, (number + 1) * size)
    for rank in range(world):
        if rank != missing:
            keys = [f"{number}/{p - positions[0]}" for p in positions if p % world == rank]
            batch.ranks[rank] = {
                "batch": number,
                "rank": rank,
                "keys": keys,
                "loss_sum": float(len(keys)),
            }
    return batch


def attempt(numbers: range, world: int) -> Attempt:
    return Attempt({n: global_batch(n, world) for n in numbers}, world)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_are_merged_by_position(world: int) -> None:
    for number in range(5):
        assert global_batch(number, world).keys == [f"{number}/{row}" for row in range(4)]
        assert global_batch(number, world).loss == 1.0


def test_join_takes_the_newer_of_two_and_counts_them() -> None:
    run = join([attempt(range(0, 7), 2), attempt(range(4, 9), 1), attempt(range(8, 10), 3)], 10)
    assert run.keys == [[f"{n}/{row}" for row in range(4)] for n in range(10)]
    assert run.attempt_of == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert run.redone == 4


def test_join_leaves_out_a_batch_that_the_kill_cut_in_two() -> None:
    first = attempt(range(0, 3), 2)
    first.batches[3] = global_batch(3, 2, missing=1)
    assert join([first, attempt(range(2, 5), 1)], 5).redone == 1


def test_join_finds_a_gap() -> None:
    with pytest.raises(StreamError, match="has batch 5 where 4 was due"):
        join([attempt(range(0, 4), 2), attempt(range(5, 8), 1)], 8)


def test_join_finds_a_short_run() -> None:
    with pytest.raises(StreamError, match="expected 9 global batches, found 8"):
        join([attempt(range(0, 8), 2)], 9)


def test_join_finds_other_samples_in_a_batch_done_again() -> None:
    second = attempt(range(2, 6), 1)
    second.batches[3].ranks[0]["keys"][1] = "stranger"
    with pytest.raises(StreamError, match="attempt 2 has other samples in batch 3"):
        join([attempt(range(0, 5), 2), second], 6)


def test_shares_that_do_not_fit_together_are_an_error() -> None:
    batch = global_batch(0, 2)
    batch.ranks[0]["keys"].append(batch.ranks[1]["keys"].pop())
    with pytest.raises(StreamError, match="do not fit together"):
        _ = batch.keys


def test_a_line_without_its_end_is_left_out(tmp_path: Path) -> None:
    journal = tmp_path / "rank-0-of-1.jsonl"
    journal.write_text('{"batch": 0}\n{"batch": 1}\n{"batch": 2, "ke')
    assert [line["batch"] for line in read_lines(journal)] == [0, 1]


def test_notes_of_saves_and_restores_are_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.jsonl").write_text(
        '{"restored": {"step": 7, "seconds": 0.012, "from": {"memory": 2500000, "local": 0}}}\n'
        '{"saved": 10, "stall_seconds": 0.001}\n{"saved": 20, "stall_seconds": 0.003}\n'
        '{"saved": 30, "st'
    )
    saves = read_saves(tmp_path)
    assert saves == Saves([0.001, 0.003], Restore(7, 0.012, {"memory": 2_500_000, "local": 0}))
    assert saves.restored is not None
    assert saves.restored.in_words == "restored step 7 in 12 ms: 2.5 MB from memory"
    assert "2 saves" in stalls_in_words([saves, Saves([], None)])
    assert "2.0 ms each (median; the longest 3.0 ms)" in stalls_in_words([saves])


def test_first_difference_says_where() -> None:
    ours = [["a", "b"], ["c", "d"]]
    assert first_difference(ours, [["a", "b"], ["c", "d"]]) is None
    assert first_difference(ours, [["a", "b"], ["c", "e"]]) == "global batch 1, row 1: d against e"
    assert first_difference(ours, [["a", "b"], ["c"]]) == "global batch 1 has 2 samples against 1"
    assert first_difference(ours, [["a", "b"]]) == "2 global batches against 1"


def test_a_different_order_ends_the_demo_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    # By its path: there is another run.py in bench/.
    spec = importlib.util.spec_from_file_location("demo_run", RUN)
    assert spec and spec.loader
    demo_run = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo_run", demo_run)
    spec.loader.exec_module(demo_run)

    training = demo_run.Training(tmp_path, 2, 4, 32, 1, 2, 1, batches_per_epoch=3)
    monkeypatch.setattr(sys, "argv", ["run.py", "--work", str(tmp_path), "--repeats", "0"])
    demo = demo_run.Demo(demo_run.arguments())
    whole: Run = join([attempt(range(3), 2)], 3)
    printed = "\n".join("\t".join(keys) for keys in whole.keys) + "\n"
    monkeypatch.setattr(demo_run, "headrace", lambda _: printed)
    assert demo.check(training, whole, whole)[0] == 0
    monkeypatch.setattr(demo_run, "headrace", lambda _: printed.replace("1/2", "1/9"))
    code, verdict = demo.check(training, whole, whole)
    assert code == 1 and verdict.startswith("DIFFERENT ORDER")


# --- stall over time -----------------------------------------------------------------------------


def test_stall_is_shared_out_to_stretches_of_time() -> None:
    stall = Stall(10.0, 14.0, [(10.5, 11.5), (13.0, 14.0)])
    assert stall.shares(4) == pytest.approx([0.5, 0.5, 0.0, 1.0])
    assert stall.shares(1) == pytest.approx([0.5])


def test_stall_of_a_pass_keeps_its_total() -> None:
    figures = {"batches": [(1.0, 0.75, 0.25), (2.0, 0.5, 0.5), (2.5, 0.0, 0.5)]}
    assert sum(of_pass(figures).shares(5)) * 0.5 == pytest.approx(1.25)


def test_stall_of_an_attempt_is_the_growth_of_its_waits() -> None:
    made = attempt(range(3), 1)
    for number, (time, waited) in enumerate([(100.0, 9.0), (101.0, 9.5), (102.0, 9.5)]):
        made.batches[number].ranks[0] |= {"time": time, "wait_seconds": waited}
    assert of_attempt(made) == Stall(100.0, 102.0, [(100.0, 100.5), (101.0, 101.0)])


# --- the terminal --------------------------------------------------------------------------------


def test_resampled_takes_means_or_repeats() -> None:
    assert resampled([1, 3, 5, 7], 2) == [2, 6]
    assert resampled([1, 2], 4) == [1, 1, 2, 2]


def test_line_chart_falls_from_the_top_left_to_the_bottom_right() -> None:
    lines = line_chart([2.0, 1.0, 0.0], 4, "batches", marks=[0.5]).splitlines()
    assert lines[0].startswith(" 2.00 │") and lines[3].startswith(" 0.00 │")
    assert ord(lines[0][7]) > 0x2800 and ord(lines[3][-1]) > 0x2800
    assert set(lines[0][-20:]) == {chr(0x2800)} == set(lines[3][7:27])
    assert lines[5].strip() == "↑"
    assert all(len(line) <= 72 for line in lines)


def test_share_chart_and_table() -> None:
    assert share_chart("x", [0.0, 0.5, 1.0, 2.0], "9 s").endswith("▕ ▄██▏ 9 s")
    assert table([["", "n"], ["ten", "10"]]).splitlines() == ["       n", "────────", "ten   10"]
