"""The loader: order, batches, state, policies, memory and process hygiene."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headrace
from headrace import transforms as T


def keys_of(loader: headrace.Loader) -> list[list[str]]:
    return [batch["__key__"] for batch in loader]


def text_loader(path: Path, **settings: Any) -> headrace.Loader:
    settings.setdefault("global_batch_size", 16)
    settings.setdefault("threads", 2)
    return headrace.open(path).loader(**settings)


# ---- order ----


def test_order_is_what_the_program_prints(texts: Path, run_headrace: Callable[..., str]) -> None:
    loader = text_loader(texts, seed=3)
    keys_of(loader)
    printed = run_headrace(
        "order", texts, "--seed", "3", "--epoch", "1", "--global-batch-size", "16"
    )
    assert [line.split("\t") for line in printed.splitlines()] == keys_of(loader)


def test_every_rank_and_world_size_give_the_same_global_batches(texts: Path) -> None:
    whole = keys_of(text_loader(texts, seed=1))
    for world in (2, 3, 5, 16):
        ranks = [
            keys_of(text_loader(texts, seed=1, rank=r, world_size=world)) for r in range(world)
        ]
        assert len({len(r) for r in ranks}) == 1
        for b, batch in enumerate(whole):
            assert sorted(k for r in ranks for k in r[b]) == sorted(batch)


def test_threads_memory_and_bad_luck_do_not_change_the_order(texts: Path) -> None:
    expected = keys_of(text_loader(texts))
    for threads, memory in ((1, "64MiB"), (7, "64KiB"), (3, "16KiB"), (1, "8KiB")):
        assert keys_of(text_loader(texts, threads=threads, memory_bytes=memory)) == expected


def test_autotune_and_changed_settings_do_not_change_the_order(texts: Path) -> None:
    expected = keys_of(text_loader(texts, seed=2))
    with text_loader(texts, seed=2, autotune="on", threads=1, max_threads=4) as loader:
        keys = []
        for batch in loader:
            keys.append(batch["__key__"])
            loader.change_setting("threads", 1 + len(keys) % 4)
        assert keys == expected
        assert loader.state_dict()["epoch"] == 1
    with pytest.raises(headrace.InvalidArgumentError, match="autotune"):
        text_loader(texts, autotune="yes")


def test_without_shuffle_the_order_is_the_datasets(texts: Path) -> None:
    ds = headrace.open(texts)
    found = [k for b in text_loader(texts, shuffle=False) for k in b["__key__"]]
    assert found == [ds.key(i) for i in range(400)]


def test_epochs_differ_and_set_epoch_repeats(texts: Path) -> None:
    loader = text_loader(texts)
    zero, one = keys_of(loader), keys_of(loader)
    assert zero != one
    loader.set_epoch(0)
    assert keys_of(loader) == zero
    assert keys_of(loader) == one


@pytest.mark.parametrize("tail,total", [("drop", 384), ("pad", 416), ("uneven", 400)])
def test_tails(texts: Path, tail: str, total: int) -> None:
    loader = text_loader(texts, tail=tail, global_batch_size=32)
    batches = keys_of(loader)
    assert sum(map(len, batches)) == total
    assert len(loader) == len(batches) == {"drop": 12, "pad": 13, "uneven": 13}[tail]


def test_batch_size_is_per_rank(texts: Path) -> None:
    loader = headrace.open(texts).loader(batch_size=10, rank=1, world_size=4)
    assert loader.global_batch_size == 40
    assert {len(k) for k in keys_of(loader)} == {10}


def test_rank_from_environment(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    loader = headrace.open(texts).loader(batch_size=4)
    assert (loader.rank, loader.world_size) == (2, 4)
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(headrace.InvalidArgumentError, match="RANK='two'"):
        headrace.open(texts).loader(batch_size=4)


# ---- batches ----


def test_fields_without_transform_are_bytes(texts: Path) -> None:
    for batch in text_loader(texts):
        for key, cls, txt in zip(batch["__key__"], batch["cls"], batch["txt"], strict=True):
            assert int(cls) == int(key)
            assert txt == b"x" * (int(key) % 37)


def test_bytes_that_are_kept_never_change(tmp_path: Path, run_headrace: Callable[..., str]) -> None:
    rng = random.Random(3)
    source = tmp_path / "source"
    source.mkdir()
    for i in range(300):
        (source / f"{i:03}.bin").write_bytes(rng.randbytes(rng.randrange(0, 40_000)))
    run_headrace("pack", source, tmp_path / "packed", "--quiet")
    ds = headrace.open(tmp_path / "packed")
    loader = ds.loader(batch_size=20, threads=2, memory_bytes="4MiB")
    kept: list[tuple[str, bytes]] = []
    for _ in range(4):
        for batch in loader:
            pairs = list(zip(batch["__key__"], batch["bin"], strict=True))
            assert len({hash(value) for _, value in pairs}) > 1  # a hash that must not survive
            kept += pairs[::3]
    loader.close()
    del loader, batch, pairs
    for key, value in kept:
        expected = (source / f"{key}.bin").read_bytes()
        assert value == expected and hash(value) == hash(expected)
        assert bytes(memoryview(value)) == expected


@pytest.mark.parametrize("output", ["torch", "numpy", "tensor"])
def test_tensor_fields(texts: Path, output: str) -> None:
    loader = text_loader(texts, transforms={"cls": T.label()}, output=output, fields=["cls"])
    kinds = {"torch": torch.Tensor, "numpy": np.ndarray, "tensor": headrace.Tensor}
    for batch in loader:
        assert set(batch) == {"cls", "__key__"}
        assert isinstance(batch["cls"], kinds[output])
        assert np.asarray(batch["cls"]).tolist() == [int(k) for k in batch["__key__"]]
        assert str(np.asarray(batch["cls"]).dtype) == "int64"


def test_a_tensor_tells_its_shape_without_any_framework(photos: Path) -> None:
    body = f"""
