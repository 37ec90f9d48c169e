"""Several views of one field, and boxes that follow them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace
from headrace import transforms as T


@pytest.fixture(scope="module")
def detection(
    tmp_path_factory: pytest.TempPathFactory, run_headrace: Callable[..., str]
) -> headrace.Dataset:
    """Pictures with one white rectangle on black each, and where it is."""
    root = tmp_path_factory.mktemp("detection-source")
    rng = random.Random(3)
    for i in range(24):
        width, height = rng.randrange(60, 120), rng.randrange(60, 120)
        x, y = rng.randrange(5, 25), rng.randrange(5, 25)
        box = [x, y, x + rng.randrange(20, 30), y + rng.randrange(20, 30)]
        image = Image.new("L", (width, height))
        image.paste(255, tuple(box))
        exif = Image.Exif()
        exif[0x0112] = 1 + i % 8
        out = io.BytesIO()
        image.save(out, "PNG", exif=exif)
        (root / f"{i:04}.png").write_bytes(out.getvalue())
        (root / f"{i:04}.json").write_text(json.dumps({"boxes": [box]}))
    target = tmp_path_factory.mktemp("packed") / "detection.hr"
    run_headrace("pack", root, target, "--quiet")
    return headrace.open(target)


OPS = [T.random_resized_crop((80, 64), scale=(0.3, 1.0)), T.random_horizontal_flip()]


def image(**settings: Any) -> T.NativeTransform:
    return T.image(OPS, dtype="uint8", layout="NHWC", **settings)


def loaded(dataset: headrace.Dataset, transforms: Any) -> list[dict[str, Any]]:
    loader = dataset.loader(batch_size=8, threads=2, transforms=transforms, output="numpy")
    return list(loader)


def test_views_are_independent_and_streams_say_which(detection: headrace.Dataset) -> None:
    views = loaded(detection, {"png": {"a": image(), "b": image(), "c": image(stream=0)}})
    single = loaded(detection, {"png": image()})
    second = loaded(detection, {"png": image(stream=1)})
    for batch, first, other in zip(views, single, second, strict=True):
        assert set(batch["png"]) == {"a", "b", "c"}
        assert batch["png"]["a"].shape == (8, 80, 64, 3)
        assert np.array_equal(batch["png"]["a"], first["png"])
        assert np.array_equal(batch["png"]["b"], other["png"])
        assert np.array_equal(batch["png"]["c"], first["png"])
        assert not np.array_equal(batch["png"]["a"], batch["png"]["b"])
        assert all(isinstance(value, bytes) for value in batch["json"])


def check_boxes(pixels: Any, boxes: Any) -> int:
    """Compare boxes with where the white pixels are; return how many were visible."""
    visible = 0
    for picture, (x1, y1, x2, y2, state) in zip(pixels[..., 0], boxes[:, 0], strict=True):
        if state != 1:
            continue
        visible += 1
        rows, columns = np.nonzero(picture > 127)
        found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert np.abs(np.array(found) - (x1, y1, x2, y2)).max() <= 1
    return visible


@pytest.mark.parametrize("boxes_first", [False, True])
def test_boxes_follow_the_pixels(detection: headrace.Dataset, boxes_first: bool) -> None:
    transforms = {"png": image(), "json": T.boxes(4, path="/boxes")}
    if boxes_first:
        transforms = dict(reversed(transforms.items()))
    batches = loaded(detection, transforms)
    assert batches[0]["json"].shape == (8, 4, 5)
    assert all((batch["json"][:, 1:, 4] == -1).all() for batch in batches)
    assert sum(check_boxes(batch["png"], batch["json"]) for batch in batches) >= 12


def test_boxes_follow_the_view_of_their_name(detection: headrace.Dataset) -> None:
    boxes = T.boxes(1, path="/boxes")
    transforms = {"png": {"a": image(), "b": image()}, "json": {"b": boxes, "a": boxes}}
    for batch in loaded(detection, transforms):
        for view in "ab":
            check_boxes(batch["png"][view], batch["json"][view])
        assert not np.array_equal(batch["json"]["a"], batch["json"]["b"])


def test_boxes_and_labels_may_come_from_one_field(detection: headrace.Dataset) -> None:
    label = T.label(shape=(1, 4), dtype="float32", path="/boxes")
    for batch in loaded(
        detection, {"json": {"boxes": T.boxes(1, path="/boxes"), "as_is": label}, "png": image()}
    ):
        check_boxes(batch["png"], batch["json"]["boxes"])
        assert batch["json"]["as_is"].shape == (8, 1, 4)


def test_what_is_no_box_is_a_bad_sample(detection: headrace.Dataset) -> None:
    with pytest.raises(headrace.DataLossError, match="number"):
        loaded(detection, {"png": image(), "json": T.boxes(4, path="/boxes/0")})


@pytest.mark.parametrize("views", [{}, {"a": len}, {"a": None}])
def test_views_that_make_no_sense(detection: headrace.Dataset, views: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=r"transforms\['png'\]"):
        loaded(detection, {"png": views})
