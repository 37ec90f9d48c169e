"""Tables of a checkpoint campaign: ratios to the limits of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

# What each figure should reach, as told in the notes below the tables.
GOALS = {
    "stall_first": 1.25,
    "stall_steady": 1.15,
    "of_write": 0.87,
    "of_read": 0.93,
    "warm": 0.8,
    "reshard": 1.02,
    "manifests_s": 1.0,
    "drain": 1.10,
}
LARGE = 100_000_000  # bytes of a state whose time is the disk's
NAMES = {
    "dense": "2.19 GB in 360 tensors",
    "many": "20,000 small tensors (93 MB)",
    "small": "149 MB in 36 tensors",
    "tiny": "a tiny model (quick run)",
    "few": "500 small tensors (quick run)",
}


def one_line(part: str, result: dict) -> str:
    """A run in a few words."""
    if part == "speed":
        words = []
        if result["saves"]:
            last = result["saves"][-1]
            words.append(f"stall {last['stall_s']:.3f} s  durable {last['durable_s']:.3f} s")
        words += [
            f"{'cold' if row['cold'] else 'warm'} {row['s']:.3f} s" for row in result["restores"]
        ]
        if result.get("wrong"):
            words.append(f"{result['wrong']} TENSORS WRONG")
        return "  ".join(words)
    return "  ".join(f"{key} {_short(value)}" for key, value in result.items())


def _short(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_short, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def results(campaign: dict, part: str, state: str | None = None) -> dict[str, list[dict]]:
    """Contender -> its results, in the order of the campaign."""
    found: dict[str, list[dict]] = {}
    for run in campaign["runs"]:
        if run["part"] == part and "result" in run and state in (None, run.get("state")):
            found.setdefault(run["name"], []).append(run["result"])
    return found


def by_state(campaign: dict, part: str) -> dict[str, list[dict]]:
    """State -> results of a part, whoever gave them."""
    found: dict[str, list[dict]] = {}
    for run in campaign["runs"]:
        if run["part"] == part and "result" in run:
            found.setdefault(run["state"], []).append(run["result"])
    return found


def cell(values: Iterable[float], form: str = ".2f") -> str:
    """Median (lowest to highest)."""
    values = list(values)
    if not values:
        return "-"
    low, middle, high = min(values), statistics.median(values), max(values)
    spread = "" if format(low, form) == format(high, form) else f" ({low:{form}} to {high:{form}})"
    return f"{middle:{form}}{spread}"


def best_speed(campaign: dict, verb: str) -> float | None:
    """GB/s: the best median of the rows of fio."""
    medians = [
        statistics.median(run["gb_per_s"] for run in runs)
        for runs in results(campaign, f"limit {verb}").values()
    ]
    return max(medians, default=None)


def firsts(runs: list[dict], key: str) -> list[float]:
    return [run["saves"][0][key] for run in runs if run["saves"]]


def steady(runs: list[dict], key: str) -> list[float]:
    return [save[key] for run in runs for save in run["saves"][1:]]


def restores(runs: list[dict], cold: bool, key: str = "s") -> list[float]:
    return [row[key] for run in runs for row in run["restores"] if row["cold"] == cold]


def median_or_none(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def ratio(values: list[float], unit: float | None, form: str = ".2f") -> str:
    """As multiples of a limit."""
    return cell([value / unit for value in values], form) if unit else "-"


def share(unit: float | None, values: list[float]) -> str:
    """As the share of a limit that was reached."""
    return cell([unit / value for value in values], ".0%") if unit else "-"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def write_limit(campaign: dict, rows: dict[str, list[dict]]) -> float | None:
    """GB/s: the best of fio's rows and of all contenders."""
    best = [speed for speed in [best_speed(campaign, "write")] if speed]
    if not best:
        return None
    for runs in rows.values():
        durable = steady([run for run in runs if run.get("file_bytes")], "durable_s")
        if durable and runs[0]["bytes"] >= LARGE:
            best.append(runs[0]["bytes"] / 1e9 / statistics.median(durable))
    return max(best)


