#!/usr/bin/env python3
"""Makes the data that the benchmark works on, once, below one folder.

    images/          4,000 JPEGs of about 500 x 375 in one sub-folder a photograph, 275 MB
    packed/NAME/     the same images in the format of each contender
    small/N/NAME/    N samples of 100 bytes in the format of each contender

The images are cut by examples/photos.py out of the photographs in Debian's wallpaper packages, which
are unpacked into sources/ and not installed. The same seed gives the same images.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
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
IMAGES = 4000
PACK_TIMEOUT_S = 1800


class DataError(Exception):
    """The data cannot be made. The message says what is missing."""


class Data:
    """The benchmark's data below one folder; what is missing is made when it is asked for."""

    def __init__(self, root: Path, images: int = IMAGES) -> None:
        self.root = root.resolve()
        self.count = images
        self.set_root = self.root / f"images-{images}"
        self.images = self.set_root / "images"

    def prepare_images(self) -> None:
        """Cut the images if they are not there yet."""
        program = str(REPOSITORY / "examples" / "photos.py")
        command = [str(python_with_pillow()), program, str(self.images), str(self.count)]
        command += ["--seed", str(SEED), "--packages", ",".join(PACKAGES)]
        command += ["--cache", str(self.root / "sources")]
        if subprocess.run(command).returncode != 0:
            raise DataError("the images of the benchmark could not be made; see the message above")
        paths = sorted(str(path) for path in self.images.rglob("*.jpg"))
        self.file_list().write_text("".join(path + "\n" for path in paths))

    def file_list(self) -> Path:
        """A file that names each image, for the floor."""
        return self.set_root / "files.txt"

    def packed_folder(self, job: Job) -> Path:
        """Where the packed data lie that `job` reads."""
        if job.count:
            return self.root / "small" / str(job.count) / job.packed
        return self.set_root / "packed" / job.packed

    def prepare(self, job: Job) -> None:
        """Pack what `job` reads, unless that was done before. Raises RunError."""
        if not job.packed or job.verb == "pack":
            return
        if job.count:
            self._prepare_small(job.packed, job.count)
        else:
            extra = ["--images", str(self.images), "--workers", "2", "--seconds", "0"]
            target = self.set_root / "packed" / job.packed
            self._make(PACKED_IMAGES[job.packed], "pack", target, extra)

    def _prepare_small(self, name: str, count: int) -> None:
        folder = self.root / "small" / str(count)
        extra = ["--count", str(count)]
        if name.startswith(HEADRACE):
            self._prepare_small("tar", count)
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
        made_from = [self.set_root / "images.json"]
        if packing.group == HEADRACE:
            made_from.append(interpreter(HEADRACE).parent / "headrace")
        made = note.stat().st_mtime
        return any(path.exists() and path.stat().st_mtime > made for path in made_from)


def python_with_pillow() -> Path:
    """An interpreter that has Pillow, among those that the set-up made."""
    for group in ("torch", HEADRACE, "ffcv", "any"):
        python = interpreter(group)
        if (
            python.exists()
            and subprocess.run([python, "-c", "import PIL"], stderr=subprocess.DEVNULL).returncode
            == 0
        ):
            return python
    raise DataError("no Python with Pillow found; run bench/peers/setup torch first")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=BENCH / ".data")
    parser.add_argument("--images", type=int, default=IMAGES)
    args = parser.parse_args()
    try:
        Data(args.data, args.images).prepare_images()
    except DataError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
