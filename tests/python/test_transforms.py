"""Transforms against Pillow and NumPy, through the Python face."""

from __future__ import annotations

import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

import headrace
from headrace import transforms as T

PHOTO = Path(__file__).resolve().parents[1] / "compat" / "codec" / "photo.jpg"


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    noise = rng.integers(-12, 13, smooth.shape)
    return Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))


def encode(image: Image.Image, format: str, **settings: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **settings)
    return out.getvalue()


def pillow(data: bytes, size: tuple[int, int], *, columns_first: bool = True) -> Any:
    """Return Pillow's pixels as integers.

    Pillow up to 12 resamples the columns first; later ones take the rows first where that is
    cheaper. Two steps force the former.
    """
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if columns_first:
        image = image.resize((size[0], image.height), Image.Resampling.BILINEAR)
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR)).astype(int)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_resize_agrees_with_pillow(seed: int, format: str) -> None:
    rng = random.Random(seed)
    width, height = rng.randrange(20, 400), rng.randrange(20, 400)
    out_w, out_h = rng.randrange(1, 300), rng.randrange(1, 300)
    settings = {"quality": 95, "subsampling": seed % 3} if format == "JPEG" else {}
    data = encode(picture(width, height, seed), format, **settings)
    resize = T.image([T.resize((out_h, out_w))], dtype="uint8", layout="NHWC")
    ours = resize(data).numpy().astype(int)
    assert np.array_equal(ours, pillow(data, (out_w, out_h)))


def test_crops_of_a_training_run_agree_with_any_pillow() -> None:
    rng = random.Random(1)
    means = []
    for i in range(40):
        width, height = rng.randrange(150, 450), rng.randrange(150, 450)
        data = encode(picture(width, height, i), "JPEG", quality=92)
        ours = T.image([T.resize((224, 224))], dtype="uint8", layout="NHWC")(data).numpy()
        difference = np.abs(ours.astype(int) - pillow(data, (224, 224), columns_first=False))
        assert difference.max() <= 1
        means.append(difference.mean())
    assert np.mean(means) <= 0.1


