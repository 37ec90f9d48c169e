"""Turns the runs of a campaign into medians and a Markdown page."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from contenders import WORKS

BUSY = 0.2  # cores that other work may use before a row is marked

# work -> (heading, key of the result, format) of each column
_COLUMNS: dict[str, list[tuple[str, str, str]]] = {
    "w1": [
        ("images per CPU-second", "per_cpu_s", ",.0f"),
        ("images/s", "per_s", ",.0f"),
        ("memory above imports, MB", "pss_mb", ",.0f"),
        ("first batch, s", "first_batch_s", ".2f"),
    ],
    "w2": [
        ("samples per CPU-second", "per_cpu_s", ",.0f"),
        ("samples/s", "per_s", ",.0f"),
        ("GB/s", "gb_per_s", ".2f"),
        ("memory above imports, MB", "pss_mb", ",.0f"),
    ],
    "w3": [
        ("start to first sample, s", "first_s", ".3f"),
        ("random sample, µs", "random_read_us", ",.1f"),
        ("resident, MB", "resident_mb", ",.0f"),
    ],
    "w4": [
        ("files per CPU-second", "per_cpu_s", ",.0f"),
        ("files/s", "per_s", ",.0f"),
        ("MB/s", "mb_per_s", ",.0f"),
        ("written, MB", "packed_mb", ",.1f"),
    ],
    "w5": [
        ("µs of CPU a sample", "cpu_us", ".3f"),
        ("samples/s", "per_s", ",.0f"),
        ("memory above imports, MB", "pss_mb", ",.0f"),
    ],
}
_LESS_IS_BETTER = ("first_s", "cpu_us")


def with_derived(result: dict) -> dict:
    """The result with what its columns need beyond what was measured."""
    derived = dict(result)
    if "packed_bytes" in result:
        derived["packed_mb"] = result["packed_bytes"] / 1e6
    if result.get("per_cpu_s"):
        derived["cpu_us"] = 1e6 / result["per_cpu_s"]
    return derived


def summarize(runs: list[dict]) -> list[dict]:
    """One row for each job: median, lowest and highest of every number over the repeats."""
    rows: dict[tuple, list[dict]] = {}
    for run in runs:
        rows.setdefault((run["work"], run["contender"], run["variant"]), []).append(run)
    summary = []
    for (work, contender, variant), repeats in rows.items():
        good = [with_derived(run["result"]) for run in repeats if "result" in run]
        row = {"work": work, "contender": contender, "variant": variant, "runs": len(good)}
        errors = [run["error"] for run in repeats if "error" in run]
        if errors:
            row["error"] = errors[0]
        for key in sorted({key for result in good for key in result}):
            values = [result[key] for result in good if isinstance(result.get(key), (int, float))]
            if values:
                row[key] = [statistics.median(values), min(values), max(values)]
        summary.append(row)
    return summary


def _cell(row: dict, key: str, form: str) -> str:
    if key not in row:
        return ""
    middle, low, high = (format(value, form) for value in row[key])
    return middle if low == high else f"{middle} ({low}–{high})"


def _sorted(rows: list[dict], key: str) -> list[dict]:
    sign = 1 if key in _LESS_IS_BETTER else -1
    return sorted(rows, key=lambda row: sign * row[key][0] if key in row else float("inf"))


def _ratio(row: dict, reference: dict | None, key: str) -> str:
    """How many times better the reference (Headrace) is than this row."""
    if reference is None or key not in row or key not in reference or row is reference:
        return ""
    mine, other = reference[key][0], row[key][0]
    ratio = other / mine if key in _LESS_IS_BETTER else mine / other
    return f"{ratio:.2f}"


def _table(
    rows: list[dict], work: str, extra: Callable[[dict], list[str]], heads: list[str]
) -> list[str]:
    columns = _COLUMNS[work]
    key = columns[0][1]
    reference = next(
        (row for row in _sorted(rows, key) if row["contender"].startswith("Headrace")), None
    )
    titles = [
        "contender",
        "settings",
        *(title for title, _, _ in columns),
        "Headrace is better by",
        *heads,
    ]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in _sorted(rows, key):
        if row["runs"] == 0:
            lines.append(
                f"| {row['contender']} | {row['variant']} | failed: {row['error'][:120]} |"
            )
            continue
        busy = row.get("other_cores", [0])[0] > BUSY
        cells = [row["contender"] + (" \\*" if busy else ""), row["variant"]]
        cells += [_cell(row, key_, form) for _, key_, form in columns]
        cells += [_ratio(row, reference, key), *extra(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _limits_table(limits: list[dict]) -> list[str]:
    lines = ["| limit | images per CPU-second | GB/s |", "|---|---|---|"]
    for row in limits:
        lines.append(
            f"| {row['variant']} | {_cell(row, 'per_cpu_s', ',.0f')} | {_cell(row, 'gb_per_s', '.1f')} |"
        )
    return [*lines, ""]


def render(campaign: dict) -> str:
    """The Markdown page of a campaign."""
    machine = campaign["machine"]
    rows = summarize(campaign["runs"])
    limits = [row for row in rows if row["work"] == "limit"]
    floors = {row["variant"]: row["per_cpu_s"][0] for row in limits if "per_cpu_s" in row}
    lines = [
        "# Side by side",
        "",
        f"{campaign['date']}, Headrace {campaign['commit']}. {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['system']}. Made by `make bench`; do not edit.",
        "",
        f"Median of {campaign['repeats']} interleaved runs (lowest–highest). CPU-seconds count the whole "
        "process tree. Data lie in the page cache. A star marks rows that other work on the machine may "
        'have disturbed. "Headrace is better by" compares the first column with Headrace\'s best row.',
        "",
    ]
    if campaign.get("quick"):
        lines += ["**A quick run, to see that everything works: the figures mean little.**", ""]
    if limits:
        lines += ["## The machine's limits, same run", "", *_limits_table(limits)]
    for work, title in WORKS.items():
        of_work = [row for row in rows if row["work"] == work]
        if not of_work:
            continue
        lines += [f"## {title}", ""]
        if work == "w1":
            for dtype in ("float32", "uint8"):
                floor = floors.get(f"floor {dtype}")
                part = [row for row in of_work if row["variant"].startswith(dtype)]
                share = (
                    [lambda row, floor=floor: [f"{row['per_cpu_s'][0] / floor:.0%}"]][0]
                    if floor
                    else None
                )
                lines += _table(
                    part, work, share or (lambda row: []), ["of the floor"] if floor else []
                )
        else:
            lines += _table(of_work, work, lambda row: [], [])
    if campaign["left_out"]:
        lines += ["Left out, since not installed: " + ", ".join(campaign["left_out"]) + ".", ""]
    return "\n".join(lines)
