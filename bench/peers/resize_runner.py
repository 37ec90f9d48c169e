"""Resizers alone, on pixels in memory: `resize_runner.py NAME PIXELS SECONDS`.

pillow          Image.resize with the bilinear filter: antialiased, what Headrace computes too
opencv-area     cv2.resize with INTER_AREA where it shrinks: OpenCV's way to avoid aliasing
opencv-linear   cv2.resize with INTER_LINEAR: four pixels for each, whatever the scale

`resize_runner.py pixels FILE_LIST PIXELS COUNT` decodes a random crop of COUNT files into PIXELS: width
and height as 32-bit integers, then rows of RGB, one image after the other. All results are 224 x 224
uint8, one thread.
"""

from __future__ import annotations

import math
import random
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
from PIL import Image
from protocol import SEED, SIZE, Stopwatch, emit, rates

HEADER = struct.Struct("=II")


def random_box(width: int, height: int, draw: random.Random) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a crop like those of the train pipeline."""
    while True:
        area = width * height * draw.uniform(0.08, 1.0)
        ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = draw.randint(0, width - w), draw.randint(0, height - h)
            return left, top, left + w, top + h


def write_pixels(file_list: Path, target: Path, count: int) -> None:
    """Decode `count` of the listed files, evenly chosen."""
    names = file_list.read_text().splitlines()
    draw = random.Random(SEED)
    partial = target.with_suffix(".partial")
    with partial.open("wb") as out:
        for name in names[:: max(1, len(names) // count)][:count]:
            image = Image.open(name).convert("RGB")
            crop = image.crop(random_box(*image.size, draw))
            out.write(HEADER.pack(*crop.size) + crop.tobytes())
    partial.rename(target)
    emit({"result": {"samples": count}})


def read_pixels(path: Path) -> list[numpy.ndarray]:
    """The images of a file of pixels."""
    data = memoryview(path.read_bytes())
    images, offset = [], 0
    while offset < len(data):
        width, height = HEADER.unpack_from(data, offset)
        offset += HEADER.size
        pixels = numpy.frombuffer(data, numpy.uint8, 3 * width * height, offset)
        images.append(pixels.reshape(height, width, 3))
        offset += 3 * width * height
    return images


def resizer(name: str) -> tuple[Callable, Callable]:
    """What makes an image of the library's own kind, and what resizes it."""
    if name == "pillow":
        return Image.fromarray, lambda image: image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    import cv2

    cv2.setNumThreads(1)

    def resize(image):
        shrinks = image.shape[0] > SIZE or image.shape[1] > SIZE
        area = name == "opencv-area" and shrinks
        return cv2.resize(
            image, (SIZE, SIZE), interpolation=cv2.INTER_AREA if area else cv2.INTER_LINEAR
        )

    return numpy.ascontiguousarray, resize


def measure(name: str, path: Path, seconds: float) -> None:
    """Resize all images again and again, at least once after a first time that warms up."""
    prepare, resize = resizer(name)
    images = [prepare(pixels) for pixels in read_pixels(path)]
    for image in images:
        resize(image)
    watch, count = Stopwatch(), 0
    deadline = time.monotonic() + seconds
    while count == 0 or time.monotonic() < deadline:
        for image in images:
            resize(image)
        count += len(images)
    emit({"result": rates(count, watch.read())})


if __name__ == "__main__":
    if sys.argv[1] == "pixels":
        write_pixels(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        measure(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
