#!/usr/bin/env python3
"""Cut a labeled set of ordinary JPEGs out of large photographs.

    photos.py OUT COUNT [--seed N] [--packages A,B] [--source DIR] [--cache DIR] [--jobs N]

Writes COUNT images of about 500 x 375 pixels to OUT, in one sub-folder per source photograph; that
photograph is the label. The photographs come from Debian's wallpaper packages. A package that is
not installed is downloaded with apt-get and unpacked into the cache folder, never installed. With
--source your own photographs are cut instead.

The result depends only on the photographs, COUNT, the seed and the version of Pillow. OUT is written
beside its final name and renamed at the end, with a description in OUT.json; if that description
already fits, nothing is done. Needs Pillow and nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

try:
    from PIL import Image
    from PIL import __version__ as pillow_version
except ImportError:
    sys.exit("photos.py: Pillow is missing; expected it here: pip install pillow")

Report = Callable[[int, int], None]  # done, of all

DEFAULT_PACKAGES = ("mate-backgrounds",)

# Width, height and how often: photographs as they are found on the web, most of them 500 x 375.
SHAPES = (
    (500, 375, 0.45),
    (375, 500, 0.17),
    (500, 333, 0.16),
    (333, 500, 0.06),
    (500, 500, 0.05),
    (400, 300, 0.06),
    (640, 480, 0.04),
    (1024, 768, 0.01),
)

MIN_SIDE = 900  # pixels; a smaller picture has too little to cut from
MAX_SIDE = 4000  # pixels; a larger one is scaled down first
MIN_DETAIL = 0.12  # bytes per pixel as a small JPEG; drawings and gradients have less
SAME_PICTURE = 6.0  # mean gray-level distance of two thumbnails that show the same picture


class PhotosError(Exception):
    """Something the user has to put right. The message says what and how."""


def run_quietly(command: list[str], cwd: Path | None = None) -> bool:
    """Run a command without showing its output; True if it succeeded."""
    try:
        done = subprocess.run(
            command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


def installed_files(package: str) -> list[Path]:
    """The files of an installed Debian package; empty if it is not installed."""
    try:
        listing = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return [Path(line) for line in listing.stdout.splitlines()] if listing.returncode == 0 else []


def download(package: str, folder: Path) -> Path | None:
    """Download one Debian package into `folder`; None if that is not possible."""
    command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", package]
    if not run_quietly(command, cwd=folder):
        # A fresh machine has no package lists yet.
        if os.geteuid() != 0 or not run_quietly(["apt-get", "update"]):
            return None
        if not run_quietly(command, cwd=folder):
            return None
    return next(folder.glob(f"{package}_*.deb"), None)


def unpacked_files(package: str, cache: Path) -> list[Path]:
    """The files of a Debian package, unpacked below `cache`; empty if it cannot be had."""
    target = cache / package
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            print(f"photos: downloading {package}", flush=True)
            archive = download(package, Path(scratch))
            tree = Path(scratch) / "tree"
            if archive is None or not run_quietly(["dpkg", "-x", str(archive), str(tree)]):
                return []
            os.rename(tree, target)
    return sorted(target.rglob("*"))


def candidate_files(packages: list[str], source: Path | None, cache: Path) -> list[Path]:
    """The picture files to choose photographs from, sorted by name."""
    if source is not None:
        if not source.is_dir():
            raise PhotosError(f"expected a folder of photographs at {source}, found none")
        files = sorted(source.rglob("*"))
    else:
        files = []
        for package in packages:
            found = installed_files(package) or unpacked_files(package, cache)
            if not found:
                print(
                    f"photos: package {package} could not be had, going on without it",
                    file=sys.stderr,
                )
            files += found
    pictures = [f for f in files if f.suffix.lower() in (".jpg", ".jpeg") and f.is_file()]
    return sorted(
        (f for f in pictures if not f.is_symlink()), key=lambda f: (f.stem.lower(), str(f))
    )


def detail(picture: Image.Image) -> float:
    """Bytes per pixel of the picture as a small JPEG: low for drawings, high for photographs."""
    small = picture.resize((480, 320), Image.BILINEAR)
    with tempfile.TemporaryFile() as file:
        small.save(file, "JPEG", quality=90)
        return file.tell() / (480 * 320)


def thumbnail(picture: Image.Image) -> bytes:
    """A few gray pixels by which two sizes of one picture are recognized."""
    return picture.convert("L").resize((12, 12), Image.BOX).tobytes()


def distance(one: bytes, other: bytes) -> float:
    """Mean distance of two thumbnails in gray levels."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def load(path: Path) -> Image.Image:
    """The picture as RGB, scaled down to at most MAX_SIDE pixels."""
    with Image.open(path) as file:
        picture = file.convert("RGB")
    if max(picture.size) > MAX_SIDE:
        picture.thumbnail((MAX_SIDE, MAX_SIDE), Image.LANCZOS)
    return picture


def label_of(path: Path) -> str:
    """A photograph's name in small letters. Plasma's files are called by their size; the name is above."""
    name = path.stem
    if re.fullmatch(r"\d+x\d+", name) and path.parts[-3:-2] == ("contents",):
        name = path.parts[-4]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "photograph"


