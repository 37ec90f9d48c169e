#!/usr/bin/env python3
"""Makes the corpora of JPEGs beside the usual one of examples/photos.py.

    corpora.py dense|large|foreign OUT --cache DIR [--count N]

dense     2,000 images of about 500 x 375 to 640 x 480, rich in detail and finely quantized: 110 kB and
          more each, as ImageNet's are
large     300 images of 1600 x 1200
foreign   files that Pillow did not write: those that lie in Debian packages as their cameras and
          programs left them, in packaged/, and pieces of photographs that other encoders wrote, in
          encoded/: cjpeg with unusual options, mozjpeg, jpegli, libraries of the Independent JPEG Group

The photographs come from the Debian packages in PACKAGES, which are unpacked into the cache folder and
not installed. The same packages, count and version of the encoders give the same files. OUT is
written beside its final name and renamed at the end; OUT.json describes it, and says which encoder
was missing. Needs Pillow; the foreign encoders need jpeglib and pyjpegli (bench/peers/setup images).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import photos
from PIL import Image
from PIL import __version__ as pillow_version

SEED = 7
VERSION = 1  # of the recipes below: another one makes the corpora anew

# Photographs, most of them made for wallpapers.
PACKAGES = (
    "mate-backgrounds",
    "plasma-workspace-wallpapers",
    "lomiri-wallpapers-16.04",
    "lomiri-wallpapers-20.04",
)
# Files of all kinds of cameras and programs.
FOREIGN_PACKAGES = (
    *PACKAGES,
    "fotoxx-common",
    "kphotoalbum",
    "opencv-doc",
    "palapeli-data",
    "python3-skimage",
    "python3-sklearn",
    "ukui-wallpapers",
)
# Program -> the Debian package that it is unpacked from where it is not installed.
TOOLS = {"cjpeg": "libjpeg-turbo-progs", "jpegtran": "libjpeg-turbo-progs", "ffmpeg": "ffmpeg"}


@dataclass(frozen=True)
class Recipe:
    """How the images of a corpus are cut."""

    count: int
    shapes: tuple[tuple[int, int, float], ...]  # width, height, how often
    zoom: tuple[float, float]  # pixels of the photograph for one of the image
    quality: tuple[int, int]
    subsamplings: tuple[tuple[str, float], ...]
    tries: int  # of so many pieces the one with most detail is taken


RECIPES = {
    "dense": Recipe(
        2000,
        (
            (500, 375, 0.30),
            (375, 500, 0.12),
            (500, 500, 0.06),
            (640, 480, 0.40),
            (480, 640, 0.12),
        ),
        (1.5, 4.0),
        (95, 98),
        (("4:2:0", 0.85), ("4:4:4", 0.15)),
        6,
    ),
    "large": Recipe(
        300,
        ((1600, 1200, 0.8), (1200, 1600, 0.2)),
        (1.0, 2.5),
        (85, 95),
        (("4:2:0", 0.7), ("4:2:2", 0.2), ("4:4:4", 0.1)),
        1,
    ),
}


class CorpusError(Exception):
    """A corpus cannot be made. The message says what is missing."""


# ---------------------------------------------------------------- cut


def random_piece(
    picture: Image.Image, recipe: Recipe, size: tuple[int, int], draw: random.Random
) -> Image.Image:
    """One piece of the picture, scaled down to `size`."""
    width, height = size
    zoom = min(draw.uniform(*recipe.zoom), picture.width / width, picture.height / height)
    left = draw.uniform(0, picture.width - width * zoom)
    top = draw.uniform(0, picture.height - height * zoom)
    box = (left, top, left + width * zoom, top + height * zoom)
    return picture.resize(size, Image.Resampling.LANCZOS, box=box)


def jpeg_bytes(piece: Image.Image, **settings) -> bytes:
    """The piece as Pillow writes it."""
    buffer = io.BytesIO()
    piece.save(buffer, "JPEG", **settings)
    return buffer.getvalue()


def cut_one(picture: Image.Image, recipe: Recipe, draw: random.Random) -> bytes:
    """One image of the corpus."""
    *size, _ = draw.choices(recipe.shapes, [share for *_, share in recipe.shapes])[0]
    settings = {
        "quality": draw.randint(*recipe.quality),
        "subsampling": draw.choices(
            [name for name, _ in recipe.subsamplings], [share for _, share in recipe.subsamplings]
        )[0],
    }
    tries = [random_piece(picture, recipe, tuple(size), draw) for _ in range(recipe.tries)]
    return max((jpeg_bytes(piece, **settings) for piece in tries), key=len)


def cut_photograph(job: tuple[Path, Path, Recipe, list[int]]) -> None:
    """Cut all the images of one photograph. Each has its own random numbers."""
    path, folder, recipe, numbers = job
    Image.MAX_IMAGE_PIXELS = None
    picture = photos.load(path)
    folder.mkdir()
    for number in numbers:
        draw = random.Random(f"{SEED}/{number}")
        (folder / f"{number:06d}.jpg").write_bytes(cut_one(picture, recipe, draw))


def chosen_photographs(cache: Path, smallest: int) -> dict[str, Path]:
    """Label -> file of the photographs whose sides have `smallest` pixels or more."""
    found = photos.choose_photographs(photos.candidate_files(list(PACKAGES), None, cache))
    large = {}
    for label, path in found.items():
        with Image.open(path) as header:
            if min(header.size) >= smallest:
                large[label] = path
    if len(large) < 2:
        raise CorpusError(
            f"expected at least 2 photographs from the packages {', '.join(PACKAGES)}, found {len(large)}"
        )
    return large


def cut_corpus(recipe: Recipe, out: Path, cache: Path, count: int) -> dict:
    """Cut `count` images, dealt round-robin to the photographs, each a sub-folder of `out`."""
    smallest = max(min(width, height) for width, height, _ in recipe.shapes)
    photographs = chosen_photographs(cache, smallest)
    jobs = []
    for rank, (label, path) in enumerate(photographs.items()):
        numbers = list(range(rank, count, len(photographs)))
        if numbers:
            jobs.append((path, out / label, recipe, numbers))
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.imap_unordered(cut_photograph, jobs):
            pass
    return {"left_out": []}


# ---------------------------------------------------------------- foreign: files as they lie

SMALLEST_SIDE = 100  # pixels; below lie icons
LARGEST_FILE = 4_000_000  # bytes
PACKAGE_BYTES = 40_000_000  # of one package at most


def is_whole_jpeg(path: Path) -> bool:
    """Whether the file is a JPEG of some size, by Pillow's account."""
    if path.stat().st_size > LARGEST_FILE:
        return False
    try:
        with Image.open(path) as image:
            if image.format not in ("JPEG", "MPO") or min(image.size) < SMALLEST_SIDE:
                return False
            image.load()
    except OSError:
        return False
    return True


