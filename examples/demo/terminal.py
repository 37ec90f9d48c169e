"""What the demo writes on the terminal: steps, progress, charts and the table. Plain text."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

WIDTH = 64  # cells of a chart
BRAILLE_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] of a cell
BLOCKS = " ▁▂▃▄▅▆▇█"


class Steps:
    """Numbers the steps and times them; shows how far a step is.

    On a terminal the progress is one line that is drawn again; elsewhere a plain line now and then.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._number = 0
        self._began = self._drawn = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._shown = 0

    def begin(self, title: str) -> None:
        self._number += 1
        self._began = self._drawn = time.monotonic()
        print(f"\n[{self._number}/{self._total}] {title}", flush=True)

    def say(self, text: str) -> None:
        self._clear()
        for line in text.splitlines():
            print(f"      {line}", flush=True)

    def progress(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < (0.1 if self._terminal else 10):
            return
        self._drawn = now
        text = f"      {what}: {done:,} of {total:,}  ({now - self._began:.0f} s)"
        if not self._terminal:
            print(text, flush=True)
            return
        filled = 24 * done // max(1, total)
        text = f"      {'█' * filled}{'·' * (24 - filled)}  {text.strip()}"
        print("\r" + text.ljust(self._shown), end="", flush=True)
        self._shown = len(text)

    def end(self) -> None:
        self._clear()
        print(f"      done in {time.monotonic() - self._began:.1f} s", flush=True)

    def _clear(self) -> None:
        if self._shown:
            print("\r" + " " * self._shown + "\r", end="", flush=True)
            self._shown = 0


def resampled(values: Sequence[float], cells: int) -> list[float]:
    """`values` as `cells` means of neighbors (or repeats, if there are fewer values than cells)."""
    count = len(values)
    result = []
    for cell in range(cells):
        first = cell * count // cells
        last = max(first + 1, (cell + 1) * count // cells)
        result.append(sum(values[first:last]) / (last - first))
    return result


def line_chart(
    values: Sequence[float], height: int, below: str, marks: Sequence[float] = ()
) -> str:
    """A curve from zero upward, in Braille dots: two points a cell across, four a cell up.

    `marks` are places from 0 to 1 that get an arrow under the axis.
    """
    points = resampled(values, 2 * WIDTH)
    top = max(points) or 1.0
    cells = [[0] * WIDTH for _ in range(height)]
    previous = None
    for x, value in enumerate(points):
        y = round((1 - value / top) * (4 * height - 1))
        towards = y if previous is None else previous
        for dot in range(min(y, towards), max(y, towards) + 1):
            cells[dot // 4][x // 2] |= BRAILLE_DOTS[dot % 4][x % 2]
        previous = y
    lines = []
    for row, line in enumerate(cells):
        scale = f"{top:5.2f}" if row == 0 else " 0.00" if row == height - 1 else "     "
        lines.append(f"{scale} │{''.join(chr(0x2800 + dots) for dots in line)}")
    lines.append(f"      └{'─' * WIDTH}")
    if marks:
        arrows = [" "] * WIDTH
        for place in marks:
            arrows[min(WIDTH - 1, int(place * WIDTH))] = "↑"
        lines.append("       " + "".join(arrows).rstrip())
    lines.append("       " + below)
    return "\n".join(lines)


def share_chart(name: str, values: Sequence[float], after: str) -> str:
    """One line of blocks for shares from 0 to 1: blank is nothing, a full block is all."""
    blocks = (BLOCKS[min(8, max(0, round(8 * value)))] for value in values)
    return f"{name:<22}▕{''.join(blocks)}▏ {after}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns to the right but for the first; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("   ".join(cells).rstrip())
    lines.insert(1, "─" * (sum(widths) + 3 * (len(widths) - 1)))
    return "\n".join(lines)
