"""Seek points seen from Python: regions of images, and what the loader's statistics say."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import headrace
from headrace import transforms as T


def make_photo(rng: random.Random, width: int, height: int) -> Image.Image:
    """Return a picture with smooth parts and edges, different for each call."""
    noise = Image.effect_noise((width, height), 40).convert("RGB")
    tint = Image.new("RGB", (width, height), tuple(rng.randrange(256) for _ in range(3)))
    return Image.blend(tint, noise, 0.4)


def jpeg_bytes(image: Image.Image, **settings: object) -> bytes:
    """Return the image as a JPEG file."""
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 92, **settings})
    return out.getvalue()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, run_headrace: Callable[..., str]) -> Path:
    """Two baseline JPEGs, a grey one, a progressive one, CMYK, one turned by Exif, and a PNG."""
    root = tmp_path_factory.mktemp("mixed-source")
    rng = random.Random(3)
    photo = make_photo(rng, 240, 160)
    exif = Image.Exif()
    exif[0x0112] = 6
    png = io.BytesIO()
    photo.save(png, "PNG")
    files = {
        "0": jpeg_bytes(photo),
        "1": jpeg_bytes(make_photo(rng, 300, 200), subsampling=0),
        "2": jpeg_bytes(photo.convert("L")),
        "3": jpeg_bytes(photo, progressive=True),
        "4": jpeg_bytes(photo.convert("CMYK")),
        "5": jpeg_bytes(photo, exif=exif),
        "6": png.getvalue(),
    }
    for key, data in files.items():
        (root / f"{key}.img").write_bytes(data)
    target = tmp_path_factory.mktemp("mixed") / "set"
    run_headrace("pack", root, target, "--quiet")
    return target


def upright(data: bytes) -> np.ndarray:
    """Decode with Pillow, turned as Exif says."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("key", ["0", "1", "2", "3", "5", "6"])
def test_a_region_is_that_of_the_whole_image(mixed: Path, key: str) -> None:
    dataset = headrace.open(str(mixed))
    data = dataset.read(key, "img")
    assert isinstance(data, bytes)
    whole = upright(data)
    height, width = whole.shape[:2]
    for x, y, w, h in [(0, 0, width, height), (17, 23, 50, 40), (width - 1, height - 1, 1, 1)]:
        region = dataset.read(key, "img", region=(x, y, w, h))
        assert region.shape == (h, w, 3) and region.dtype == "uint8"
        np.testing.assert_array_equal(region.numpy(), whole[y : y + h, x : x + w])


def test_a_region_in_luma_and_by_number(mixed: Path) -> None:
    dataset = headrace.open(str(mixed))
    grey = dataset.read(2, "img", region=(5, 6, 7, 8), channels=1)
    whole = np.asarray(Image.open(io.BytesIO(dataset.read(2, "img"))))
    np.testing.assert_array_equal(grey.numpy()[:, :, 0], whole[6:14, 5:12])


def test_regions_outlive_each_other(mixed: Path) -> None:
    dataset = headrace.open(str(mixed))
    regions = [dataset.read("0", "img", region=(i, i, 9, 9)).numpy() for i in range(20)]
    del dataset
    assert len({region.tobytes() for region in regions}) > 1


@pytest.mark.parametrize(
    "region",
    [(0, 0, 241, 1), (-1, 0, 5, 5), (0, 0, 0, 5), (240, 0, 1, 1), (0, 0, 5), (0, 0, 1 << 32, 1)],
)
def test_a_region_outside_is_an_error(mixed: Path, region: tuple[int, int, int, int]) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.open(str(mixed)).read("0", "img", region=region)


def test_what_is_no_image_or_not_there(mixed: Path) -> None:
    dataset = headrace.open(str(mixed))
    with pytest.raises(headrace.NotFoundError):
        dataset.read("nobody", "img")
    with pytest.raises(headrace.NotFoundError):
        dataset.read("0", "cls", region=(0, 0, 1, 1))
    with pytest.raises(headrace.InvalidArgumentError):
        dataset.read("0", "img", region=(0, 0, 1, 1), channels=2)


def test_an_image_that_cannot_be_decoded_is_named_with_its_place(
    tmp_path: Path, run_headrace: Callable[..., str]
) -> None:
    cut = jpeg_bytes(make_photo(random.Random(5), 80, 60))[:1000]
    (tmp_path / "source").mkdir()
    for key in ("0", "1"):
        (tmp_path / "source" / f"{key}.img").write_bytes(cut + key.encode())
    run_headrace("pack", tmp_path / "source", tmp_path / "set", "--quiet")
    with pytest.raises(headrace.DataLossError, match="truncated") as caught:
        headrace.open(tmp_path / "set").read("1", "img", region=(0, 0, 1, 1))
    shard = (tmp_path / "set" / caught.value.shard).read_bytes()
    assert (caught.value.key, caught.value.field) == ("1", "img")
    assert caught.value.offset == shard.index(cut + b"1")


def decode_counts(path: Path, epochs: int) -> dict[str, int]:
    """Run a loader over some epochs, a batch each, and return what it counted."""
    dataset = headrace.open(str(path))
    image = T.imagenet_train(32, dtype="uint8")
    with dataset.loader(
        batch_size=7, transforms={"img": image}, threads=2, seed=1, memory_bytes=1 << 20
    ) as loader:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            for _ in loader:
                pass
        loader.close()
        counts: dict[str, int] = loader.stats()["decode"]
        return counts


def test_stats_say_how_images_were_decoded(mixed: Path) -> None:
    counts = decode_counts(mixed, 3)
    assert set(counts) == {"seek_points", "progressive", "color_space", "not_jpeg"}
    assert counts["seek_points"] >= 3 * 4
    for other in ("progressive", "color_space", "not_jpeg"):
        assert counts[other] >= 3


def test_stats_without_seek_points(
    photo_folder: Path, tmp_path: Path, run_headrace: Callable[..., str]
) -> None:
    run_headrace("pack", photo_folder, tmp_path / "set", "--seek-points=off", "--quiet")
    dataset = headrace.open(str(tmp_path / "set"))
    with dataset.loader(
        batch_size=20, transforms={"jpg": T.imagenet_train(32, dtype="uint8")}, threads=2
    ) as loader:
        for _ in loader:
            pass
        assert set(loader.stats()["decode"]) == {"no_record"}