import headrace, sys
from headrace import transforms as T
ds = headrace.open({os.fspath(photos)!r})
image = T.imagenet_train(32, dtype="bfloat16")
for batch in ds.loader(batch_size=7, transforms={{"jpg": image, "cls": T.label()}}):
    t = batch["jpg"]
    assert (t.shape, len(t), t.dtype) == ((7, 3, 32, 32), 7, "bfloat16"), t
    assert "(7, 3, 32, 32)" in repr(t) and batch["cls"].shape == (7,)
    assert image(ds[0]["jpg"]).shape == (3, 32, 32)
print("numpy" in sys.modules or "torch" in sys.modules)
"""
    done = run_script(body)
    assert done.stdout.strip() == "False", done.stderr


def test_arrays_share_memory_and_may_be_kept(photos: Path) -> None:
    loader = headrace.open(photos).loader(
        batch_size=6,
        transforms={"jpg": T.imagenet_train(32, dtype="uint8")},
        output="tensor",
        fields=["jpg"],
    )
    kept = [(b["jpg"], b["jpg"].numpy().copy()) for b in loader]
    first = kept[0][0]
    assert torch.from_dlpack(first).data_ptr() == first.torch().data_ptr()
    assert (
        np.from_dlpack(first).ctypes.data == first.numpy().ctypes.data == first.torch().data_ptr()
    )
    loader.close()
    del loader
    gc.collect()
    for tensor, copy in kept:
        assert np.array_equal(tensor.numpy(), copy)


def test_bfloat16_and_layouts(photos: Path) -> None:
    ds = headrace.open(photos)
    shapes = {"NCHW": (6, 3, 24, 40), "NHWC": (6, 24, 40, 3)}
    for layout, shape in shapes.items():
        image = T.imagenet_train((24, 40), dtype="bfloat16", layout=layout)
        batch = next(iter(ds.loader(batch_size=6, transforms={"jpg": image}, output="torch")))
        assert batch["jpg"].dtype == torch.bfloat16
        assert tuple(batch["jpg"].shape) == shape


def test_pixels_do_not_depend_on_the_path_taken(photos: Path, photo_folder: Path) -> None:
    image = T.imagenet_train(48)
    ds = headrace.open(photos)

    def pixels(dataset: headrace.Dataset, **settings: Any) -> dict[str, np.ndarray[Any, Any]]:
        found = {}
        loader = dataset.loader(transforms={"jpg": image}, seed=9, output="numpy", **settings)
        loader.set_epoch(2)
        for batch in loader:
            found.update(zip(batch["__key__"], batch["jpg"].copy(), strict=True))
        return found

    whole = pixels(ds, batch_size=10, threads=1)
    for settings in (
        {"batch_size": 7, "tail": "pad", "threads": 5},
        {"batch_size": 4, "rank": 1, "world_size": 3},
        {"batch_size": 30, "shuffle": False},
    ):
        for key, array in pixels(ds, **settings).items():
            assert np.array_equal(array, whole[key])
    for i in (0, 30):
        sample = ds[i]
        alone = image(sample["jpg"], seed=9, epoch=2, sample_id=i).numpy()
        assert np.array_equal(alone, whole[sample["__key__"]])


def test_python_transform_and_its_randomness(texts: Path) -> None:
    def run(**settings: Any) -> dict[str, float]:
        draw = T.python(lambda data, rng: int(data) + rng.random(), seeded=True)
        loader = text_loader(texts, transforms={"cls": draw}, fields=["cls"], **settings)
        return {k: v for b in loader for k, v in zip(b["__key__"], b["cls"].tolist(), strict=True)}

    one = run(threads=1)
    two = run(threads=4, global_batch_size=50)
    assert len(set(one.values())) == len(one)
    assert one == {k: v for k, v in two.items() if k in one}


# ---- state ----


def test_resume_is_exact_through_several_stops_and_world_sizes(texts: Path) -> None:
    reference = text_loader(texts, seed=4)
    whole = [keys_of(reference), keys_of(reference)]
    stream: list[list[str]] = []
    state: dict[str, Any] | None = None
    for world, steps in ((4, 3), (2, 7), (3, 9), (1, 20), (8, 11)):
        loaders = [text_loader(texts, seed=4, rank=r, world_size=world) for r in range(world)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        for _ in range(steps):
            parts = [next(i, None) for i in iterators]
            if parts[0] is None:
                iterators = [iter(loader) for loader in loaders]
                parts = [next(i) for i in iterators]
            stream.append(sorted(k for p in parts for k in p["__key__"]))
        states = [loader.state_dict() for loader in loaders]
        assert all(s == states[0] for s in states)
        state = json.loads(json.dumps(states[0]))
    flat = [sorted(b) for epoch in whole for b in epoch]
    assert stream == flat[: len(stream)] and len(stream) == 50


def test_state_after_an_epoch_gives_a_full_next_epoch(texts: Path) -> None:
    loader = text_loader(texts)
    iterator = iter(loader)
    for _ in range(int(len(loader) * 0.9)):
        next(iterator)
    again = text_loader(texts)
    again.load_state_dict(loader.state_dict())
    assert len(keys_of(again)) == len(loader) - int(len(loader) * 0.9)
    assert len(keys_of(again)) == len(loader)
    assert again.state_dict()["epoch"] == 2
    assert again.state_dict()["next_position"] == 0


def test_uneven_ranks_agree_on_the_state(texts: Path) -> None:
    # 400 samples, batches of 133: the last global batch has one row, on one of three ranks.
    loaders = [
        text_loader(texts, global_batch_size=133, tail="uneven", rank=r, world_size=3)
        for r in range(3)
    ]
    iterators = [iter(loader) for loader in loaders]
    for _ in range(3):
        [next(i) for i in iterators]
    states = [loader.state_dict() for loader in loaders]
    assert states[0]["next_position"] == 399 and all(s == states[0] for s in states)
    assert sum(len(b["__key__"]) for i in iterators for b in i) == 1
    states = [loader.state_dict() for loader in loaders]
    assert (states[0]["epoch"], states[0]["next_position"]) == (1, 0)
    assert all(s == states[0] for s in states)


def test_set_epoch_after_loading_a_state_of_that_epoch_keeps_its_position(texts: Path) -> None:
    reference = text_loader(texts)
    whole = [keys_of(reference), keys_of(reference), keys_of(reference)]
    loader = text_loader(texts)
    loader.set_epoch(1)
    iterator = iter(loader)
    for _ in range(9):
        next(iterator)
    again = text_loader(texts)
    again.load_state_dict(loader.state_dict())
    stream = []
    for epoch in (1, 2):  # the loop of everyone who is used to DistributedSampler
        again.set_epoch(epoch)
        stream += keys_of(again)
    assert stream == whole[1][9:] + whole[2]
    again.load_state_dict(loader.state_dict())
    again.set_epoch(0)
    assert keys_of(again) == whole[0]


def test_state_is_small_and_counts_delivered_batches(texts: Path) -> None:
    loader = text_loader(texts)
    iterator = iter(loader)
    next(iterator)
    for _ in range(50):  # the threads are ahead by then, or as good as
        if loader.stats()["ready_batches"] > 0:
            break
        time.sleep(0.001)
    assert loader.state_dict()["next_position"] == 16
    assert len(json.dumps(loader.state_dict())) < 500


@pytest.mark.parametrize(
    "settings,word",
    [({"seed": 5}, "seed"), ({"global_batch_size": 24}, "global batch"), ({"tail": "pad"}, "tail")],
)
def test_state_that_does_not_fit_is_refused(
    texts: Path, settings: dict[str, Any], word: str
) -> None:
    loader = text_loader(texts)
    next(iter(loader))
    with pytest.raises(headrace.StateError, match=word):
        text_loader(texts, **settings).load_state_dict(loader.state_dict())


def test_state_of_another_dataset_is_refused(texts: Path, photos: Path) -> None:
    loader = text_loader(texts)
    with pytest.raises(headrace.StateError, match="dataset"):
        text_loader(photos).load_state_dict(loader.state_dict())
    with pytest.raises(headrace.HeadraceError):
        text_loader(texts).load_state_dict({"nonsense": 1})


# ---- bad samples ----


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> tuple[Path, set[str]]:
    """A copy of the photos with one wrong byte in two samples."""
    copy = tmp_path / "damaged"
    shutil.copytree(photos, copy)
    ds = headrace.open(photos)
    bad = {ds.key(8), ds.key(41)}
    for i in (8, 41):
        needle = ds[i]["jpg"]
        for tar in copy.glob("*.tar"):
            data = bytearray(tar.read_bytes())
            at = data.find(needle)
            if at >= 0:
                data[at + len(needle) // 2] ^= 0x10
                tar.write_bytes(data)
    return copy, bad


def test_raise_names_the_place(damaged: tuple[Path, set[str]]) -> None:
    path, bad = damaged
    with pytest.raises(headrace.DataLossError) as caught:
        keys_of(headrace.open(path).loader(batch_size=60))
    assert caught.value.key in bad
    assert caught.value.shard.endswith(".tar")
    assert caught.value.offset is not None and caught.value.field == "jpg"


def test_skip_and_replace_move_no_other(damaged: tuple[Path, set[str]], photos: Path) -> None:
    path, bad = damaged
    good = keys_of(headrace.open(photos).loader(batch_size=10, fields=["cls"]))
    # The version is that of the manifest, so the order is the same.
    assert headrace.open(path).version == headrace.open(photos).version
    skip = keys_of(headrace.open(path).loader(batch_size=10, on_error="skip"))
    assert skip == [[k for k in batch if k not in bad] for batch in good]
    quarantine = path / "bad.jsonl"
    replace = [
        keys_of(
            headrace.open(path).loader(
                batch_size=10, on_error="replace", threads=t, quarantine=quarantine
            )
        )
        for t in (1, 4)
    ]
    assert replace[0] == replace[1]
    for batch, reference in zip(replace[0], good, strict=True):
        assert len(batch) == 10
        assert all(k == r for k, r in zip(batch, reference, strict=True) if r not in bad)
        assert not bad & set(batch)
    lines = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert {line["key"] for line in lines} >= bad
    assert all(line["action"] == "replaced" and line["shard"] for line in lines)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_resume_with_bad_samples_and_another_world_size(
    damaged: tuple[Path, set[str]], policy: str
) -> None:
    def loaders(world: int) -> list[headrace.Loader]:
        return [
            headrace.open(damaged[0]).loader(
                global_batch_size=12, on_error=policy, rank=r, world_size=world, fields=["jpg"]
            )
            for r in range(world)
        ]

    whole = [sorted(keys) for keys in keys_of(loaders(1)[0])]
    for stop in range(len(whole)):
        first = loaders(2)
        iterators = [iter(loader) for loader in first]
        stream = [sorted(k for i in iterators for k in next(i)["__key__"]) for _ in range(stop)]
        second = loaders(3)
        for loader in second:
            loader.load_state_dict(first[1].state_dict())
        parts = [keys_of(loader) for loader in second]
        stream += [sorted(k for part in b for k in part) for b in zip(*parts, strict=True)]
        assert stream == whole


def test_budget_ends_the_run(damaged: tuple[Path, set[str]]) -> None:
    loader = headrace.open(damaged[0]).loader(batch_size=10, on_error="skip", max_bad_samples=1)
    with pytest.raises(headrace.BudgetError, match="max_bad_samples=1"):
        keys_of(loader)


def test_python_transform_that_raises_follows_the_policy(texts: Path) -> None:
    def odd(data: bytes) -> int:
        value = int(data)
        if value % 50 == 7:
            raise ValueError("seven")
        return value

    settings = {"transforms": {"cls": odd}, "fields": ["cls", "txt"]}
    with pytest.raises(headrace.DataLossError, match="seven"):
        keys_of(text_loader(texts, **settings))
    good = keys_of(text_loader(texts))
    skip = keys_of(text_loader(texts, on_error="skip", max_bad_rate=1.0, **settings))
    assert skip == [[k for k in batch if int(k) % 50 != 7] for batch in good]
    for batch in text_loader(texts, on_error="replace", max_bad_rate=1.0, **settings):
        assert len(batch["__key__"]) == 16
        assert batch["cls"].tolist() == [int(k) for k in batch["__key__"]]
        assert [len(t) for t in batch["txt"]] == [int(k) % 37 for k in batch["__key__"]]
        assert not any(int(k) % 50 == 7 for k in batch["__key__"])


def test_a_fault_of_a_python_transform_has_its_place_and_its_line(
    texts: Path, tmp_path: Path
) -> None:
    def odd(data: bytes) -> int:
        if data == b"57":
            raise ValueError("seven")
        return int(data)

    for policy, action in (("raise", "raised"), ("skip", "skipped"), ("replace", "replaced")):
        quarantine = tmp_path / f"{policy}.jsonl"
        loader = text_loader(
            texts, transforms={"cls": odd}, on_error=policy, quarantine=quarantine, tail="pad"
        )
        if policy == "raise":
            with pytest.raises(headrace.DataLossError, match="seven") as caught:
                keys_of(loader)
            assert caught.value.shard.endswith(".tar") and caught.value.offset is not None
            assert (caught.value.key, caught.value.field) == ("0057", "cls")
        else:
            keys_of(loader)
        line = json.loads(quarantine.read_text().splitlines()[0])
        assert (line["key"], line["field"], line["action"]) == ("0057", "cls", action)
        assert line["shard"].endswith(".tar") and line["offset"] is not None
        assert loader.stats()["bad_samples"] == len(quarantine.read_text().splitlines())


@pytest.mark.parametrize("output,kind", [("torch", torch.Tensor), ("numpy", np.ndarray)])
def test_results_of_python_transforms_come_as_asked_for(
    texts: Path, output: str, kind: type
) -> None:
    transforms = {"cls": int, "txt": lambda data: np.array([len(data)], np.int32)}
    for batch in text_loader(texts, transforms=transforms, output=output):
        assert isinstance(batch["cls"], kind) and isinstance(batch["txt"], kind)
        assert batch["cls"].tolist() == [int(k) for k in batch["__key__"]]


def test_bad_images_and_unusual_ones(tmp_path: Path) -> None:
    import io

    from PIL import Image

    def encoded(kind: str, mode: str = "RGB") -> bytes:
        out = io.BytesIO()
        Image.linear_gradient("L").convert(mode).save(out, kind)
        return out.getvalue()

    good = {"plain": encoded("JPEG"), "png": encoded("PNG"), "gray": encoded("JPEG", "L")}
    bomb = bytearray(good["plain"])
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5 : at + 9] = b"\xff" * 4
    bad = {
        "text": b"This is not an image.",
        "cut": good["plain"][: len(good["plain"]) // 3],
        "empty": b"",
        "bomb": bytes(bomb),
    }
    root = tmp_path / "images"
    (root / "a").mkdir(parents=True)
    for name, data in {**good, **bad}.items():
        (root / "a" / f"{name}.jpg").write_bytes(data)
    quarantine = tmp_path / "bad.jsonl"
    ds = headrace.open(root)
    batch = next(
        iter(
            ds.loader(
                batch_size=7,
                transforms={"jpg": T.imagenet_eval(64, dtype="uint8")},
                fields=["jpg"],
                on_error="skip",
                quarantine=quarantine,
                output="numpy",
                shuffle=False,
            )
        )
    )
    names = [Path(k).name for k in batch["__key__"]]
    assert sorted(names) == sorted(good)
    lines = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert {Path(line["key"]).name for line in lines} == set(bad)
    for line in lines:
        assert line["reason"] and line["field"] == "jpg" and line["offset"] is not None
        assert line["shard"] == f"{root}/{line['key']}.jpg"
    pixels = dict(zip(names, batch["jpg"].astype(int), strict=True))
    for name in ("png", "gray"):  # a PNG called .jpg, and one component
        assert abs(pixels[name] - pixels["plain"]).max() <= 8


def test_missing_field_is_named(texts: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match=r"jpg.*cls"):
        text_loader(texts, transforms={"jpg": T.imagenet_train(8)})


# ---- processes and memory ----


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    """Run it; on a busy machine it may take minutes."""
    return subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("autotune", ["off", "on"])
def test_interpreter_exit_with_a_live_loader(texts: Path, autotune: str) -> None:
    done = run_script(
        f"import headrace\nl = headrace.open({os.fspath(texts)!r}).loader(batch_size=4, threads=4,"
        f" autotune={autotune!r})\ni = iter(l)\nnext(i)\nprint('ok')"
    )
    assert done.returncode == 0 and done.stdout.strip() == "ok", done.stderr


def test_ctrl_c_while_waiting(texts: Path) -> None:
    body = f"""
