"""What this process tells about itself: snapshots, its admin socket, metrics over HTTP, MFU.

Each process with a running loader has an admin socket in ``HEADRACE_RUNTIME_DIR`` (default: the
session's runtime directory, else ``/tmp/headrace-UID``), for its own user alone: ``headrace top``
shows them. By environment:

    HEADRACE_ADMIN=off            no socket
    HEADRACE_METRICS_PORT=9400    metrics over HTTP on 127.0.0.1; each rank of a node takes the port
                                  of its local rank: 9400, 9401, ...
    HEADRACE_METRICS_ADDRESS      another address than 127.0.0.1; needs a token
    HEADRACE_ADMIN_TOKEN          the token, at least 16 characters
    HEADRACE_JOB                  the job's name, instead of the scheduler's id
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace import _native
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.process_end import at_process_end

_started_in: int | None = None  # the process that has started its socket, or found that it cannot


def snapshot() -> dict[str, Any]:
    """Return what this process did since it began: docs/design/observability.md has its members.

    ``loop`` has the input stall, the save stall, ``au`` and ``mfu``; ``stages`` busy, wait and idle
    time of each pool of threads in each stage; ``metrics`` all else.
    """
    made: dict[str, Any] = json.loads(_native.snapshot_json())
    return made


def serve(port: int = 0, address: str = "127.0.0.1", token: str | None = None) -> int:
    """Serve ``/metrics``, ``/snapshot``, ``/healthz`` and ``/settings`` over HTTP.

    Args:
        port: 0 takes a free one.
        address: numeric. One that other machines reach needs a token.
        token: each request but /healthz must then say ``Authorization: Bearer TOKEN``.

    Returns the port. A second call replaces the first.

    Raises:
        InvalidArgumentError: no token where one is needed, or a short one; no numeric address.
        HeadraceError: the port is taken.
    """
    if not 0 <= port < 1 << 16:
        raise InvalidArgumentError(f"port: expected 0 to 65535, found {port}")
    return _native.admin_serve_http(address, port, token or "")


def describe_model(flops_per_step: float, peak_flops_per_second: float) -> None:
    """Say what a step costs and what this rank's accelerator can do: then there is an MFU.

    Model FLOPs utilization is FLOPs of the steps / (peak FLOP/s x total time), as in the PaLM paper
    (arXiv:2204.02311, appendix B); ``flops_per_step`` is forward and backward of one batch of this
    rank, without recomputation.
    """
    if not (flops_per_step > 0 and peak_flops_per_second > 0):
        raise InvalidArgumentError("both must be above 0")
    _native.set_model(float(flops_per_step), float(peak_flops_per_second))


def count_flops(step: Callable[[], Any]) -> int:
    """Run one training step and return its FLOPs, as PyTorch's own counter sees them.

    Counts matrix products, convolutions and attention, two operations for each multiply-add,
    forward and backward. ``step`` should do both, as the loop does::

        flops = observe.count_flops(lambda: model(x).sum().backward())
    """
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        step()
    return int(counter.get_total_flops())


@contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Record what this process does in a ``with`` block, event by event, into a file for Perfetto.

    Each thread's stages, each batch from its plan to its delivery, requests to stores, and each
    save with the levels that it reached. The format is Chrome's trace event format (JSON). The last
    131,072 events are kept; ``otherData.lost_events`` says how many were more. It is for a window
    of some steps; ``headrace trace`` does the same from outside, for longer::

        with observe.trace("steps.json"):
            for _ in range(20):
                train_step(next(batches))

    Raises:
        HeadraceError: the file cannot be written; no memory.
    """
    window = _native.TraceWindow.open()
    try:
        yield
    finally:
        window.write(os.fspath(path))


def ensure_started() -> None:
    """Start the admin socket, and what the environment asks for, once in each process.

    A machine where that is not possible is no reason not to train: it is logged.
    """
    global _started_in
    if is_started():
        return
    _started_in = os.getpid()
    if os.environ.get("HEADRACE_RECORD"):
        from headrace import run_record  # seldom needed: it would make each start slower

        run_record.start_as_asked()
    if os.environ.get("HEADRACE_ADMIN", "").lower() in ("off", "0", "no", "false"):
        return
    try:
        _native.admin_start()
        port = os.environ.get("HEADRACE_METRICS_PORT")
        if port:
            _serve_as_asked(port)
    except HeadraceError as error:
        import logging  # seldom needed: it would make each start slower

        logging.getLogger("headrace").warning("this process cannot be watched: %s", error)


def is_started() -> bool:
    """Whether a loader of this process has begun, so that there is something to tell."""
    return _started_in == os.getpid()


def _serve_as_asked(text: str) -> None:
    local_rank = os.environ.get("LOCAL_RANK", "0")
    if not (text.isdigit() and local_rank.isdigit()):
        raise InvalidArgumentError(f"HEADRACE_METRICS_PORT: expected a number, found {text!r}")
    serve(
        int(text) + (int(local_rank) if int(text) else 0),
        os.environ.get("HEADRACE_METRICS_ADDRESS") or "127.0.0.1",
        os.environ.get("HEADRACE_ADMIN_TOKEN"),
    )


# Its threads must not look at what the interpreter's end takes away.
at_process_end(_native.admin_stop)
