#!/usr/bin/env python3
"""Write deploy/grafana/headrace.json from the program's metrics: grafana_board.py [--check] PROGRAM

With --check nothing is written; the exit code is 1 when the board is not what the metrics ask for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import metric_registry
from metric_registry import Metric, Registry
from reference_page import write_or_check

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = '{run=~"$run",rank=~"$rank"}'
PER_RANK = "run {{run}}, rank {{rank}}"
WIDTH, HEIGHT, COLUMNS = 8, 8, 24

# Rows of the board: metrics go to the first one that has the beginning of their name.
ROWS = {
    "Training loop": (
        "process_info observed_ loop_ input_wait_ between_batches_ save_stall_ model_".split()
    ),
    "Pools and stages": ["pool_", "stage_"],
    "Loader": ["loader_"],
    "Cache of the node": ["cache_"],
    "Object stores": ["store_"],
    "Checkpoints": ["checkpoint_"],
    "The node's agent": ["node_"],
    "Process and machine": ["process_", "cgroup_"],
}
ADDED_UP = ("headrace_stage_busy_seconds_total", "headrace_stage_wait_seconds_total")


@dataclass(frozen=True)
class Panel:
    """One picture."""

    title: str
    description: str
    unit: str  # Grafana's name of it
    queries: tuple[tuple[str, str], ...]  # expression, legend
    axis: str = ""
    highest: float | None = None
    stacked: bool = False
    table: bool = False


def rate(name: str) -> str:
    """What a counter grows by in a second."""
    return f"rate({name}{CHOSEN}[$__rate_interval])"


def per_rank(expression: str) -> str:
    """Sum it up for each rank."""
    return f"sum by (run, rank) ({expression})"


def share_panels() -> Iterator[Panel]:
    """The loop's time as shares, as the design page defines them."""
    wait = per_rank(rate("headrace_input_wait_seconds_total"))
    between = per_rank(rate("headrace_between_batches_seconds_total"))
    saves = per_rank(rate("headrace_save_stall_seconds_total"))
    flops = per_rank(f"headrace_model_step_flops{CHOSEN}")
    peak = per_rank(f"headrace_model_peak_flops{CHOSEN}")
    batches = per_rank(rate("headrace_loop_batches_total"))
    shares = {
        "Input stall": (wait, "Share of the time for which the loop waited for batches."),
        "Save stall": (saves, "Share of the time for which saves held the loop up."),
        "AU": (f"({between} - {saves})", "Accelerator utilization: compute time / total time."),
    }
    for title, (part, description) in shares.items():
        whole = f"{part} / ({wait} + {between})"
        yield Panel(title, description, "percentunit", ((whole, PER_RANK),), highest=1)
    yield Panel(
        "MFU",
        "Model FLOPs utilization, where the program has told what a step costs.",
        "percentunit",
        ((f"{flops} * {batches} / ({peak} * ({wait} + {between}))", PER_RANK),),
        highest=1,
    )


def hit_panel() -> Panel:
    """How much of what was asked the cache had."""
    hits, misses = (
        f"sum by (run) ({rate(f'headrace_cache_{what}_total')})" for what in ("hits", "misses")
    )
    return Panel(
        "Hit ratio",
        "Share of the blocks read that the node's cache had.",
        "percentunit",
        ((f"{hits} / ({hits} + {misses})", "run {{run}}"),),
        highest=1,
    )


def chosen_panels() -> dict[str, list[Panel]]:
    """What rows begin with: what follows from several metrics."""
    return {"Training loop": list(share_panels()), "Cache of the node": [hit_panel()]}


def title_of(metric: Metric) -> str:
    """The metric's name in words."""
    words = metric.name.removeprefix("headrace_").removesuffix("_total").replace("_", " ")
    return words[0].upper() + words[1:]