import headrace, os, signal, threading
from headrace import transforms as T
started, interrupted = threading.Event(), threading.Event()
def held(data):
    started.set()
    while not interrupted.wait(0.05):  # a signal that comes right before a wait does not end it
        pass
l = headrace.open({os.fspath(texts)!r}).loader(batch_size=400, threads=1,
    transforms={{"cls": T.python(held)}})
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
def press():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=press).start()
    next(iter(l))  # there is no batch before the interrupt
except KeyboardInterrupt:
    print("interrupted")
interrupted.set()
"""
    done = run_script(body)
    assert done.stdout.strip() == "interrupted", done.stderr


def test_loader_in_a_forked_child_says_so(texts: Path) -> None:
    body = f"""
import headrace, os, sys
l = headrace.open({os.fspath(texts)!r}).loader(batch_size=4)
i = iter(l)
next(i)
pid = os.fork()
if pid == 0:
    try:
        next(i)
    except headrace.StateError as e:
        ok = "fork" in str(e)
        l2 = headrace.open({os.fspath(texts)!r}).loader(batch_size=4)
        ok = ok and len(next(iter(l2))["__key__"]) == 4
        l2.close()
        del l, i
        sys.exit(0 if ok else 1)
    sys.exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
next(i)
print("ok")
"""
    done = run_script(body)
    assert done.stdout.strip() == "ok", done.stderr


def test_state_and_stats_in_a_forked_child_say_so(texts: Path) -> None:
    # Whatever the threads held at the moment of the fork: no call waits for a lock of theirs.
    body = f"""
