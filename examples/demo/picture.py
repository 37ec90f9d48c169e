"""Draws the run as a PNG: the loss, and the input stall over time."""

from __future__ import annotations

import itertools
from pathlib import Path

from comparison import Comparison
from saves import Saves
from stall import Stall, of_attempt, of_pass
from stream import Attempt, Run

COLORS = ("#0b6e99", "#d9822b", "#3a8a4d")
GRAY = "#9a9a9a"
DARK = "#333333"
TRAINING_STRETCH_SECONDS = 1.0
STRETCHES = 20  # of the longer pass in front of the accelerator


def draw(
    path: Path,
    reference: Run,
    attempts: list[Attempt],
    saves: list[Saves],
    compared: Comparison | None,
) -> None:
    """Write the picture to `path`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    rows = 3 if compared else 2
    figure, axes = plt.subplots(rows, 1, figsize=(10, 3.3 * rows), layout="constrained")
    draw_loss(axes[0], reference, attempts, saves)
    draw_training_stall(axes[1], attempts)
    if compared:
        draw_compared_stall(axes[2], compared)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def head(axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=DARK)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)


def name_of(attempt: Attempt, saves: Saves) -> str:
    what = f"{attempt.world} {'process' if attempt.world == 1 else 'processes'}"
    if saves.restored is None:
        return f"started with {what}"
    milliseconds = 1e3 * saves.restored.seconds
    return f"resumed with {what}, restored from {saves.restored.places} in {milliseconds:.0f} ms"


def draw_loss(axes, reference: Run, attempts: list[Attempt], saves: list[Saves]) -> None:
    """Loss by global batch: the pieces of the killed run on top of the run that was never stopped."""
    losses = [batch.loss for batch in reference.batches]
    axes.plot(losses, color="#cccccc", linewidth=5, label="never stopped, 2 processes")
    for index, attempt in enumerate(attempts):
        color = COLORS[index % len(COLORS)]
        numbers, losses = zip(*((n, b.loss) for n, b in attempt.whole.items()), strict=True)
        label = name_of(attempt, saves[index])
        axes.plot(numbers, losses, color=color, linewidth=1.4, label=label)
        if index < len(attempts) - 1:
            axes.plot(
                numbers[-1], losses[-1], "X", color=color, markersize=9, markeredgecolor="white"
            )
            axes.axvspan(
                attempts[index + 1].start, numbers[-1], color=color, alpha=0.12, linewidth=0
            )
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, len(reference.batches) - 1)
    axes.legend(frameon=False, fontsize=9)
    title = "Killed (✕) and resumed, the loss goes the way of the run that was never stopped"
    head(axes, title, "global batch (shaded: done again from the last checkpoint)", "loss")


def draw_stall(
    axes, stall: Stall, shift: float, stretch: float, color: str, label: str | None
) -> None:
    """One consumer's stall as steps of about `stretch` seconds each."""
    stretches = max(1, round(stall.seconds / stretch))
    edges = [stall.began - shift + i * stall.seconds / stretches for i in range(stretches + 1)]
    shares = [100 * share for share in stall.shares(stretches)]
    axes.stairs(shares, edges, fill=True, color=color, alpha=0.25)
    axes.stairs(shares, edges, color=color, linewidth=1.5, label=label)


def draw_training_stall(axes, attempts: list[Attempt]) -> None:
    """Stall over time in the killed run; between its attempts nothing trains."""
    stalls = [of_attempt(attempt) for attempt in attempts]
    began = stalls[0].began
    for index, stall in enumerate(stalls):
        draw_stall(axes, stall, began, TRAINING_STRETCH_SECONDS, COLORS[index % len(COLORS)], None)
    for before, after in itertools.pairwise(stalls):
        kill = before.ended - began
        axes.axvspan(kill, after.began - began, color="#eeeeee", linewidth=0)
        axes.axvline(kill, color="#b03030", linewidth=1.2)
        axes.text(kill, 97, " SIGKILL", color="#b03030", fontsize=8, va="top")
    axes.set_ylim(0, 100)
    axes.set_xlim(0, stalls[-1].ended - began)
    title = "Input stall of that run: the training step shares the processors with decoding"
    across = "seconds since the first batch (gray: starting again)"
    head(axes, title, across, "waiting for input, %")


def draw_compared_stall(axes, compared: Comparison) -> None:
    """Stall over time in front of the emulated accelerator, both loaders."""
    stalls = [of_pass(loader.paced[-1]) for loader in compared.loaders]
    stretch = max(stall.seconds for stall in stalls) / STRETCHES
    for loader, stall, color in zip(
        compared.loaders, stalls, (COLORS[0], COLORS[1], GRAY), strict=True
    ):
        draw_stall(axes, stall, 0, stretch, color, f"{loader.name}: AU {1 - loader.stall:.0%}")
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    title = f"Input stall at an emulated accelerator of {compared.rate:,.0f} images/s"
    head(axes, title, "seconds since the first batch was asked for", "waiting for input, %")
