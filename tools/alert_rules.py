#!/usr/bin/env python3
"""Write deploy/prometheus/headrace-alerts.yml: alert_rules.py [--check] PROGRAM

The rules are below; the program is asked whether it exports what they read. With --check nothing is
written; the exit code is 1 when the file is not what this script would write.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import metric_registry
from reference_page import write_or_check

HEADER = """# Made by tools/alert_rules.py: change the rules there, then run the script.
# What to do about each of them: docs/guide/observe.md, docs/guide/waiting.md.
"""


@dataclass(frozen=True)
class Alert:
    """One rule. Its expression gives one series for each run that is in trouble."""

    name: str
    expression: str
    lasting: str  # how long it must hold
    severity: str  # critical: nothing gets done, or what was done is lost; warning: it is slower
    summary: str
    description: str


def growth(name: str, window: str, how: str = "sum") -> str:
    """What a counter of each run grows by in a second."""
    return f"{how} by (run) (rate({name}[{window}]))"


def share_of_loop(name: str, window: str) -> str:
    """A part of the loop's time, as a share, over all ranks of each run."""
    wait = growth("headrace_input_wait_seconds_total", window)
    between = growth("headrace_between_batches_seconds_total", window)
    return f"{growth(name, window)} / ({wait} + {between})"


def added(name: str, window: str) -> str:
    """How much a counter of each run grew."""
    return f"sum by (run) (increase({name}[{window}]))"


ALERTS = (
    Alert(
        "HeadraceLoopStarved",
        # The wait that goes on is a part of the metric; a loop that has ended waits for nothing.
        f"{growth('headrace_input_wait_seconds_total', '5m', 'min')} > 0.99 and "
        f"{growth('headrace_loop_batches_total', '5m')} == 0",
        "5m",
        "critical",
        "No rank of run {{ $labels.run }} gets a batch",
        "All ranks have waited for a batch for five minutes and more. Look at the log, and at "
        "headrace doctor --attach PID.",
    ),
    Alert(
        "HeadraceInputStall",
        f"{share_of_loop('headrace_input_wait_seconds_total', '10m')} > 0.1",
        "10m",
        "warning",
        "Run {{ $labels.run }} waits for its input",
        "{{ $value | humanizePercentage }} of the training loop's time is spent waiting for batches. "
        "headrace doctor --attach PID says what holds them back.",
    ),
    Alert(
        "HeadraceSaveStall",
        f"{share_of_loop('headrace_save_stall_seconds_total', '30m')} > 0.05",
        "10m",
        "warning",
        "Saves hold up run {{ $labels.run }}",
        "{{ $value | humanizePercentage }} of the training loop's time goes to saves of checkpoints. "
        "Save with wait=False, and to a local tier first.",
    ),
    Alert(
        "HeadraceCheckpointFailed",
        f"{added('headrace_checkpoint_failures_total', '1h')} > 0",
        "0m",
        "critical",
        "Saves of run {{ $labels.run }} fail",
        "Saves ended without being published in the last hour; the log says why. The newest "
        "checkpoint is older than it should be.",
    ),
    Alert(
        "HeadraceBadSamples",
        f"{growth('headrace_loader_bad_samples_total', '15m')} / "
        f"{growth('headrace_loader_samples_total', '15m')} > 0.001",
        "15m",
        "warning",
        "Run {{ $labels.run }} meets bad samples",
        "{{ $value | humanizePercentage }} of its samples cannot be used. The quarantine list, where "
        "one is kept, names them.",
    ),
    Alert(
        "HeadraceStoreFailures",
        f"{growth('headrace_store_failures_total', '10m')} / "
        f"{growth('headrace_store_requests_total', '10m')} > 0.05",
        "10m",
        "warning",
        "Requests of run {{ $labels.run }} to object stores fail",
        "{{ $value | humanizePercentage }} of its requests fail. When they are refused for their "
        "number: fewer and larger ones, or a cache.",
    ),
    Alert(
        "HeadraceCacheDegraded",
        f"{added('headrace_cache_degraded_total', '1h')} > 0",
        "0m",
        "warning",
        "A cache of run {{ $labels.run }} has stopped to work",
        "The cache's disk failed or is full: blocks come from the origin each time.",
    ),
    Alert(
        "HeadraceMemoryNearLimit",
        "max by (run) (headrace_process_resident_memory_bytes / "
        "(headrace_process_memory_limit_bytes > 0)) > 0.9",
        "5m",
        "warning",
        "A process of run {{ $labels.run }} is near its memory limit",
        "{{ $value | humanizePercentage }} of what the machine or the control group allows is in "
        "use by one process.",
    ),
    Alert(
        "HeadraceOpenFilesNearLimit",
        "max by (run) (headrace_process_open_fds / (headrace_process_max_fds > 0)) > 0.9",
        "5m",
        "warning",
        "A process of run {{ $labels.run }} is near its limit of open files",
        "{{ $value | humanizePercentage }} of its descriptors are in use: raise ulimit -n.",
    ),
    Alert(
        "HeadraceCpuThrottled",
        f"{growth('headrace_cgroup_throttled_seconds_total', '10m', 'max')} > 0.1",
        "10m",
        "warning",
        "A CPU quota stops run {{ $labels.run }}",
        "The control group's processes stood still for {{ $value | humanizePercentage }} of the time "
        "because its CPU quota was used up: fewer threads, or a larger quota.",
    ),
)


def rules_of(program: str) -> str:
    """Return the text of the file. Strings are quoted as in JSON, which YAML reads the same."""
    registry = metric_registry.read(program)
    lines = ["groups:", "- name: headrace", "  rules:"]
    for alert in ALERTS:
        registry.named_in(alert.expression)
        lines += [
            f"  - alert: {alert.name}",
            f"    expr: {json.dumps(alert.expression)}",
            f"    for: {alert.lasting}",
            "    labels:",
            f"      severity: {alert.severity}",
            "    annotations:",
            f"      summary: {json.dumps(alert.summary)}",
            f"      description: {json.dumps(alert.description)}",
        ]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check("deploy/prometheus/headrace-alerts.yml", rules_of, __doc__))
