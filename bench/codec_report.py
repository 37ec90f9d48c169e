"""The tables of the codec works: w6 and w7, one part for each corpus."""

from __future__ import annotations

from collections.abc import Callable

from codec import CONTENDERS

_ORDER = {contender: rank for rank, contender in enumerate(CONTENDERS.values())}
Cell = Callable[[dict, str, str], str]

_CODEC_COLUMNS = (
    ("images per CPU-second", "per_cpu_s", ",.0f"),
    ("images/s", "per_s", ",.0f"),
    ("against the whole image", "of_unit", ".2f"),
    ("from seek points", "from_seek_points_share", ".1%"),
    ("failed", "failed", ",.0f"),
)
_POINTS_COLUMNS = (
    ("built: images per CPU-second", "per_cpu_s", ",.0f"),
    ("images/s", "per_s", ",.0f"),
    ("bytes of the images'", "record_share", ".2%"),
    ("images", "files", ",.0f"),
    ("mean kB", "mean_kb", ".1f"),
    ("have seek points", "seekable_share", ".1%"),
    ("of the baseline ones", "seekable_baseline_share", ".1%"),
)
_REFUSED = "refused_"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(titles: list[str]) -> list[str]:
    return [_line(titles), "|" + "---|" * len(titles)]


def _corpus(row: dict) -> str:
    return row["variant"].partition(",")[0]


def codec_tables(rows: list[dict], cell: Cell) -> list[str]:
    """W6: a table for each corpus and number of threads, in the order of the variants."""
    lines = [
        "Random crop to 224, flip, normalize to float32 where nothing else is said; evaluation is "
        "resize to 256 and center crop. The unit is a plain decode of the whole image to RGB by "
        "libjpeg-turbo, whose turn comes every few images; the ratio is that of the same run.",
        "",
    ]
    for variant in dict.fromkeys(row["variant"] for row in rows):
        part = [row for row in rows if row["variant"] == variant]
        part.sort(key=lambda row: _ORDER.get(row["contender"], len(_ORDER)))
        lines += _head([variant, *(title for title, _, _ in _CODEC_COLUMNS)])
        for row in part:
            if row["runs"] == 0:
                lines.append(_line([row["contender"], f"failed: {row['error'][:120]}"]))
                continue
            cells = [cell(row, key, form) for _, key, form in _CODEC_COLUMNS]
            lines.append(_line([row["contender"], *cells]))
        lines.append("")
    return lines


def points_tables(rows: list[dict], cell: Cell) -> list[str]:
    """W7: one table of figures, then who has no seek points and why."""
    rows = [row for row in rows if row["runs"]]
    lines = _head(["corpus", *(title for title, _, _ in _POINTS_COLUMNS)])
    for row in rows:
        cells = [cell(row, key, form) for _, key, form in _POINTS_COLUMNS]
        lines.append(_line([row["variant"], *cells]))
    lines.append("")
    for corpus, row in {_corpus(row): row for row in rows}.items():
        reasons = [
            f"{key.removeprefix(_REFUSED)} {row[key][0]:,.0f}"
            for key in sorted(row)
            if key.startswith(_REFUSED)
        ]
        if reasons:
            lines += [f"Without seek points in {corpus}: {', '.join(reasons)}.", ""]
    return lines
