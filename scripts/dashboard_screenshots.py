#!/usr/bin/env python3
"""Take the pictures of the dashboard for the docs, of a real job: dashboard_screenshots.py [FOLDER]

Packs some photographs that it makes up, runs four ranks and an agent for about a minute, and writes
docs/images/dashboard-*.png, with few colours, so that they stay small. Needs a built program, Pillow,
Chromium and chromedriver.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "servers"))

import browser  # noqa: E402
from browser import Browser  # noqa: E402
from PIL import Image  # noqa: E402
from watched_job import Agent, running_agent, running_job  # noqa: E402

COLORS = 128
# Name, what stands behind '#', width, height.
PICTURES = (
    ("now-light", "view=now&theme=light", 1280, 1180),
    ("now-dark", "view=now&theme=dark", 1280, 1180),
    ("history-light", "view=history&theme=light&span=300", 1280, 900),
    ("checkpoints-dark", "view=checkpoints&theme=dark", 1280, 620),
    ("data-light", "view=data&theme=light", 1280, 620),
    ("now-phone", "view=now&theme=light", 390, 844),
)


def make_dataset(folder: Path) -> Path:
    """Pack 240 noisy pictures of some 100 kB."""
    draw = random.Random(1)
    for number in range(240):
        place = folder / "photos" / f"class{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        size = (draw.randrange(500, 700), draw.randrange(400, 600))
        noise = Image.effect_noise(size, 60).convert("RGB")
        noise.save(place / f"{number:04}.jpg", "JPEG", quality=90)
    packed = folder / "photos.hr"
    command = [sys.executable, "-m", "headrace", "pack", str(folder / "photos"), str(packed)]
    subprocess.run([*command, "--shard-samples", "30", "--quiet"], check=True)
    return packed


def wait_for_history(agent: Agent) -> None:
    """Until there is something to see: some saves, and a stretch of time."""
    agent.wait(
        "history?seconds=300&points=75",
        lambda h: (
            len(h["processes"]) == 4
            and sum(point is not None for point in h["processes"][0]["points"]) > 14
        ),
    )
    agent.wait("checkpoints", lambda c: len(c["stores"][0]["checkpoints"]) > 3)


def take(page: Browser, agent: Agent, folder: Path) -> None:
    """Write all pictures."""
    for name, choices, width, height in PICTURES:
        page.resize(width, height, phone=width < 500)
        page.open("about:blank")
        page.open(f"{agent.url}#{choices}")
        view = choices.split("&")[0].removeprefix("view=")
        page.wait(f"document.getElementById('view').dataset.shown === '{view}'")
        path = folder / f"dashboard-{name}.png"
        page.screenshot(path)
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(
                COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
            )
        small.save(path, optimize=True)
        print(f"{path}: {path.stat().st_size} bytes")


def main() -> int:
    if reason := browser.missing():
        print(reason, file=sys.stderr)
        return 1
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        dataset = make_dataset(work)
        near, far = work / "nvme-ckpt", work / "bucket-ckpt"
        with (
            running_job(dataset, work / "run", ranks=4, name="resnet-50", store=far, near=near),
            running_agent(work / "run", near) as agent,
            Browser() as page,
        ):
            wait_for_history(agent)
            take(page, agent, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
