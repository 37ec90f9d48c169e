"""The tables of the network works (w9 to w11) and of the shortest step (w12), each with its goals."""

from __future__ import annotations

from collections.abc import Callable

from contenders import OURS
from dlio import DEVICE
from network import CACHED_SHARE, CONNECTIONS, EATEN_PER_S, FLOOR, LINK_PER_S, SLOW_EPOCHS

Cell = Callable[[dict, str, str], str]
Columns = list[tuple[str, str, str]]  # heading, key of the result, format

GOAL_CPU = 1 / 3  # of each peer's CPU-seconds per GB
GOAL_LIBCURL = 0.85
GOAL_BOUND = 0.95
GOAL_ONE_NODE = 1.02
GOAL_FIRST_EPOCH = 1.1
GOAL_ALL_CACHED = 0.01  # of the dataset: what is asked to see whether an object is still the same
GOAL_STEP = 1.5  # times shorter than with DLIO's own reader
GOAL_DEVICE = 0.95


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _median(row: dict | None, key: str) -> float | None:
    return row[key][0] if row and key in row else None


def _find(rows: list[dict], contender: str, variant: str = "") -> dict | None:
    found = (row for row in rows if row["contender"] == contender and row["variant"] == variant)
    return next(found, None)


def _table(
    rows: list[dict],
    columns: Columns,
    cell: Cell,
    more: Callable[[dict], list[str]],
    last: list[str],
) -> list[str]:
    """A line for each row, with the cells of `more` behind the columns; failed ones say so."""
    titles = ["contender", "settings", *(title for title, _, _ in columns), *last]
    lines = [_line(titles), "|" + "---|" * len(titles)]
    for row in rows:
        start = [row["contender"], row["variant"]]
        if row["runs"] == 0:
            lines.append(_line([*start, f"failed: {row['error'][:120]}"]))
            continue
        lines.append(
            _line([*start, *(cell(row, key, form) for _, key, form in columns), *more(row)])
        )
    return [*lines, ""]


def _goal(text: str, reached: bool) -> str:
    return f"{text}: {'reached' if reached else 'missed'}"


def _summary(goals: list[str]) -> list[str]:
    return ["Goals. " + "; ".join(goals) + ".", ""] if goals else []


# ---------------------------------------------------------------- w9


def bucket_tables(rows: list[dict], cell: Cell) -> list[str]:
    """W9: readers of a bucket over loopback."""
    columns: Columns = [
        ("client CPU-seconds per GB", "cpu_s_per_gb", ".3f"),
        ("GB/s", "gb_per_s", ".3f"),
        ("memory above imports, MB", "pss_mb", ",.0f"),
        ("server CPU-seconds per GB", "server_cpu_s_per_gb", ".3f"),
    ]
    rows = sorted(rows, key=lambda row: _median(row, "cpu_s_per_gb") or float("inf"))
    ours = _median(_find(rows, OURS), "cpu_s_per_gb")
    fastest = max(
        (_median(row, "gb_per_s") or 0 for row in rows if row["contender"] == FLOOR), default=0
    )

    def more(row: dict) -> list[str]:
        cpu, rate = _median(row, "cpu_s_per_gb"), _median(row, "gb_per_s")
        against = f"{cpu / ours:.2f} x" if cpu and ours and row["contender"] != OURS else ""
        return [against, f"{rate / fastest:.0%}" if rate and fastest else ""]

    lines = [
        "An S3 server on this machine, over loopback; it shares the cores with the readers. Whole "
        "shuffled passes in a process of their own with nothing kept from the one before, the opening "
        "of the dataset included. CPU-seconds are those of the client's process tree alone. libcurl is "
        f"a bare C++ loop that throws the bytes away; it and Headrace have {CONNECTIONS} connections.",
        "",
        *_table(rows, columns, cell, more, ["CPU against Headrace's", "of libcurl's best"]),
    ]
    peers = [row for row in rows if row["contender"] != FLOOR and OURS not in row["contender"]]
    goals = [
        _goal(f"CPU at most a third of {row['contender']}'s", ours <= cpu * GOAL_CPU)
        for row in peers
        if ours and (cpu := _median(row, "cpu_s_per_gb"))
    ]
    rate = _median(_find(rows, OURS), "gb_per_s")
    if rate and fastest:
        goals.append(_goal("85 % of libcurl's throughput", rate >= fastest * GOAL_LIBCURL))
    return lines + _summary(goals)


# ---------------------------------------------------------------- w10 and w11


