#!/usr/bin/env python3
"""Makes the data that the benchmark works on, once, below one folder.

    CORPUS-N/images/        JPEGs, in sub-folders that are their labels
    CORPUS-N/packed/NAME/   the same images in the format of each contender
    small/N/NAME/           N samples of 100 bytes in the format of each contender
    small/NxB/NAME/         N samples of B bytes

The corpora:

    web       4,000 images of about 500 x 375, 69 kB each, 275 MB
    dense     2,000 of about 500 x 375 to 640 x 480, more than 110 kB each
    large     300 of 1600 x 1200
    foreign   some 1,700 that Pillow did not write

The images are cut by examples/photos.py (web) and corpora.py out of the photographs in Debian's
wallpaper packages, which are unpacked into sources/ and not installed. The same seed gives the same
images.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from contenders import (
    BENCH,
    HEADRACE,
    PACKED_IMAGES,
    PACKED_SMALL,
    PEERS,
    REPOSITORY,
    Job,
    Packing,
    interpreter,
    is_installed,
)
from harness import RunError, run_program

PACKAGES = (
    "mate-backgrounds",
    "plasma-workspace-wallpapers",
    "lomiri-wallpapers-16.04",
    "lomiri-wallpapers-20.04",
)
SEED = 7
SMALL_BYTES = 100  # of a sample of the small dataset, where nothing else is said
PACK_TIMEOUT_S = 1800

# Corpus -> images of a campaign, and of a quick run. All of foreign is small enough for both.
COUNTS = {"web": (4000, 256), "dense": (2000, 128), "large": (300, 32), "foreign": (0, 0)}


class DataError(Exception):
    """The data cannot be made. The message says what is missing."""


@dataclass(frozen=True)
class Corpus:
    """The images of one corpus, and where they lie."""

    name: str
    count: int  # 0: as many as there are
    root: Path

    @property
    def images(self) -> Path:
        """The folder of images; its sub-folders are the labels."""
        return self.root / "images"

    @property
    def file_list(self) -> Path:
        """A file that names each image, for programs that do not look for them."""
        return self.root / "files.txt"


class Data:
    """The benchmark's data below one folder; what is missing is made when it is asked for."""

    def __init__(self, root: Path, quick: bool = False) -> None:
        self.root = root.resolve()
        self.corpora = {}
        for name, counts in COUNTS.items():
            folder = f"{name}-{counts[quick]}" if counts[quick] else name
            self.corpora[name] = Corpus(name, counts[quick], self.root / folder)

    def prepare_images(self, name: str) -> None:
        """Make the images of a corpus if they are not there yet."""
        corpus = self.corpora[name]
        corpus.root.mkdir(parents=True, exist_ok=True)
        sources = str(self.root / "sources")
        if name == "web":
            program = REPOSITORY / "examples" / "photos.py"
            command = [program, corpus.images, corpus.count, "--seed", SEED]
            command += ["--packages", ",".join(PACKAGES), "--cache", sources]
        else:
            command = [BENCH / "corpora.py", name, corpus.images, "--cache", sources]
            command += ["--count", corpus.count] if corpus.count else []
        python = str(python_with_encoders() if name == "foreign" else python_with_pillow())
        if subprocess.run([python, *map(str, command)]).returncode != 0:
            raise DataError(f"the images of {name} could not be made; see the message above")
        paths = sorted(str(path) for path in corpus.images.rglob("*.jpg"))
        corpus.file_list.write_text("".join(path + "\n" for path in paths))

    def packed_folder(self, job: Job) -> Path:
        """Where the packed data lie that `job` reads."""
        if job.count:
            return self._small_folder(job.count, job.sample_bytes) / job.packed
        return self.corpora[job.corpus].root / "packed" / job.packed

    def prepare(self, job: Job) -> None:
        """Pack what `job` reads, unless that was done before. Raises RunError."""
        if not job.packed or job.verb == "pack":
            return
        if job.count:
            self._prepare_small(job.packed, job.count, job.sample_bytes)
        else:
            corpus = self.corpora[job.corpus]
            extra = ["--images", str(corpus.images), "--workers", "2", "--seconds", "0"]
            target = corpus.root / "packed" / job.packed
            self._make(PACKED_IMAGES[job.packed], "pack", target, extra)

    def _small_folder(self, count: int, sample_bytes: int) -> Path:
        size = "" if sample_bytes == SMALL_BYTES else f"x{sample_bytes}"
        return self.root / "small" / f"{count}{size}"

    def _prepare_small(self, name: str, count: int, sample_bytes: int) -> None:
        folder = self._small_folder(count, sample_bytes)
        extra = ["--count", str(count), "--sample-bytes", str(sample_bytes)]
        if name.startswith(HEADRACE):
            self._prepare_small("tar", count, sample_bytes)
            extra += ["--images", str(folder / "tar")]
        self._make(PACKED_SMALL[name], "small", folder / name, extra)

    def _make(self, packing: Packing, verb: str, target: Path, extra: list[str]) -> None:
        """Run a packing program, and note beside the target that it was finished."""
        note = target.parent / (target.name + ".json")
        if note.exists() and not self._is_outdated(note, packing):
            return
        if not is_installed(packing.group):
            raise RunError(f"the group {packing.group} is not installed; see bench/peers/setup")
        print(f"bench: making {target.relative_to(self.root)}", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        command = [str(interpreter(packing.group)), str(PEERS / packing.program), verb]
        command += [packing.contender, "--packed", str(target), *extra]
        note.write_text(json.dumps(run_program(command, PACK_TIMEOUT_S)) + "\n")

    def _is_outdated(self, note: Path, packing: Packing) -> bool:
        """Whether the images or the program that packed them have changed since `note` was written."""
        made_from = [note.parent.parent / "images.json"]
        if packing.group == HEADRACE:
            made_from.append(interpreter(HEADRACE).parent / "headrace")
        made = note.stat().st_mtime
        return any(path.exists() and path.stat().st_mtime > made for path in made_from)


def python_with_pillow() -> Path:
    """An interpreter that has Pillow, among those that the set-up made."""
    for group in ("images", "torch", HEADRACE, "ffcv", "any"):
        python = interpreter(group)
        if (
            python.exists()
            and subprocess.run([python, "-c", "import PIL"], stderr=subprocess.DEVNULL).returncode
            == 0
        ):
            return python
    raise DataError("no Python with Pillow found; run bench/peers/setup images first")


def python_with_encoders() -> Path:
    """An interpreter with the encoders that are not Pillow's, or at least with Pillow."""
    return interpreter("images") if is_installed("images") else python_with_pillow()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=BENCH / ".data")
    parser.add_argument("--corpora", default=",".join(COUNTS), help="by commas")
    parser.add_argument("--quick", action="store_true", help="few images of each")
    args = parser.parse_args()
    try:
        for name in args.corpora.split(","):
            Data(args.data, args.quick).prepare_images(name)
    except DataError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
