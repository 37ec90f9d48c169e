"""Turns the runs of a campaign into medians and a Markdown page."""

from __future__ import annotations

import statistics

import codec_report
import network_report
from contenders import LOADER_CORPORA, WORKS

DTYPES = ("float32", "uint8")
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
    "w8": [("images per CPU-second", "per_cpu_s", ",.0f"), ("images/s", "per_s", ",.0f")],
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
    return middle if low == high else f"{middle} ({low} to {high})"


def _sorted(rows: list[dict], key: str) -> list[dict]:
    sign = 1 if key in _LESS_IS_BETTER else -1
    return sorted(rows, key=lambda row: sign * row[key][0] if key in row else float("inf"))


def _reference(rows: list[dict], row: dict, key: str) -> dict | None:
    """The Headrace row that `row` is compared with: of the same settings, or else the best one.

    The row with default settings is called Headrace and goes first.
    """
    ours = [other for other in _sorted(rows, key) if other["contender"].startswith("Headrace")]
    ours = [other for other in ours if key in other and not other["contender"].endswith("durable")]
    ours.sort(key=lambda other: other["contender"] != "Headrace")
    same = [other for other in ours if other["variant"] == row["variant"]]
    return next(iter(same or ours), None)


def _ratio(rows: list[dict], row: dict, key: str) -> str:
    """How many times better Headrace is than this row, in the first column."""
    reference = _reference(rows, row, key)
    if reference is None or key not in row or row["contender"].startswith("Headrace"):
        return ""
    ours, theirs = reference[key][0], row[key][0]
    return f"{theirs / ours if key in _LESS_IS_BETTER else ours / theirs:.2f} x"


def _table_row(rows: list[dict], row: dict, work: str, floor: float | None) -> str:
    columns = _COLUMNS[work]
    if row["runs"] == 0:
        return f"| {row['contender']} | {row['variant']} | failed: {row['error'][:120]} |"
    disturbed = row.get("other_cores", [0])[0] > BUSY
    cells = [row["contender"] + (" \\*" if disturbed else ""), row["variant"]]
    cells += [_cell(row, key, form) for _, key, form in columns]
    cells.append(_ratio(rows, row, columns[0][1]))
    if floor:
        cells.append(f"{row['per_cpu_s'][0] / floor:.0%}")
    return "| " + " | ".join(cells) + " |"


def _table(rows: list[dict], work: str, floor: float | None = None) -> list[str]:
    """The table of a work, best first; with the share of the floor where there is one."""
    columns = _COLUMNS[work]
    titles = ["contender", "settings", *(title for title, _, _ in columns), "Headrace against it"]
    titles += ["of the floor"] if floor else []
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += [_table_row(rows, row, work, floor) for row in _sorted(rows, columns[0][1])]
    return [*lines, ""]


def _limits_table(limits: list[dict]) -> list[str]:
    lines = ["| limit | images per CPU-second | GB/s |", "|---|---|---|"]
    for row in limits:
        images, bandwidth = _cell(row, "per_cpu_s", ",.0f"), _cell(row, "gb_per_s", ".1f")
        lines.append(f"| {row['variant']} | {images} | {bandwidth} |")
    return [*lines, ""]


def _floors(rows: list[dict]) -> dict[str, float]:
    """Images per CPU-second of the floor, by data type."""
    names = {f"floor {dtype}": dtype for dtype in DTYPES}
    return {
        names[row["variant"]]: row["per_cpu_s"][0]
        for row in rows
        if row["work"] == "limit" and row["variant"] in names and "per_cpu_s" in row
    }


def _heading(campaign: dict) -> list[str]:
    machine = campaign["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    lines = [
        "# Side by side",
        "",
        f"{campaign['date']}, Headrace {campaign['commit']}. {where}, {machine['system']}. "
        "Made by `make bench`; do not edit.",
        "",
        f"Median of {campaign['repeats']} interleaved runs (lowest to highest). CPU-seconds count the "
        "whole process tree. Data lie in the page cache where nothing else is said. A star marks rows "
        'that other work on the machine may have disturbed. "Headrace against it" is the ratio of the '
        "first column, at equal settings where there are such, otherwise of Headrace's best row.",
        "",
    ]
    if campaign["quick"]:
        lines += ["**A quick run, to see that everything works: the figures mean little.**", ""]
    return lines


def _work_tables(work: str, rows: list[dict], floors: dict[str, float]) -> list[str]:
    """What follows the heading of a work."""
    if work == "w1":
        return _train_tables(rows, floors)
    if work == "w6":
        return codec_report.codec_tables(rows, _cell)
    if work == "w7":
        return codec_report.points_tables(rows, _cell)
    if work in network_report.TABLES:
        return network_report.TABLES[work](rows, _cell)
    return _table(rows, work)