def save_table(campaign: dict, state: str) -> list[str]:
    rows = results(campaign, "speed", state)
    copies = [s for run in rows.get("copy", []) for s in steady([run], "stall_s")]
    copy = median_or_none(copies)
    write = write_limit(campaign, rows)
    lines = []
    for name, runs in rows.items():
        size = runs[0]["bytes"]
        if name == "copy" or not firsts(runs, "stall_s"):
            continue
        limit = size / 1e9 / write if write else None
        durable = steady(runs, "durable_s")
        lines.append(
            [
                name,
                cell(steady(runs, "stall_s"), ".3f"),
                ratio(firsts(runs, "stall_s"), copy),
                ratio(steady(runs, "stall_s"), copy),
                cell(durable, ".3f"),
                share(limit, firsts(runs, "durable_s")),
                share(limit, durable),
                cell([s / (size / 1e9) for s in steady(runs, "cpu_s")]),
                cell([s / (size / 1e9) for s in steady(runs, "machine_cpu_s")]),
                cell([run["file_bytes"] / size for run in runs if "file_bytes" in run], ".3f"),
                cell([run["more_mb"] for run in runs if "more_mb" in run], ".0f"),
            ]
        )
    head = ["", "stall, s", "first / copy", "steady / copy", "durable, s", "first of write limit"]
    head += [
        "steady of write limit",
        "CPU-s per GB",
        "of the machine",
        "file bytes / state",
        "MB more",
    ]
    unit = f"{copy:.4f} s" if copy else "not measured"
    note = f"Copy of the state by one thread: {unit}."
    if write:
        note += f" Best write of fio's (O_DIRECT) and all contenders: {write:.2f} GB/s."
    return [f"### Save: {NAMES.get(state, state)}", "", note, "", *table(head, lines)]


def restore_table(campaign: dict, state: str) -> list[str]:
    rows = results(campaign, "speed", state)
    read = best_speed(campaign, "read")
    peers = [
        runs[0]["bytes"] / 1e9 / statistics.median(restores(runs, True))
        for runs in rows.values()
        if restores(runs, True)
    ]
    # The best that anyone reached counts as the limit too.
    best = max([*peers, *([read] if read else [])], default=None)
    safetensors = median_or_none(restores(rows.get("safetensors", []), False))
    lines = []
    for name, runs in rows.items():
        if not restores(runs, True):
            continue
        size = runs[0]["bytes"] / 1e9
        lines.append(
            [
                name,
                cell(restores(runs, True), ".3f"),
                share(size / best if best else None, restores(runs, True)),
                cell(restores(runs, False), ".3f"),
                ratio(restores(runs, False), safetensors),
                cell([s / size for s in restores(runs, True, "cpu_s")]),
                str(max(run["wrong"] for run in runs)),
            ]
        )
    head = [
        "",
        "cold, s",
        "of read limit",
        "warm, s",
        "warm / safetensors",
        "CPU-s per GB",
        "wrong",
    ]
    note = (
        "Into tensors that exist. The limit is the best of fio's O_DIRECT reads and all contenders"
    )
    note += f": {best:.2f} GB/s." if best else "."
    return [f"### Restore: {NAMES.get(state, state)}", "", note, "", *table(head, lines)]


def rank_table(campaign: dict) -> list[str]:
    states = sorted({run["state"] for run in campaign["runs"] if run["part"] == "ranks"})
    if not states:
        return []
    names = list(results(campaign, "ranks"))
    lines = []
    for name in names:
        cells = [name]
        for state in states:
            runs = results(campaign, "ranks", state).get(name, [])
            cells.append(cell([run["of_unique"] for run in runs], ".3f"))
        lines.append(cells)
    head = ["", *(state.replace("to", " ranks to ") for state in states)]
    note = "Bytes that all ranks asked for, as multiples of the state's. Goal: at most "
    note += f"{GOALS['reshard']}."
    return ["### Other numbers of ranks", "", note, "", *table(head, lines)]


def manifest_table(campaign: dict) -> list[str]:
    lines = [
        [
            name,
            f"{runs[0]['ranks']:,} x {runs[0]['boxes']:,}",
            cell([run["assemble_cpu_s"] for run in runs], ".3f"),
            cell([run["read_cpu_s"] for run in runs], ".3f"),
            cell([run["bytes_a_box"] for run in runs], ".1f"),
        ]
        for name, runs in results(campaign, "manifests").items()
    ]
    if not lines:
        return []
    head = ["", "ranks x boxes", "put together, CPU-s", "read again, CPU-s", "bytes a box"]
    note = (
        "Rank manifests decoded, checked for coverage and written as one, by one thread; Headrace "
    )
    note += f"alone. Goal: less than {GOALS['manifests_s']:g} s."
    return ["### Manifests of many ranks", "", note, "", *table(head, lines)]