def copy_package(package: str, out: Path, cache: Path, known: set[bytes]) -> bool:
    """Copy the package's JPEGs to `out`, each content once. False if the package is not to be had."""
    found = photos.installed_files(package) or photos.unpacked_files(package, cache)
    if not found:
        return False
    pictures = [f for f in found if f.suffix.lower() in (".jpg", ".jpeg")]
    pictures = sorted(f for f in pictures if f.is_file() and not f.is_symlink())
    folder = out / "packaged" / package
    folder.mkdir(parents=True)
    total = 0
    for path in pictures:
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest in known or not is_whole_jpeg(path):
            continue
        total += path.stat().st_size
        if total > PACKAGE_BYTES:
            break
        known.add(digest)
        shutil.copyfile(path, folder / f"{len(known):04d}.jpg")
    return True


# ---------------------------------------------------------------- foreign: other encoders

PIECES = 16
PIECE_SIDES = (48, 720)  # pixels, drawn anew for each side: few are multiples of 8
PIECE_RECIPE = Recipe(PIECES, (), (1.0, 4.0), (90, 90), (), 1)

# name -> options of cjpeg. %scans% is a file of the scan script that follows.
CJPEG = {
    "plain": "",
    "optimize": "-optimize",
    "progressive": "-progressive",
    "restart-1-row": "-restart 1",
    "restart-1-block": "-restart 1B",
    "restart-7-blocks-optimize": "-optimize -restart 7B",
    "restart-progressive": "-progressive -restart 2",
    "sample-1x1": "-sample 1x1",
    "sample-2x1": "-sample 2x1",
    "sample-1x2": "-sample 1x2",
    "sample-2x2-restart": "-sample 2x2 -restart 3",
    "sample-4x1": "-sample 4x1",
    "sample-1x4": "-sample 1x4",
    "sample-4x2": "-sample 4x2",
    "sample-2x1,1x2,1x1": "-sample 2x1,1x2,1x1",
    "sample-2x2,2x1,1x1": "-sample 2x2,2x1,1x1",
    "grayscale": "-grayscale",
    "grayscale-optimize-restart": "-grayscale -optimize -restart 1",
    "grayscale-sample-2x2": "-grayscale -sample 2x2",
    "quality-1": "-quality 1",
    "quality-5-baseline": "-quality 5 -baseline",
    "quality-20": "-quality 20 -optimize",
    "quality-98": "-quality 98",
    "quality-100": "-quality 100 -sample 1x1",
    "quality-90,20": "-quality 90,20",
    "smooth": "-smooth 50",
    "dct-float": "-dct float -quality 92",
    "rgb": "-rgb",
    "arithmetic": "-arithmetic",
    "one-scan-each": "-scans %scans%",
    "two-scans": "-scans %scans%",
}
SCANS = {"one-scan-each": "0;\n1;\n2;\n", "two-scans": "0;\n1 2;\n"}