import headrace, os, signal
l = headrace.open({os.fspath(texts)!r}).loader(batch_size=4, threads=3)
state = l.state_dict()
i = iter(l)
for n in range(40):
    next(i)
    pid = os.fork()
    if pid == 0:
        signal.alarm(200)
        refused = 0
        for call in (l.state_dict, l.stats, lambda: l.load_state_dict(state), lambda: iter(l)):
            try:
                call()
            except headrace.StateError as e:
                refused += "fork" in str(e)
        l.close()
        os._exit(0 if refused == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("ok")
"""
    done = run_script(body)
    assert done.stdout.strip() == "ok", done.stderr


def test_threads_that_the_system_refused_are_started_by_the_next_try(texts: Path) -> None:
    body = f"""
import headrace, resource
l = headrace.open({os.fspath(texts)!r}).loader(batch_size=4, threads=2)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), resource.RLIM_INFINITY))
try:
    iter(l)
except headrace.BudgetError:
    print("refused")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(list(l)))
"""
    done = run_script(body)
    assert done.stdout.split() == ["refused", "100"], done.stderr


def test_a_batch_that_no_machine_can_hold_is_an_error(texts: Path) -> None:
    body = f"""
import headrace, resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))
l = headrace.open({os.fspath(texts)!r}).loader(batch_size=2**31, tail="pad", threads=2)
try:
    next(iter(l))
