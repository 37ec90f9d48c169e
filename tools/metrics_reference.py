#!/usr/bin/env python3
"""Write docs/reference/metrics.md from the program's own list: metrics_reference.py [--check] PROGRAM

With --check nothing is written; the exit code is 1 when the page is not what the program says.
"""

from __future__ import annotations

import subprocess
import sys

from reference_page import write_or_check

INTRODUCTION = """# Metrics

Made by `tools/metrics_reference.py` from the registry (`src/headrace/base/metrics.cc`): change it there,
then run the script.

Each process with a running loader serves these as `/metrics` in Prometheus' text format, over its admin
socket, and over HTTP where it is asked to ([observe a run](../guide/observe.md)). Every sample has the
labels `run` (the job's name) and `rank`; where `headrace agent` gives those of all processes of a node,
also `pid`. The agent adds `headrace_node_...`, which have neither. Counters only grow while the process
lives. What stages and pools are: [how a run is observed](../design/observability.md).

"""


def page_of(program: str) -> str:
    """Return the text of the page."""
    done = subprocess.run(
        [program, "top", "--list-metrics"], capture_output=True, text=True, check=True
    )
    return INTRODUCTION + done.stdout


if __name__ == "__main__":
    sys.exit(write_or_check("docs/reference/metrics.md", page_of, __doc__))