# name -> options of jpegtran, on what cjpeg wrote with default settings.
JPEGTRAN = {
    "optimize": "-optimize",
    "progressive": "-progressive",
    "restart-1-block": "-restart 1B",
    "gray": "-grayscale",
    "rotated": "-rotate 90 -trim",
}

# name -> library, quality, sampling of the first component, flags
JPEGLIB = {
    "6b": ("6b", 85, (2, 2), ()),
    "6b-optimize": ("6b", 93, (2, 1), ("+OPTIMIZE_CODING",)),
    "7": ("7", 75, (2, 2), ()),
    "8d": ("8d", 90, (1, 1), ()),
    "9f": ("9f", 85, (2, 2), ()),
    "9f-progressive": ("9f", 85, (2, 2), ("+PROGRESSIVE_MODE",)),
    "mozjpeg101": ("mozjpeg101", 80, (2, 2), ()),
    "mozjpeg300": ("mozjpeg300", 80, (2, 2), ()),
    "mozjpeg403": ("mozjpeg403", 75, (2, 2), ()),
    "mozjpeg403-444": ("mozjpeg403", 90, (1, 1), ()),
}
JPEGLI_QUALITIES = (60, 90)


def tool(name: str, cache: Path) -> str:
    """Path of a program of TOOLS, if need be out of its unpacked package. Raises CorpusError."""
    installed = shutil.which(name)
    if installed:
        return installed
    for path in photos.unpacked_files(TOOLS[name], cache):
        # An unpacked program runs only where the libraries that it needs are installed.
        if path.name == name and path.is_file() and photos.run_quietly([str(path), "-version"]):
            return str(path)
    raise CorpusError(f"{name} of the package {TOOLS[name]} is not to be had")


def pieces(cache: Path) -> list[Image.Image]:
    """What the encoders are given: pieces of photographs with sides of all kinds."""
    photographs = list(chosen_photographs(cache, max(PIECE_SIDES)).values())
    made = []
    for number in range(PIECES):
        draw = random.Random(f"{SEED}/piece/{number}")
        picture = photos.load(photographs[number * 5 % len(photographs)])
        size = draw.randint(*PIECE_SIDES), draw.randint(*PIECE_SIDES)
        made.append(random_piece(picture, PIECE_RECIPE, size, draw))
    return made


Encoded = Iterator[tuple[str, bytes]]  # name of the settings, file


def run_tool(command: list[str], data: bytes) -> bytes:
    """What the tool writes for `data`."""
    return subprocess.run(command, input=data, check=True, capture_output=True).stdout


def by_cjpeg(piece: Image.Image, cache: Path) -> Encoded:
    cjpeg, jpegtran = tool("cjpeg", cache), tool("jpegtran", cache)
    buffer = io.BytesIO()
    piece.save(buffer, "PPM")
    for name, options in CJPEG.items():
        with tempfile.NamedTemporaryFile("w") as script:
            script.write(SCANS.get(name, ""))
            script.flush()
            given = options.replace("%scans%", script.name).split()
            yield f"cjpeg-{name}", run_tool([cjpeg, *given], buffer.getvalue())
    plain = run_tool([cjpeg, "-quality", "85"], buffer.getvalue())
    for name, options in JPEGTRAN.items():
        yield f"jpegtran-{name}", run_tool([jpegtran, *options.split()], plain)


def by_jpeglib(piece: Image.Image, cache: Path) -> Encoded:
    import jpeglib
    import numpy

    jpegtran = tool("jpegtran", cache)
    for name, (library, quality, sampling, flags) in JPEGLIB.items():
        jpeglib.version.set(library)
        image = jpeglib.from_spatial(numpy.asarray(piece).copy())
        image.samp_factor = (sampling, (1, 1), (1, 1))
        with tempfile.NamedTemporaryFile(suffix=".jpg") as target:
            image.write_spatial(target.name, qt=quality, flags=list(flags))
            data = Path(target.name).read_bytes()
        yield f"libjpeg-{name}", data
        if name.startswith("mozjpeg4"):  # whose files are all progressive
            yield f"libjpeg-{name}-sequential", run_tool([jpegtran, "-optimize"], data)


