"""The metrics that a program exports, for the scripts that make queries from them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass

# What the text format makes of one histogram.
_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")


@dataclass(frozen=True)
class Metric:
    """One entry of the registry (src/headrace/base/metrics.cc)."""

    name: str
    kind: str  # counter, gauge, histogram
    unit: str
    labels: tuple[str, ...]  # beside run and rank
    help: str


class Registry:
    """All metrics of a program, in its order."""

    def __init__(self, metrics: list[Metric]) -> None:
        self.metrics = metrics
        self._by_name = {metric.name: metric for metric in metrics}

    def named_in(self, query: str) -> list[Metric]:
        """Return the metrics that a query reads; ValueError for one that there is not."""
        found = []
        for word in re.findall(r"\bheadrace_[a-z0-9_]+", query):
            name = word
            for suffix in _HISTOGRAM_SUFFIXES:
                base = word.removesuffix(suffix)
                if base in self._by_name and self._by_name[base].kind == "histogram":
                    name = base
            if name not in self._by_name:
                raise ValueError(f"no metric is called {word}: {query}")
            found.append(self._by_name[name])
        return found


def read(program: str) -> Registry:
    """Ask a program for its metrics."""
    done = subprocess.run(
        [program, "top", "--list-metrics", "--json"], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    return Registry([Metric(**one | {"labels": tuple(one["labels"])}) for one in told])