def test_eval_recipe_is_resize_then_center_crop() -> None:
    data = encode(picture(300, 200), "JPEG", quality=95)
    ours = T.imagenet_eval(96, short_side=128, dtype="uint8", layout="NHWC")(data).numpy()
    whole = pillow(data, (192, 128))
    expected = whole[16 : 16 + 96, 48 : 48 + 96]
    difference = np.abs(ours.astype(int) - expected)
    assert difference.max() <= 1 and difference.mean() <= 0.1


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(("grain", "mean", "psnr"), [(0, 0.6, 49), (25, 1.7, 41)])
def test_fast_is_near_pillow(subsampling: str, grain: int, mean: float, psnr: float) -> None:
    photo = np.asarray(Image.open(PHOTO).convert("RGB").resize((900, 700))).astype(int)
    noise = np.random.default_rng(1).integers(-grain, grain + 1, (350, 450, 3))
    photo = np.clip(photo + noise.repeat(2, 0).repeat(2, 1), 0, 255)
    fast = T.image([T.resize((200, 224))], dtype="uint8", layout="NHWC", quality="fast")
    differences = []
    for i in range(6):
        piece = photo[40 * i : 40 * i + 400, 80 * i : 80 * i + 450].astype(np.uint8)
        data = encode(Image.fromarray(piece), "JPEG", quality=85, subsampling=subsampling)
        differences.append(fast(data).numpy().astype(int) - pillow(data, (224, 200)))
    assert np.abs(differences).mean() <= mean
    assert 10 * np.log10(255**2 / np.square(differences).mean()) >= psnr


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright(format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(picture(90, 60), format, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    size = (upright.height, upright.width)
    ours = T.image([T.center_crop(size)], dtype="uint8", layout="NHWC")(data).numpy()
    assert np.array_equal(ours, np.asarray(upright))
    stored = T.image(
        [T.center_crop((60, 90))], dtype="uint8", layout="NHWC", exif_orientation="ignore"
    )(data)
    assert np.array_equal(stored.numpy(), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("lossless", [False, True])
def test_webp_agrees_with_pillow(lossless: bool) -> None:
    data = encode(picture(150, 110), "WEBP", lossless=lossless)
    ours = T.image([T.resize((64, 48))], dtype="uint8", layout="NHWC")(data).numpy()
    assert np.array_equal(ours.astype(int), pillow(data, (48, 64)))


def test_each_colour_adjustment_agrees_with_pillow() -> None:
    data = encode(picture(60, 40), "PNG")
    image = Image.open(io.BytesIO(data))
    for name, enhance in (
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("saturation", ImageEnhance.Color),
    ):
        op = T.color_jitter(**{name: (1.7, 1.7)})
        ours = T.image([T.center_crop((40, 60)), op], dtype="uint8", layout="NHWC")(data)
        assert np.array_equal(ours.numpy(), np.asarray(enhance(image).enhance(1.7))), name
    gray = T.image([T.center_crop((40, 60)), T.random_grayscale(1)], dtype="uint8", layout="NHWC")
    assert np.array_equal(gray(data).numpy(), np.asarray(image.convert("L").convert("RGB")))


def test_numbers_stand_for_torchvisions_limits() -> None:
    op = T.color_jitter(0.4, 1.5, (0.2, 0.3), 0.1)
    assert op["brightness"] == [0.6, 1.4] and op["contrast"] == [0, 2.5]
    assert op["saturation"] == [0.2, 0.3] and op["hue"] == [-0.1, 0.1]
    assert T.gaussian_blur(5, 1.5)["sigma"] == [1.5, 1.5]


def test_streams_draw_independently() -> None:
    data = encode(picture(200, 150), "JPEG")
    ops = [T.random_resized_crop(32), T.random_horizontal_flip()]
    plain, zero, one = (T.image(ops, dtype="uint8", stream=s) for s in (None, 0, 1))
    same = sum(
        np.array_equal(plain(data, sample_id=i).numpy(), one(data, sample_id=i).numpy())
        for i in range(20)
    )
    assert same == 0
    assert np.array_equal(plain(data).numpy(), zero(data).numpy())
    assert plain.with_stream(1)._description == one._description
    assert zero.with_stream(1) == zero


def test_boxes_follow_their_image() -> None:
    data = encode(picture(100, 50), "PNG")
    image = T.image([T.resize((100, 50)), T.random_horizontal_flip(1)], dtype="uint8")
    boxes = T.boxes(2)(b"[[10, 10, 20, 30]]", after=(image, data)).numpy()
    assert boxes.tolist() == [[40, 20, 45, 60, 1], [0, 0, 0, 0, -1]]
    with pytest.raises(headrace.InvalidArgumentError, match="image of the same sample"):
        T.boxes(2)(b"[]")


def test_every_type_and_layout_holds_the_same_pixels() -> None:
    data = encode(picture(120, 90), "JPEG")
    ops = [T.random_resized_crop(48), T.random_horizontal_flip()]
    key = {"seed": 3, "epoch": 1, "sample_id": 9}
    base = T.image(ops, dtype="uint8")(data, **key).numpy()
    assert base.shape == (3, 48, 48)
    nhwc = T.image(ops, dtype="uint8", layout="NHWC")(data, **key).numpy()
    assert np.array_equal(nhwc.transpose(2, 0, 1), base)
    mean = np.array(T.IMAGENET_MEAN, np.float32)[:, None, None]
    std = np.array(T.IMAGENET_STD, np.float32)[:, None, None]
    expected = (base.astype(np.float32) / 255 - mean) / std
    f32 = T.image([*ops, T.normalize()], dtype="float32")(data, **key).numpy()
    assert np.abs(f32 - expected).max() < 1e-5
    f16 = T.image([*ops, T.normalize()], dtype="float16")(data, **key).numpy()
    assert np.array_equal(f16, f32.astype(np.float16))
    import torch

    bf16 = T.image([*ops, T.normalize()], dtype="bfloat16")(data, **key).torch()
    assert torch.equal(bf16, torch.from_numpy(f32).bfloat16())


def test_draws_depend_on_seed_epoch_and_sample_only() -> None:
    data = encode(picture(120, 90), "JPEG")
    crop = T.imagenet_train(32, dtype="uint8")

    def pixels(**key: int) -> bytes:
        return crop(data, **key).numpy().tobytes()

    base = {"seed": 1, "epoch": 2, "sample_id": 3}
    assert pixels(**base) == pixels(**base)
    results = {pixels(**{**base, name: 7}) for name in base} | {pixels(**base)}
    assert len(results) == 4


def test_half_of_the_pictures_are_flipped() -> None:
    data = encode(picture(64, 64), "PNG")
    flip = T.image([T.resize((64, 64)), T.random_horizontal_flip()], dtype="uint8")
    straight = T.image([T.resize((64, 64))], dtype="uint8")(data).numpy()
    flipped = sum(
        not np.array_equal(flip(data, sample_id=i).numpy(), straight) for i in range(1000)
    )
    assert 430 < flipped < 570


@pytest.mark.parametrize(
    "mode,format,settings",
    [
        ("L", "JPEG", {}),
        ("CMYK", "JPEG", {}),
        ("RGB", "JPEG", {"progressive": True}),
        ("RGB", "JPEG", {"restart_marker_rows": 1}),
        ("L", "PNG", {}),
        ("P", "PNG", {}),
        ("RGBA", "PNG", {}),
        ("1", "PNG", {}),
    ],
)
def test_kinds_of_pictures_are_read_as_pillow_does(
    mode: str, format: str, settings: dict[str, Any]
) -> None:
    data = encode(picture(61, 47).convert(mode), format, **settings)
    ours = T.image([T.resize((47, 61))], dtype="uint8", layout="NHWC")(data).numpy()
    assert np.abs(ours.astype(int) - pillow(data, (61, 47))).max() <= (1 if mode == "CMYK" else 0)


@pytest.mark.parametrize(
    "text,expected",
    [(b"7\n", 7), (b" -12 ", -12), (b"[3]", None), (b"", None), (b"seven", None), (b"1.5", None)],
)
def test_labels_from_text(text: bytes, expected: int | None) -> None:
    label = T.label()
    if expected is None:
        with pytest.raises(headrace.HeadraceError):
            label(text)
    else:
        assert label(text).numpy() == expected


def test_labels_from_json_and_numpy() -> None:
    data = json.dumps({"ann": {"class": 5, "box": [1, 2.5, 3, 4]}}).encode()
    assert T.label(path="/ann/class")(data).numpy() == 5
    box = T.label(path="/ann/box", dtype="float32", shape=(4,))(data).numpy()
    assert box.tolist() == [1, 2.5, 3, 4]
    out = io.BytesIO()
    np.save(out, np.arange(6, dtype=np.int16).reshape(2, 3))
    assert T.label(shape=(2, 3))(out.getvalue()).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(headrace.HeadraceError, match="shape"):
        T.label(shape=(3, 2))(out.getvalue())
    with pytest.raises(headrace.HeadraceError):
        T.label(dtype="uint8")(b"256")


@pytest.mark.parametrize(
    "data,words",
    [
        (b"", "empty|0 bytes|no bytes"),
        (b"GIF89a.....", "not an image|JPEG|PNG"),
        (b"\xff\xd8\xff", "JPEG"),
        (encode(picture(200, 200), "JPEG")[:4000], "JPEG|end"),
        (encode(picture(200, 200), "PNG")[:4000], "PNG|end"),
    ],
)
def test_what_is_no_image_says_so(data: bytes, words: str) -> None:
    with pytest.raises(headrace.HeadraceError, match=words):
        T.imagenet_train(32)(data)


def test_a_bomb_is_refused_by_its_header() -> None:
    data = bytearray(encode(picture(64, 64), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(headrace.HeadraceError, match=r"65,?5"):
        T.imagenet_train(32)(bytes(data))


def test_transforms_pickle_and_compare() -> None:
    one = T.imagenet_train(64)
    assert pickle.loads(pickle.dumps(one)) == one != T.imagenet_train(65)
    assert one.shape == (3, 64, 64) and one.dtype == "float32"


@pytest.mark.parametrize(
    "make,word",
    [
        (lambda: T.image([]), "size|shape"),
        (lambda: T.image([T.resize(32)]), "size|shape"),
        (lambda: T.image([T.random_resized_crop(0)]), "size"),
        (lambda: T.image([T.random_resized_crop(8)], dtype="int3"), "dtype"),
        (lambda: T.image([T.random_resized_crop(8), T.normalize()], dtype="uint8"), "uint8"),
        (lambda: T.image([{"op": "rotate"}]), "rotate"),
        (lambda: T.image([T.random_resized_crop(8, scale=(2, 1))]), "scale"),
        (lambda: T.label(dtype="complex64"), "dtype"),
        (lambda: T.image([T.resize((8, 8))], exif_orientation="maybe"), "exif_orientation"),
        (lambda: T.image([T.resize((8, 8)), T.gaussian_blur(4)]), "kernel_size"),
        (lambda: T.image([T.resize((8, 8)), T.color_jitter(hue=0.7)]), "hue"),
        (lambda: T.boxes(0), "max_boxes"),
    ],
)
def test_descriptions_that_make_no_sense(make: Any, word: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=word):
        make()