def drain_table(campaign: dict) -> list[str]:
    lines = []
    for state, runs in by_state(campaign, "drain").items():
        idle = [p99 for run in runs for p99 in run["idle_p99_ms"]]
        drain = [p99 for run in runs for p99 in run["drain_p99_ms"]]
        unit = median_or_none(idle)
        lines.append(
            [
                NAMES.get(state, state),
                cell([run["step_ms"] for run in runs], ".1f"),
                cell(idle, ".1f"),
                cell(drain, ".1f"),
                f"{statistics.median(drain) / unit:.2f}" if unit and drain else "-",
                cell([run["loader_ms"] for run in runs], ".1f"),
                cell([s for run in runs for s in run["drain_s"]]),
                cell([run["interval_s"] for run in runs], ".0f"),
                str(sum(run["late"] for run in runs)),
            ]
        )
    if not lines:
        return []
    head = ["", "step, ms", "p99 idle, ms", "p99 with a drain, ms", "medians' ratio"]
    head += ["loader alone, ms a batch", "drain, s", "save each, s", "late"]
    note = "A training whose steps have a fixed length takes batches from a loader that could give "
    note += "twice as many; p99 of the time from batch to batch, in windows with and without a "
    note += f"drain. Goal: a ratio of at most {GOALS['drain']}, and no drain that is late."
    return ["### The loader while a checkpoint drains", "", note, "", *table(head, lines)]


def fault_table(campaign: dict) -> list[str]:
    lines = [
        [name, *(str(runs[-1][key]) for key in ("tried", "noticed", "harmless", "silent"))]
        for name, runs in results(campaign, "faults").items()
    ]
    if not lines:
        return []
    head = ["", "damages", "noticed", "harmless", "wrong without a word"]
    note = "One bit flipped, or a block of 4 KiB blanked, in the two largest files, one at a time."
    return ["### Damaged files", "", note, "", *table(head, lines)]


def kill_table(campaign: dict) -> list[str]:
    lines = []
    for name, runs in results(campaign, "kill").items():
        found = [run["found"] for run in runs]
        kinds = ("old", "new", "mixed", "none")
        lines.append([name, str(len(runs)), *(str(found.count(kind)) for kind in kinds)])
    if not lines:
        return []
    head = ["", "kills", "the one before", "the new one", "a mixture", "none"]
    note = "SIGKILL at random moments of a save over the checkpoint before; what comes back."
    return ["### Killed in the midst of a save", "", note, "", *table(head, lines)]


def render(campaign: dict) -> str:
    machine = campaign["machine"]
    states = dict.fromkeys(run["state"] for run in campaign["runs"] if run["part"] == "speed")
    lines = [
        "# Checkpoints",
        "",
        f"{campaign['date']}, Headrace {campaign['commit']}. {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, kernel "
        f"{machine['kernel']}. Made by `bench/checkpoint.py`; do not edit.",
        "",
        f"Median of {campaign['repeats']} interleaved runs (lowest to highest). *Stall*: inside the call. "
        "*Durable*: until the library says that it has ended, and all files and folders are synced. "
        "*First* and *steady*: the first and the later saves of a process; each tensor changes in "
        "between. Goals of Headrace: stall at most "
        f"{GOALS['stall_steady']} x the copy ({GOALS['stall_first']} x the first time), durable at "
        f"{GOALS['of_write']:.0%} of the write limit, cold restore at {GOALS['of_read']:.0%} of the read "
        f"limit, warm at most {GOALS['warm']} x safetensors' time.",
        "",
    ]
    for state in states:
        lines += save_table(campaign, state) + restore_table(campaign, state)
    lines += rank_table(campaign) + manifest_table(campaign) + drain_table(campaign)
    lines += fault_table(campaign) + kill_table(campaign)
    if campaign["left_out"]:
        lines += ["Left out: " + "; ".join(campaign["left_out"]) + ".", ""]
    failed = [f"{run['name']}: {run['error']}" for run in campaign["runs"] if "error" in run]
    if failed:
        lines += ["Failed: " + "; ".join(failed), ""]
    return "\n".join(lines)