def panel_of(metric: Metric) -> Panel:
    """The panel that fits a metric's kind: by its own labels, or else by rank."""
    labels = ("run", *metric.labels) if metric.labels else ("run", "rank")
    legend = PER_RANK if not metric.labels else ", ".join(f"{{{{{name}}}}}" for name in labels)
    title, listed = title_of(metric), ", ".join(labels)
    if metric.kind == "histogram":
        growth = f"sum by (le, {listed}) ({rate(metric.name + '_bucket')})"
        quantiles = tuple(
            (f"histogram_quantile({q}, {growth})", f"{legend}, {q:.0%}") for q in (0.5, 0.99)
        )
        return Panel(title, metric.help, "s", quantiles)
    if metric.kind == "counter":
        unit = "Bps" if metric.unit == "bytes" else "short"
        axis = "" if metric.unit == "bytes" else f"{metric.unit} a second"
        growth = f"sum by ({listed}) ({rate(metric.name)})"
        # Stages follow each other: their times add up to threads, or to requests under way.
        stacked = metric.name in ADDED_UP
        return Panel(title, metric.help, unit, ((growth, legend),), axis=axis, stacked=stacked)
    unit = {"bytes": "bytes", "seconds": "s"}.get(metric.unit, "short")
    axis = "" if unit != "short" else metric.unit
    value = f"sum by ({listed}) ({metric.name}{CHOSEN})"
    is_table = metric.name == "headrace_process_info"
    return Panel(title, metric.help, unit, ((value, legend),), axis=axis, table=is_table)


def row_of(metric: Metric) -> str:
    """The row that a metric belongs to."""
    name = metric.name.removeprefix("headrace_")
    for row, beginnings in ROWS.items():
        if any(name.startswith(one) for one in beginnings):
            return row
    raise SystemExit(f"{metric.name} belongs to no row of the board: add its beginning to ROWS")


def rows_of(registry: Registry) -> dict[str, list[Panel]]:
    """All rows with their panels: each metric has one of its own."""
    chosen = chosen_panels()
    rows = {row: list(chosen.get(row, [])) for row in ROWS}
    for metric in registry.metrics:
        rows[row_of(metric)].append(panel_of(metric))
    return rows


def panel_json(panel: Panel, number: int, column: int, line: int) -> dict[str, Any]:
    """A panel in Grafana's words."""
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.highest is not None:
        defaults["max"] = panel.highest
    if not panel.table:
        defaults["custom"] = {
            "axisLabel": panel.axis,
            "fillOpacity": 40 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "format": "table" if panel.table else "time_series",
            "instant": panel.table,
            "range": not panel.table,
        }
        for i, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "table" if panel.table else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": column, "y": line, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {} if panel.table else {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    }


def panels_json(rows: dict[str, list[Panel]]) -> list[dict[str, Any]]:
    """All rows and panels, in their places."""
    made: list[dict[str, Any]] = []
    line = 0
    for title, panels in rows.items():
        place = {"x": 0, "y": line, "w": COLUMNS, "h": 1}
        made.append(
            {"id": len(made) + 1, "type": "row", "title": title, "gridPos": place, "panels": []}
        )
        line += 1
        for i, panel in enumerate(panels):
            column = i * WIDTH % COLUMNS
            made.append(panel_json(panel, len(made) + 1, column, line))
            if column + WIDTH == COLUMNS or i + 1 == len(panels):
                line += HEIGHT
    return made


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A choice at the head of the board."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,  # when the time range changes
        "sort": 3,  # as numbers
        "multi": True,
        "includeAll": True,
        "allValue": ".*",  # also what has no name
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def board_of(program: str) -> str:
    """Return the text of the board."""
    registry = metric_registry.read(program)
    rows = rows_of(registry)
    for panel in (panel for panels in rows.values() for panel in panels):
        for expression, _ in panel.queries:
            registry.named_in(expression)
    source = {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    board = {
        "title": "Headrace",
        "uid": "headrace",
        "description": "Where the time of training jobs goes. Made by tools/grafana_board.py.",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                source,
                variable("run", "Run", "label_values(headrace_process_info, run)"),
                variable("rank", "Rank", 'label_values(headrace_process_info{run=~"$run"}, rank)'),
            ]
        },
        "panels": panels_json(rows),
    }
    return json.dumps(board, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check("deploy/grafana/headrace.json", board_of, __doc__))