def by_jpegli(piece: Image.Image, cache: Path) -> Encoded:
    import pyjpegli

    for quality in JPEGLI_QUALITIES:
        yield f"jpegli-{quality}", pyjpegli.encode(piece.tobytes(), *piece.size, quality=quality)


def by_ffmpeg(piece: Image.Image, cache: Path) -> Encoded:
    ffmpeg = tool("ffmpeg", cache)
    buffer = io.BytesIO()
    piece.save(buffer, "PPM")
    command = [ffmpeg, "-v", "error", "-f", "ppm_pipe", "-i", "-", "-f", "mjpeg"]
    for pixels in ("yuvj420p", "yuvj422p", "yuvj444p"):
        yield f"ffmpeg-{pixels}", run_tool([*command, "-pix_fmt", pixels, "-"], buffer.getvalue())


ENCODERS: dict[str, Callable[[Image.Image, Path], Encoded]] = {
    "cjpeg": by_cjpeg,
    "jpeglib": by_jpeglib,
    "pyjpegli": by_jpegli,
    "ffmpeg": by_ffmpeg,
}


def encode_pieces(out: Path, cache: Path) -> list[str]:
    """Let every encoder write every piece. Returns the encoders that are missing, with why."""
    left_out = []
    made = pieces(cache)
    for encoder, write in ENCODERS.items():
        try:
            for number, piece in enumerate(made):
                for name, data in write(piece, cache):
                    folder = out / "encoded" / name
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"{number:04d}.jpg").write_bytes(data)
        except (CorpusError, ImportError) as error:
            left_out.append(f"{encoder}: {error}")
    return left_out


def collect_foreign(out: Path, cache: Path) -> dict:
    """Files as they lie in packages, then those of other encoders."""
    known: set[bytes] = set()
    missing = [
        f"package {package}: not to be had"
        for package in FOREIGN_PACKAGES
        if not copy_package(package, out, cache, known)
    ]
    return {"left_out": missing + encode_pieces(out, cache)}


# ---------------------------------------------------------------- the whole


def wanted_description(name: str, count: int) -> dict:
    """What a finished corpus of these settings says of itself."""
    recipe = asdict(RECIPES[name]) if name in RECIPES else {"packages": list(FOREIGN_PACKAGES)}
    described = {"corpus": name, "version": VERSION, "pillow": pillow_version, "recipe": recipe}
    if name in RECIPES:
        described["count"] = count
    return json.loads(json.dumps(described))


def make(name: str, out: Path, cache: Path, count: int | None) -> dict:
    """Make the corpus unless it is there already; returns its description."""
    count = count or (RECIPES[name].count if name in RECIPES else 0)
    wanted = wanted_description(name, count)
    note = out.parent / (out.name + ".json")
    if out.is_dir() and note.is_file():
        present = json.loads(note.read_text())
        if all(present.get(key) == value for key, value in wanted.items()):
            return present
    Image.MAX_IMAGE_PIXELS = None
    cache.mkdir(parents=True, exist_ok=True)
    partial = out.parent / (out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if name in RECIPES:
        made = cut_corpus(RECIPES[name], partial, cache, count)
    else:
        made = collect_foreign(partial, cache)
    sizes = [path.stat().st_size for path in partial.rglob("*.jpg")]
    note.unlink(missing_ok=True)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(partial, out)
    made = {**wanted, **made, "files": len(sizes), "bytes": sum(sizes)}
    note.write_text(json.dumps(made, indent=2) + "\n")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("name", choices=(*RECIPES, "foreign"))
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--cache", type=Path, required=True, help="where packages are unpacked")
    parser.add_argument("--count", type=int, help="images, where they are cut")
    args = parser.parse_args()
    try:
        made = make(args.name, args.out, args.cache, args.count)
    except (CorpusError, photos.PhotosError) as error:
        print(f"corpora: {error}", file=sys.stderr)
        return 1
    mean_kb = made["bytes"] / made["files"] / 1e3
    print(f"corpora: {args.out}: {made['files']} images, {mean_kb:.1f} kB each")
    for reason in made["left_out"]:
        print(f"corpora: left out: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