def slow_tables(rows: list[dict], cell: Cell) -> list[str]:
    """W10: a link of half of what the training eats."""
    columns: Columns = [("link, MB/s", "link_mb_per_s", ",.1f"), ("bound, s", "bound_s", ".2f")]
    for number in range(1, SLOW_EPOCHS + 1):
        columns.append((f"epoch {number}, s", f"epoch{number}_s", ".2f"))
    for number in range(1, SLOW_EPOCHS + 1):
        columns.append((f"from the origin in epoch {number}", f"epoch{number}_origin", ".0%"))
    columns.append(("second epoch: of the bound", "of_bound", ".1%"))
    rows = sorted(rows, key=lambda row: -(_median(row, "of_bound") or 0))
    lines = [
        f"The training eats {EATEN_PER_S / 1e6:.0f} MB/s, the link gives {LINK_PER_S / 1e6:.0f} MB/s "
        f"(what libcurl gets through it is in the table), and {CACHED_SHARE:.0%} of the dataset's bytes "
        "may be kept on the disk. The bound of an epoch is the time that the training takes by itself, "
        "or the time of the link for the part that is not kept, whichever is longer. Bytes from the "
        "origin are counted at the link, headers included, as a share of the dataset.",
        "",
        *_table(rows, columns, cell, lambda row: [], []),
    ]
    reached = _median(_find(rows, OURS), "of_bound")
    goals = [_goal("second epoch at 95 % of the bound", reached >= GOAL_BOUND)] if reached else []
    return lines + _summary(goals)


def node_tables(rows: list[dict], cell: Cell) -> list[str]:
    """W11: what nodes read from the origin."""
    columns: Columns = [
        ("first epoch", "first_origin", ".3f"),
        ("later epochs, mean", "later_origin", ".3f"),
        ("not cached: the bound of later ones", "later_bound", ".3f"),
    ]
    lines = [
        "Bytes that left the origin, counted at the link with headers, as multiples of the dataset's "
        "bytes (shards, indexes and manifest). Processes of a node share a cache directory; nodes have "
        "one each.",
        "",
        *_table(rows, columns, cell, lambda row: [], []),
    ]
    goals = []
    for row in rows:
        first, later = _median(row, "first_origin"), _median(row, "later_origin")
        if first is None:
            continue
        limit = GOAL_ONE_NODE if row["variant"].startswith("one node") else GOAL_FIRST_EPOCH
        goals.append(_goal(f"{row['variant']}: at most {limit} at first", first <= limit))
        bound = _median(row, "later_bound")
        if later is not None and bound is not None:
            most = max(bound, GOAL_ALL_CACHED)
            goals.append(_goal(f"later at most {most:.2f}", later <= most))
    return lines + _summary(goals)


# ---------------------------------------------------------------- w12


def step_tables(rows: list[dict], cell: Cell) -> list[str]:
    """W12: the shortest step that storage keeps up with."""
    columns: Columns = [
        ("shortest step, ms", "step_ms", ",.2f"),
        ("AU there", "au", ".1%"),
        ("MB/s there", "mb_per_s", ",.0f"),
        ("of what the device allows", "of_device", ".1%"),
    ]

    def more(row: dict) -> list[str]:
        ours = _median(_find(rows, OURS, row["variant"]), "step_ms")
        step = _median(row, "step_ms")
        shown = ours and step and row["contender"] != OURS
        return [f"{step / ours:.2f} x" if shown else ""]

    lines = [
        "Through DLIO: batches come from a loader, and the computing of a step is a sleep. AU is the time "
        "computed over the time passed, the first step left out, and must be 90 % (CosmoFlow 70 %). The "
        "table has the shortest compute time of a step at which it still is, found by halving, one epoch "
        "with cold files each time. What the device allows is that AU at its best rate past the page "
        "cache. Samples have the shapes of known workloads, scaled down to a small machine: no result of "
        "any published benchmark.",
        "",
        *_table(rows, columns, cell, more, ["against Headrace's"]),
    ]
    goals = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        ours = _median(_find(rows, OURS, variant), "step_ms")
        peers = [
            r for r in rows if r["variant"] == variant and r["contender"] not in (OURS, DEVICE)
        ]
        short = variant.partition(":")[0]
        for step in (_median(row, "step_ms") for row in peers):
            if ours and step:
                goals.append(_goal(f"{short}: step 1.5 x shorter", step >= ours * GOAL_STEP))
        of_device = _median(_find(rows, OURS, variant), "of_device")
        if of_device:
            goals.append(_goal(f"{short}: 95 % of the device", of_device >= GOAL_DEVICE))
    return lines + _summary(goals)


TABLES = {"w9": bucket_tables, "w10": slow_tables, "w11": node_tables, "w12": step_tables}
