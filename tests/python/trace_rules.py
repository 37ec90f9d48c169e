"""The rules of the trace event format, as far as Headrace uses it: complete events, nestable
asynchronous events, and metadata."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

REQUIRED = {
    "X": {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"},
    "b": {"ph", "cat", "name", "id", "pid", "tid", "ts", "args"},
    "e": {"ph", "cat", "name", "id", "pid", "tid", "ts", "args"},
    "M": {"ph", "name", "pid", "tid", "args"},
}


def nanoseconds(microseconds: float) -> int:
    """Times have three decimals: sums of them are exact as whole numbers."""
    return round(microseconds * 1000)


def check(trace: dict[str, Any]) -> None:
    """Fail where a trace breaks a rule."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    assert isinstance(events, list) and events
    for event in events:
        assert set(event) == REQUIRED[event["ph"]], event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        assert isinstance(event["args"], dict) and isinstance(event["name"], str), event
        for time in ("ts", "dur"):
            assert event.get(time, 0) >= 0, event
    _check_names(events)
    _check_nesting(events)
    _check_pairs(events)


def _check_names(events: list[dict[str, Any]]) -> None:
    """Each process and each of its lines has one name."""
    named: dict[tuple[str, int, int], str] = {}
    for event in events:
        if event["ph"] == "M":
            key = (event["name"], event["pid"], event["tid"])
            assert key not in named and event["args"]["name"], event
            named[key] = event["args"]["name"]
        else:
            assert ("process_name", event["pid"], 0) in named, event
            assert ("thread_name", event["pid"], event["tid"]) in named, event


def _check_nesting(events: list[dict[str, Any]]) -> None:
    """Complete events of a thread are inside each other, or one after the other."""
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = nanoseconds(event["ts"])
            threads[event["pid"], event["tid"]].append((begin, begin + nanoseconds(event["dur"])))
    for spans in threads.values():
        open_until: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], (begin, end, open_until)
            open_until.append(end)


def _check_pairs(events: list[dict[str, Any]]) -> None:
    """Each end is that of the innermost open begin of its id, and none is left open."""
    stacks = defaultdict(list)
    last: dict[Any, int] = {}
    for event in events:
        if event["ph"] not in "be":
            continue
        key = (event["pid"], event["cat"], event["id"])
        when = nanoseconds(event["ts"])
        assert when >= last.get(key, 0), event
        last[key] = when
        if event["ph"] == "b":
            stacks[key].append(event["name"])
        else:
            assert stacks[key] and stacks[key].pop() == event["name"], event
    assert not any(stacks.values())