def choose_photographs(files: list[Path]) -> dict[str, Path]:
    """Label -> file of each distinct photograph among `files`, sorted by label."""
    chosen: dict[str, Path] = {}
    thumbnails: list[bytes] = []
    for path in files:
        try:
            with Image.open(path) as header:
                if min(header.size) < MIN_SIDE:
                    continue
                header.draft("RGB", (960, 640))
                picture = header.convert("RGB")
        except OSError:
            continue  # not an image after all
        mark = thumbnail(picture)
        if any(distance(mark, known) < SAME_PICTURE for known in thumbnails):
            continue
        if detail(picture) < MIN_DETAIL:
            continue
        label = label_of(path)
        while label in chosen:
            label += "-2"
        thumbnails.append(mark)
        chosen[label] = path
    return dict(sorted(chosen.items()))


def cut_one(picture: Image.Image, random_source: random.Random, target: Path) -> int:
    """Cut one random piece out of `picture` and save it; returns the file's bytes."""
    width, height, _ = random_source.choices(SHAPES, [share for _, _, share in SHAPES])[0]
    zoom = random_source.uniform(1.8, 6.0)
    zoom = min(zoom, picture.width / width, picture.height / height)
    box_width, box_height = width * zoom, height * zoom
    left = random_source.uniform(0, picture.width - box_width)
    top = random_source.uniform(0, picture.height - box_height)
    box = (left, top, left + box_width, top + box_height)
    piece = picture.resize((width, height), Image.LANCZOS, box=box)

    kind = random_source.random()
    if kind < 0.015:
        piece = piece.convert("L")
    piece.save(
        target,
        "JPEG",
        quality=random_source.randint(91, 98),
        subsampling="4:4:4" if kind > 0.85 else "4:2:0",
        progressive=kind > 0.985,
    )
    return target.stat().st_size


def cut_photograph(job: tuple[Path, Path, int, list[int]]) -> int:
    """Cut all the pieces of one photograph. Each has its own random numbers."""
    path, folder, seed, numbers = job
    Image.MAX_IMAGE_PIXELS = None
    picture = load(path)
    folder.mkdir()
    total = 0
    for number in numbers:
        random_source = random.Random(f"{seed}/{number}")
        total += cut_one(picture, random_source, folder / f"{number:06d}.jpg")
    return total


def cut_all(
    photographs: dict[str, Path], out: Path, count: int, seed: int, jobs: int, report: Report
) -> int:
    """Cut `count` pieces, dealt round-robin to the photographs; returns their bytes together."""
    work = []
    for rank, (label, path) in enumerate(photographs.items()):
        numbers = list(range(rank, count, len(photographs)))
        if numbers:
            work.append((path, out / label, seed, numbers))
    total = 0
    with multiprocessing.Pool(jobs) as pool:
        for done, size in enumerate(pool.imap_unordered(cut_photograph, work), 1):
            total += size
            report(done, len(work))
    return total


def description_path(out: Path) -> Path:
    """Where the description of the finished set in `out` is kept."""
    return out.parent / (out.name + ".json")


def make(
    out: Path,
    count: int,
    seed: int = 7,
    packages: list[str] | None = None,
    source: Path | None = None,
    cache: Path | None = None,
    jobs: int | None = None,
    report: Report = lambda done, total: None,
) -> dict:
    """Make the set in `out` unless it is there already; returns its description.

    Calls `report` with the number of photographs cut so far and of all.
    """
    packages = list(packages or DEFAULT_PACKAGES)
    wanted = {
        "count": count,
        "seed": seed,
        "sources": [str(source)] if source else packages,
        "pillow": pillow_version,
        "version": 1,
    }
    note = description_path(out)
    if out.is_dir() and note.is_file():
        present = json.loads(note.read_text())
        if all(present.get(key) == value for key, value in wanted.items()):
            return present
    Image.MAX_IMAGE_PIXELS = None
    cache = (
        cache
        or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace/photographs"
    )
    photographs = choose_photographs(candidate_files(packages, source, cache))
    if len(photographs) < 2:
        raise PhotosError(
            f"expected at least 2 large photographs from {', '.join(wanted['sources'])}, found "
            f"{len(photographs)}. Install one of the packages (apt-get install mate-backgrounds), or "
            "give a folder of photographs of your own with --source FOLDER"
        )
    partial = out.parent / (out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    total = cut_all(photographs, partial, count, seed, jobs or len(os.sched_getaffinity(0)), report)
    note.unlink(missing_ok=True)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(partial, out)
    made = dict(wanted, labels=list(photographs), bytes=total)
    note.write_text(json.dumps(made, indent=2) + "\n")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("count", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--packages", default=",".join(DEFAULT_PACKAGES), help="Debian packages, by commas"
    )
    parser.add_argument("--source", type=Path, help="folder of your own photographs")
    parser.add_argument(
        "--cache", type=Path, help="where packages are unpacked (default: ~/.cache/headrace)"
    )
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    args = parser.parse_args()
    if args.count < 1:
        parser.error(f"COUNT must be at least 1, found {args.count}")
    try:
        made = make(
            args.out,
            args.count,
            args.seed,
            args.packages.split(","),
            args.source,
            args.cache,
            args.jobs,
        )
    except PhotosError as error:
        print(f"photos: {error}", file=sys.stderr)
        return 1
    mean_kb = made["bytes"] / made["count"] / 1e3
    print(
        f"photos: {args.out}: {made['count']} images, {len(made['labels'])} labels, {mean_kb:.1f} kB each"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