def _train_tables(rows: list[dict], floors: dict[str, float]) -> list[str]:
    """W1: a table for each corpus and data type. The floor is that of the usual corpus."""
    lines = []
    for corpus in LOADER_CORPORA:
        for dtype in DTYPES:
            start = dtype if corpus == "web" else f"{corpus}: {dtype}"
            part = [row for row in rows if row["variant"].startswith(start)]
            floor = floors.get(dtype) if corpus == "web" else None
            lines += _table(part, "w1", floor) if part else []
    return lines


def render(campaign: dict) -> str:
    """The Markdown page of a campaign."""
    rows = summarize(campaign["runs"])
    limits = [row for row in rows if row["work"] == "limit"]
    floors = _floors(rows)
    lines = _heading(campaign)
    if limits:
        lines += ["## The machine's limits, same run", "", *_limits_table(limits)]
    for work, title in WORKS.items():
        of_work = [row for row in rows if row["work"] == work]
        if not of_work:
            continue
        lines += [f"## {title}", "", *_work_tables(work, of_work, floors)]
    if campaign["left_out"]:
        lines += ["Left out: " + ", ".join(campaign["left_out"]) + ".", ""]
    return "\n".join(lines)


# ---------------------------------------------------------------- the short table of the README

# title, work, start of the variant, key, format, contenders that are limits and not peers
_OVERVIEW = (
    ("Train pipeline, float32: images per CPU-second", "w1", "float32", "per_cpu_s", ",.0f", ()),
    ("Train pipeline, uint8: images per CPU-second", "w1", "uint8", "per_cpu_s", ",.0f", ()),
    ("Raw shuffled samples per CPU-second", "w2", "", "per_cpu_s", ",.0f", ()),
    (
        "Process start to first of 1,000,000 samples, s",
        "w3",
        "1,000,000 ",
        "first_s",
        ".2f",
        ("import numpy", "plain files"),
    ),
    (
        "Packing without seek points: files per CPU-second",
        "w4",
        "1 ",
        "per_cpu_s",
        ",.0f",
        ("cat", "GNU tar"),
    ),
)
_USUAL = "DataLoader + Pillow"
OVERVIEW_WORKS = {row[1] for row in _OVERVIEW}


def overview(campaign: dict) -> str:
    """The README's table: Headrace against the best peer, and against the usual recipe."""
    rows = summarize(campaign["runs"])
    lines = ["| | Headrace | best of the others | ratio |", "|---|---|---|---|"]
    for title, work, variant, key, form, limits in _OVERVIEW:
        part = [
            r for r in rows if r["work"] == work and r["variant"].startswith(variant) and key in r
        ]
        part = _sorted(part, key)
        ours = [row for row in part if row["contender"].startswith("Headrace")]
        ours.sort(key=lambda row: row["contender"] != "Headrace")  # default settings first
        peers = [
            row
            for row in part
            if row not in ours and not row["contender"].startswith(limits or "\0")
        ]
        if not ours or not peers:
            continue
        lines.append(_overview_row(title, ours[0], peers[0], key, form))
        usual = [row for row in peers if row["contender"] == _USUAL]
        if usual:
            lines.append(
                _overview_row("... against the usual recipe", ours[0], usual[0], key, form)
            )
    return "\n".join(lines + _codec_overview(rows))


# title, corpus
_CODEC_OVERVIEW = (
    ("JPEG codec alone, 69 kB images: times libjpeg-turbo's bare full decode", "web"),
    ("... 117 kB images", "dense"),
    ("... 1600 x 1200", "large"),
)


def _codec_overview(rows: list[dict]) -> list[str]:
    """Rows of the README's table: the codec by one thread, against libjpeg-turbo's region decode."""
    lines = []
    for title, corpus in _CODEC_OVERVIEW:
        found = {
            row["contender"]: row["of_unit"][0]
            for row in rows
            if row["work"] == "w6" and row["variant"] == f"{corpus}, 1 thread" and "of_unit" in row
        }
        exact, fast = found.get("Headrace, exact"), found.get("Headrace, fast")
        region = found.get("libjpeg-turbo, region and resize")
        if exact and fast and region:
            lines.append(
                f"| {title} | {exact:.2f} (fast {fast:.2f}) | {region:.2f} (its region decode) "
                f"| {exact / region:.1f} x |"
            )
    return lines


def _overview_row(title: str, ours: dict, peer: dict, key: str, form: str) -> str:
    mine, theirs = ours[key][0], peer[key][0]
    ratio = theirs / mine if key in _LESS_IS_BETTER else mine / theirs
    cells = [
        title,
        format(mine, form),
        f"{format(theirs, form)} ({peer['contender']})",
        f"{ratio:.1f} x",
    ]
    return "| " + " | ".join(cells) + " |"


_TABLE_BEGIN, _TABLE_END = "<!-- table -->", "<!-- /table -->"


def put_into_readme(readme: str, table: str) -> str:
    """`readme` with the table between its two marks; unchanged if it has no mark."""
    before, mark, after = readme.partition(_TABLE_BEGIN)
    if not mark:
        return readme
    old, end, rest = after.partition(_TABLE_END)
    return f"{before}{_TABLE_BEGIN}\n{table}\n{_TABLE_END}{rest if end else old}"