except headrace.BudgetError as e:
    print("memory_bytes" in str(e))
"""
    done = run_script(body)
    assert done.stdout.strip() == "True", done.stderr


def test_bytes_belong_to_the_loop_alone_once_the_batch_is_gone(texts: Path) -> None:
    iterator = iter(text_loader(texts))
    value = next(v for v in next(iterator)["txt"] if len(v) > 1)
    gc.collect()
    assert sys.getrefcount(value) == 2  # `value`, and the argument


def test_a_loader_is_not_a_dataloader_that_a_launcher_would_shard_again(texts: Path) -> None:
    loader = text_loader(texts)
    assert not isinstance(loader, torch.utils.data.DataLoader)
    assert not isinstance(loader, torch.utils.data.IterableDataset)


@pytest.mark.parametrize("shards", [1, 3])
def test_few_shards_give_every_rank_as_many_batches(
    tmp_path: Path, run_headrace: Callable[..., str], shards: int
) -> None:
    root = tmp_path / "source"
    root.mkdir()
    for i in range(60):
        (root / f"{i:03}.cls").write_text(str(i))
    run_headrace("pack", root, tmp_path / "d", "--shard-samples", str(60 // shards), "--quiet")
    for world in (2, 4, 7):
        ranks = [
            keys_of(text_loader(tmp_path / "d", global_batch_size=14, rank=r, world_size=world))
            for r in range(world)
        ]
        assert {len(r) for r in ranks} == {4}
        assert len({k for r in ranks for b in r for k in b}) == 56


def test_forks_while_threads_decode(photos: Path) -> None:
    body = f"""
import headrace, os, signal
from headrace import transforms as T
ds = headrace.open({os.fspath(photos)!r})
l = ds.loader(batch_size=6, threads=2, transforms={{"jpg": T.imagenet_train(96)}})
children = []
n = 0
while n < 200:
    for batch in l:
        pid = os.fork()
        if pid == 0:
            signal.alarm(200)
            os._exit(0 if len(ds[n % 60]["jpg"]) > 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        n += 1
print("ok")
"""
    done = run_script(body)
    assert done.stdout.strip() == "ok", done.stderr


def counts() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def test_abandoned_iterators_leak_nothing(photos: Path) -> None:
    ds = headrace.open(photos)
    for _ in ds.loader(batch_size=5, transforms={"cls": T.label()}):
        pass  # every shard is open now
    gc.collect()
    before = counts()
    for _ in range(200):
        loader = ds.loader(batch_size=5, threads=2, transforms={"cls": T.label()})
        next(iter(loader))
    del loader
    gc.collect()
    while counts()[0] > before[0]:  # the system takes a thread that has ended off the list later
        time.sleep(0.001)
    assert counts()[1] <= before[1]


def test_several_loaders_and_a_context_manager(texts: Path) -> None:
    ds = headrace.open(texts)
    with ds.loader(batch_size=8, seed=1) as a, ds.loader(batch_size=8, seed=1) as b:
        for x, y in zip(a, b, strict=True):
            assert x["__key__"] == y["__key__"]
    with pytest.raises(headrace.CancelledError):
        next(iter(a))


def test_several_processes_on_one_dataset(texts: Path) -> None:
    body = (
        "import headrace, json, os\n"
        f"l = headrace.open({os.fspath(texts)!r}).loader(global_batch_size=30, threads=2)\n"
        "print(json.dumps([b['__key__'] for b in l]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", body],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"},
        )
        for rank in range(3)
    ]
    ranks = [json.loads(process.communicate(timeout=240)[0]) for process in processes]
    whole = keys_of(text_loader(texts, global_batch_size=30))
    for b, batch in enumerate(whole):
        assert sorted(k for rank in ranks for k in rank[b]) == sorted(batch)


def test_a_new_iterator_ends_the_old_one(texts: Path) -> None:
    loader = text_loader(texts)
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(headrace.StateError, match="newer"):
        next(old)
    assert len(next(new)["__key__"]) == 16


def test_memory_budget_too_small_says_what_is_needed(photos: Path) -> None:
    loader = headrace.open(photos).loader(
        batch_size=30, memory_bytes="1MiB", transforms={"jpg": T.imagenet_train(224)}
    )
    with pytest.raises(headrace.BudgetError, match="memory_bytes"):
        next(iter(loader))


def test_stats_name_the_stages(photos: Path) -> None:
    loader = headrace.open(photos).loader(
        batch_size=10, transforms={"jpg": T.imagenet_train(64), "cls": T.label()}
    )
    keys_of(loader)
    stats = loader.stats()
    assert {"plan", "read", "checksum", "decode", "transform", "queue"} <= set(stats["stages"])
    assert stats["delivered_samples"] == 60
    assert 0 <= stats["input_stall"] <= 1 and stats["au"] == 1 - stats["input_stall"]
    assert stats["stages"]["read"]["bytes"] > 60 * 1000


@pytest.mark.parametrize(
    "settings,word",
    [
        ({}, "exactly one"),
        ({"batch_size": 1, "global_batch_size": 1}, "exactly one"),
        ({"batch_size": 0}, "batch size"),
        ({"batch_size": 4, "rank": 1}, "both rank and world_size"),
        ({"batch_size": 4, "rank": 4, "world_size": 4}, "rank"),
        ({"batch_size": 4, "on_error": "ignore"}, "on_error"),
        ({"batch_size": 4, "tail": "cut"}, "tail"),
        ({"batch_size": 4, "memory_bytes": "lots"}, "64MiB"),
        ({"batch_size": 4, "threads": 0}, "threads"),
        ({"batch_size": 4, "seed": -1}, "seed"),
        ({"batch_size": 4, "lanes": 1000}, "lanes"),
        ({"batch_size": 4, "lanes": 2**40}, "lanes"),
        ({"batch_size": 2.5}, "batch_size: expected a whole number, found 2.5"),
        ({"batch_size": "4"}, "batch_size: expected a whole number, found '4'"),
        ({"global_batch_size": None, "batch_size": "4"}, "batch_size"),
        ({"batch_size": 4, "max_bad_rate": 5}, "max_bad_rate: expected 0 to 1, found 5"),
        ({"batch_size": 4, "max_bad_rate": float("nan")}, "max_bad_rate"),
        ({"batch_size": 4, "threads": 2**40}, "threads"),
        ({"batch_size": 4, "memory_bytes": -1}, "memory_bytes"),
        ({"batch_size": 4, "tail": None}, "tail"),
        ({"batch_size": 4, "output": "jax"}, "output"),
        ({"batch_size": 401}, "drop"),
        ({"global_batch_size": 2, "rank": 0, "world_size": 4}, "world"),
    ],
)
def test_settings_that_make_no_sense(texts: Path, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=word):
        headrace.open(texts).loader(**settings)


def test_errors_pickle() -> None:
    import pickle

    error = headrace.errors.from_status(10, "wrong", "s.tar", 7, "k", "jpg")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is headrace.DataLossError
    assert (str(again), again.offset, again.code) == (str(error), 7, 10)


def test_sigterm_ends_the_process_at_once(texts: Path) -> None:
    body = (
        f"import headrace\nl = headrace.open({os.fspath(texts)!r}).loader(batch_size=4, threads=2)\n"
        "print('go', flush=True)\nwhile True:\n  for b in l: pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "go"
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == -signal.SIGTERM
